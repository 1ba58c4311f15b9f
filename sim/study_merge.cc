#include "sim/study_merge.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <system_error>
#include <vector>

#include "sim/output_files.h"
#include "sim/study_csv.h"
#include "sim/usage_error.h"
#include "traces/sha256.h"
#include "traces/temporary_files.h"

namespace kneepoint::sim {

namespace fs = std::filesystem;

namespace {

constexpr const char* kResults = "results.jsonl";
constexpr const char* kCsv = "results.csv";
constexpr const char* kChecksums = "checksums.sha256";

// One merge at a time: shards that end together may all be asked to.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX) != 0) {
      if (descriptor_ >= 0) {
        ::close(descriptor_);
      }
      throw OutputError(fmt::format("{}: cannot be locked", folder.string()));
    }
  }
  ~FolderLock() { ::close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

// Temporary files of a merge that was killed.
void remove_leftovers(const fs::path& folder) {
  std::vector<fs::path> leftovers;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    for (const char* name : {kResults, kCsv, kChecksums}) {
      if (traces::is_temporary_name(entry.path().filename().string(), name)) {
        leftovers.push_back(entry.path());
      }
    }
  }
  for (const fs::path& leftover : leftovers) {
    fs::remove(leftover, ignored);
  }
}

const StudyHeader& header_of(const StudyScan& scan, const fs::path& folder) {
  if (!scan.header()) {
    throw UsageError(fmt::format("{}: has no results of a study", folder.string()));
  }
  return *scan.header();
}

std::string missing_text(const StudyScan& scan, std::int64_t points) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::int64_t> first;
  for (std::int64_t i = 0; i < points && first.size() < kNamed; ++i) {
    if (!scan.has(i)) {
      first.push_back(i);
    }
  }
  const std::int64_t missing = points - scan.num_found();
  return fmt::format("{} of {} points are missing ({}{})", missing, points, fmt::join(first, ", "),
                     missing > static_cast<std::int64_t>(first.size()) ? ", ..." : "");
}

// Each line of checksums.sha256 against its file.
void check_checksums(const fs::path& folder) {
  std::ifstream in(folder / kChecksums);
  std::size_t seen = 0;
  std::string line;
  while (std::getline(in, line)) {
    const std::size_t gap = line.find("  ");
    const std::string name = gap == std::string::npos ? "" : line.substr(gap + 2);
    if (name != kResults && name != kCsv) {
      throw UsageError(fmt::format("{}: line '{}' is not one of ours; the file was changed",
                                   (folder / kChecksums).string(), line));
    }
    if (!fs::exists(folder / name) || traces::sha256_file(folder / name) != line.substr(0, gap)) {
      throw UsageError(fmt::format("{}: does not match {}; run `simulate study --merge` again",
                                   (folder / name).string(), kChecksums));
    }
    ++seen;
  }
  if (seen != 2) {
    throw UsageError(fmt::format("{}: names {} files of 2; run `simulate study --merge` again",
                                 (folder / kChecksums).string(), seen));
  }
}

// results.jsonl is the header and every point in its order.
void check_order(const StudyScan& scan, const StudyHeader& header, const fs::path& folder) {
  std::ifstream in(folder / kResults, std::ios::binary);
  std::string line;
  std::int64_t point = -1;
  for (; std::getline(in, line); ++point) {
    if (point >= header.points || line != (point < 0 ? header.line : scan.line_of(point))) {
      throw UsageError(
          fmt::format("{}: line {} is not point {}", (folder / kResults).string(), point + 2, point));
    }
  }
  if (point != header.points) {
    throw UsageError(
        fmt::format("{}: ends after {} of {} points", (folder / kResults).string(), point, header.points));
  }
}

}  // namespace

std::int64_t merge_study(const fs::path& folder) {
  const StudyScan scan(folder);
  const StudyHeader& header = header_of(scan, folder);
  if (scan.num_found() != header.points) {
    throw UsageError(
        fmt::format("{}: {}; run the study again with the same --out: it goes on where it stopped",
                    folder.string(), missing_text(scan, header.points)));
  }
  const FolderLock lock(folder);
  remove_leftovers(folder);
  OutputFiles files(folder);
  OutputFile& results = files.create(kResults);
  OutputFile& csv = files.create(kCsv);
  results.write(header.line + "\n");
  csv.write(study_csv_header(header.options));
  for (std::int64_t i = 0; i < header.points; ++i) {
    const std::string line = scan.line_of(i);
    results.write(line + "\n");
    csv.write(study_csv_line(header.options, line));
  }
  files.commit();
  return header.points;
}

StudyVerdict verify_study(const fs::path& folder) {
  const StudyScan scan(folder);
  const StudyHeader& header = header_of(scan, folder);
  StudyVerdict verdict;
  verdict.points = header.points;
  verdict.found = scan.num_found();
  verdict.files = scan.num_files();
  verdict.torn = scan.num_torn();
  const bool any_merged =
      fs::exists(folder / kResults) || fs::exists(folder / kCsv) || fs::exists(folder / kChecksums);
  if (any_merged) {
    check_checksums(folder);
    check_order(scan, header, folder);
    verdict.merged = true;
  }
  return verdict;
}

}  // namespace kneepoint::sim
