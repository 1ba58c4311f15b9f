// Working on the points of a study.
#pragma once

#include <filesystem>
#include <string>

#include "sim/study_cluster.h"
#include "sim/study_points.h"

namespace kneepoint::sim {

/// The part of a study that one task of an array does: points i with
/// i mod count = index - 1.
struct Shard {
  std::int64_t index = 1;
  std::int64_t count = 1;
};

/// "2/3". Throws UsageError.
[[nodiscard]] Shard parse_shard(const std::string& text);

/// The record of a point, unsealed: {"point":..,"settings":{..},"status":..,"reason":..,"result":{..}}.
///
///     ok           it ran
///     never_fits   it ran; some requests need more KV blocks than there are, where vLLM would hang
///     storm        it was cut: preemptions without end
///     cannot_run   model and GPU, or options, do not go together; no result
///
/// Throws TraceError and the like for inputs that broke since they were checked.
[[nodiscard]] std::string study_record(const StudyPoints& study, std::int64_t index);

struct StudyProgress {
  std::int64_t in_shard = 0;
  std::int64_t done_before = 0;
};

/// Runs the points of `shard` that `folder` does not have, on `threads` threads of
/// each rank, and appends their records. All ranks call it. What rank 0 found
/// there. Throws UsageError for a folder of another study.
StudyProgress run_study_points(const StudyPoints& study, const std::filesystem::path& folder, Shard shard,
                               int threads, Cluster& cluster);

}  // namespace kneepoint::sim
