// A measured server's row (serving_rows.h) simulated: its set-up as a run
// configuration, its client as a client, and what that client would have seen.
//
// Releases of vLLM differ in what a row leaves open, so the row's release decides:
//
//     since    default
//     0.14.0   asynchronous scheduling (vLLM pull request #27614)
//     0.21.0   CUDA graphs are taken off before KV blocks are counted (its start-up log
//              says so), gpu_memory_utilization is 0.92 in place of 0.9, and nobody is
//              admitted without room for the whole prompt (#37307, default by #41064)
//
// A row that names no release is taken as 0.15, the release of the tables that lack
// the column: asynchronous, 0.9, graphs on top.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/serving_rows.h"
#include "sim/run_config.h"

namespace kneepoint::calibrate {

/// A release of vLLM, as far as it decides anything.
struct VllmRelease {
  std::int64_t major = 0;
  std::int64_t minor = 0;
  friend auto operator<=>(const VllmRelease&, const VllmRelease&) = default;
};

inline constexpr VllmRelease kReleaseOfUnnamed{0, 15};

/// "0.15.1" or "v0.15.1rc2" is {0, 15}; "" is kReleaseOfUnnamed. Throws CalibrateError for anything else.
[[nodiscard]] VllmRelease parse_release(const std::string& text);

struct ServingPrediction {
  std::optional<double> mean_ttft_ms;
  std::optional<double> p99_ttft_ms;
  std::optional<double> mean_tpot_ms;
  std::int64_t num_gpu_blocks = 0;
  /// Share of all TTFT that was spent waiting for KV blocks.
  double kv_wait_share = 0;
  std::vector<std::string> notices;
};

/// The row's server with what it leaves open filled in. Throws UsageError or
/// SpecError where no such server would start.
[[nodiscard]] sim::RunConfig run_config_of(const ServingRow& row);

/// One run of the row's client. Rows of KV blocks only are sized, not run.
[[nodiscard]] ServingPrediction predict_serving(const ServingRow& row, std::uint64_t seed);

/// The mean over seeds 1 to `seeds`; a row whose client draws nothing is run once.
[[nodiscard]] ServingPrediction mean_of(const std::vector<ServingPrediction>& predictions);
[[nodiscard]] bool draws_random_numbers(const ServingRow& row);

}  // namespace kneepoint::calibrate
