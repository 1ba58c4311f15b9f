// A study's results folder: records that are only ever appended.
//
//     DIR/parts/part-1-of-3.jsonl     what the first of three shards has found, in the order found
//     DIR/parts/...
//     DIR/results.jsonl               all points in their order, once they are all there
//     DIR/results.csv                 the same as a table
//     DIR/checksums.sha256            of these two
//
// A line is one JSON object whose last member is the SHA-256 of all that stands
// before it on the line:
//
//     {"point":17,"settings":{...},"status":"ok",...,"sha256":"<64 hex digits>"}
//
// The first line of each file is a header that names the study. A process that is
// killed leaves at most one line without its end; it is cut off when the part is
// opened again, and its point is run again. A line that has its end but not its
// checksum was damaged later, which nothing repairs in silence.
//
// A part has one writer, who holds a lock on it. Who resumes may be split into
// other parts than before: what is done is the union of all files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/study_points.h"

namespace kneepoint::sim {

/// `json`, an object, with its checksum as last member; no line end.
[[nodiscard]] std::string seal_line(std::string_view json);
/// The object without its checksum; nothing if that is not there or another.
[[nodiscard]] std::optional<std::string> unseal_line(std::string_view line);

/// What a header says.
struct StudyHeader {
  std::string identity;
  std::int64_t points = 0;
  std::vector<std::string> options;
  std::string line;  ///< Itself, sealed.
};
[[nodiscard]] StudyHeader make_header(const StudyPoints& study);

/// Where one record lies.
struct RecordPlace {
  std::size_t file = 0;
  std::int64_t offset = 0;
  std::int64_t length = 0;  ///< Without the line end.
};

/// All files of a folder, read and checked line by line.
class StudyScan {
 public:
  /// Throws UsageError for a folder without results, a line that does not match
  /// its checksum, files of different studies, two different records of a point.
  explicit StudyScan(const std::filesystem::path& folder);

  /// Nothing if no file has a header yet.
  [[nodiscard]] const std::optional<StudyHeader>& header() const { return header_; }
  [[nodiscard]] bool has(std::int64_t point) const {
    return places_[static_cast<std::size_t>(point)].has_value();
  }
  [[nodiscard]] std::int64_t num_found() const { return num_found_; }
  [[nodiscard]] std::size_t num_files() const { return files_.size(); }
  /// Lines that a killed process left without their end.
  [[nodiscard]] std::int64_t num_torn() const { return num_torn_; }
  /// The record as it stands in the file, sealed. Before: has(point).
  [[nodiscard]] std::string line_of(std::int64_t point) const;

 private:
  void scan(std::size_t file);
  void take_header(std::size_t file, std::string_view line, std::string_view body);
  void take_record(std::size_t file, std::int64_t offset, std::string_view line, std::string_view body);
  [[nodiscard]] std::string read(const RecordPlace& place) const;

  std::vector<std::filesystem::path> files_;
  std::optional<StudyHeader> header_;
  std::vector<std::optional<RecordPlace>> places_;  // By point.
  std::int64_t num_found_ = 0;
  std::int64_t num_torn_ = 0;
};

/// The part one process writes.
class StudyPart {
 public:
  /// Opens or makes it, cuts off a line without end, writes the header into an
  /// empty one. Throws UsageError if another process writes it, OutputError.
  StudyPart(const std::filesystem::path& folder, const std::string& name, const StudyHeader& header);
  ~StudyPart();
  StudyPart(const StudyPart&) = delete;
  StudyPart& operator=(const StudyPart&) = delete;

  /// One record, in one write.
  void append(std::string_view json);

 private:
  void write_line(const std::string& line);
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// The folder of a study, made if need be. Throws OutputError.
void make_study_folder(const std::filesystem::path& folder);

}  // namespace kneepoint::sim
