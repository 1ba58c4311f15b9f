// One run with everything that a result is written from.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/metrics.h"
#include "sim/report.h"
#include "sim/run_config.h"
#include "sim/simulation.h"

namespace kneepoint::sim {

struct MeasuredRun {
  SimulationResult run;
  MetricsReport metrics;
  std::vector<InputFile> inputs;        ///< Trace, and what else came from files.
  std::vector<std::string> provenance;  ///< The configuration's lines, then the step times'.
};

/// Simulates `config`; `watchers` are told, too. Throws as simulate() does.
[[nodiscard]] MeasuredRun measure(const RunConfig& config, std::span<RunObserver* const> watchers = {});

/// The same with a client of its own in place of the trace.
[[nodiscard]] MeasuredRun measure(const RunConfig& config, Client& client,
                                  std::span<RunObserver* const> watchers = {});

/// What result_json() and report_table() take; refers to both.
[[nodiscard]] RunResult as_result(const RunConfig& config, const MeasuredRun& measured);

}  // namespace kneepoint::sim
