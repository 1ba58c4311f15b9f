// The result of a run as people read it, in the manner of `vllm bench serve`'s
// "Serving Benchmark Result", then what only a simulator knows: what requests
// waited for, how full the KV cache was, where the decisive numbers come from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/metrics.h"
#include "sim/run_config.h"
#include "sim/run_summary.h"

namespace kneepoint::sim {

/// An input by name, not by place: the same run in another folder has the same result.
struct InputFile {
  std::string role;    ///< "trace", "rates", "server", "run_config", ...
  std::string name;    ///< Base name.
  std::string sha256;  ///< Hex.
};

/// Everything that a result is written from.
struct RunResult {
  const RunConfig& config;
  const RunSummary& summary;
  const MetricsReport& metrics;
  std::string version;        ///< Kneepoint's.
  std::string configuration;  ///< The resolved run config, as --print-config writes it.
  std::vector<InputFile> inputs;
  std::vector<std::string> provenance;  ///< Lines for the report: the configuration's, then the step times'.
  std::int64_t num_unsent = 0;          ///< Requests of the trace that were not sent: the run was stopped or cut.
};

/// A cause of RunSummary::wait_causes for people: "max_num_batched_tokens".
[[nodiscard]] std::string_view wait_cause_in_words(std::string_view cause);

/// The table, ending in a newline.
[[nodiscard]] std::string report_table(const RunResult& result);

}  // namespace kneepoint::sim
