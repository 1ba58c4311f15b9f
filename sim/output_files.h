// The files of a run, which appear together or not at all.
//
// Each is written to a temporary file beside its place. commit() brings all to
// the disk, and only when that has worked renames them, one after the other,
// checksums.sha256 last; an older checksums.sha256 goes first, so whenever one
// is there it speaks of the files beside it. Without commit() nothing is left
// behind and older files stay as they were; a folder that was made for the run
// goes, too.
#pragma once

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "traces/sha256.h"

namespace kneepoint::sim {

/// Lists the other files of a folder with their SHA-256, as `sha256sum` does.
inline constexpr std::string_view kChecksumsFile = "checksums.sha256";

/// One line: which file or stream, what is wrong.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One file being written. Made by OutputFiles.
class OutputFile {
 public:
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws OutputError if the disk is full and the like.
  void write(std::string_view bytes);

 private:
  friend class OutputFiles;
  explicit OutputFile(std::filesystem::path path);
  void flush();
  void sync();    // All bytes are on the disk.
  void rename();  // The file is in its place.
  [[noreturn]] void fail(std::string_view what) const;

  std::filesystem::path path_;
  std::string temporary_;  // Empty once renamed.
  int descriptor_ = -1;
  std::string buffer_;
  traces::Sha256 hash_;
};

class OutputFiles {
 public:
  /// `folder` is made if it is not there; empty: only files by path. Throws
  /// OutputError if it is a file or cannot be written to.
  explicit OutputFiles(std::filesystem::path folder);
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  /// A file in the folder, which checksums.sha256 will list.
  [[nodiscard]] OutputFile& create(std::string_view name);
  /// A file anywhere else.
  [[nodiscard]] OutputFile& create_at(const std::filesystem::path& path);
  [[nodiscard]] bool has_folder() const { return !folder_.empty(); }

  /// Files of these names that a run before left in the folder and this one
  /// does not write are removed by commit(): they would pass for this run's.
  void replaces(std::vector<std::string> names) { replaced_names_ = std::move(names); }

  /// Puts all files into place. Throws OutputError; before the first rename nothing has changed then.
  void commit();

 private:
  struct Named {
    std::string name;  // In the folder; empty for a file elsewhere.
    std::unique_ptr<OutputFile> file;
  };
  void make_folder();
  void write_checksums();

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_folders_;  // Outermost first.
  std::vector<Named> files_;
  std::vector<std::string> replaced_names_;
  bool committed_ = false;
};

/// For main(), first: a closed pipe becomes an error of write_stdout() in place
/// of a signal, a standard stream that the caller closed cannot be mistaken for
/// a file that we open, and a signal that ends the process takes unfinished
/// files along (traces/temporary_files.h).
void guard_process();

/// Writes all of it. Throws OutputError (closed pipe, full disk, closed stream).
void write_stdout(std::string_view text);

}  // namespace kneepoint::sim
