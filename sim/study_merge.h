// What is made of a study's records once all points are there.
#pragma once

#include <filesystem>
#include <string>

#include "sim/study_store.h"

namespace kneepoint::sim {

/// Writes results.jsonl, results.csv and checksums.sha256: the records in the
/// order of points, the same bytes whoever found them. Throws UsageError if a
/// point is missing, OutputError. The number of points.
std::int64_t merge_study(const std::filesystem::path& folder);

struct StudyVerdict {
  std::int64_t points = 0;
  std::int64_t found = 0;
  std::size_t files = 0;
  std::int64_t torn = 0;  ///< Lines cut short when a process was killed; their points were run again.
  bool merged = false;    ///< results.jsonl is there.
};

/// Checks every record of every file, and the merged files if they are there.
/// Throws UsageError for the first thing wrong.
[[nodiscard]] StudyVerdict verify_study(const std::filesystem::path& folder);

}  // namespace kneepoint::sim
