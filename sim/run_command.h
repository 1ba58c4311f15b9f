// `simulate --trace FILE.pb [...]`: run, report, write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/metrics.h"
#include "sim/observer.h"
#include "sim/report.h"
#include "sim/run_config.h"
#include "sim/simulation.h"

namespace kneepoint::sim {

/// Exit status of a run that a limit stopped: its results are partial.
inline constexpr int kExitPartial = 3;

/// What came out of a run, for reports.
struct RunOutcome {
  SimulationResult run;
  MetricsReport report;

  [[nodiscard]] std::int64_t num_unsent() const;  ///< Requests of the trace; 0 unless the run was stopped or cut.
  /// `config` is the run's, and must outlive it, as this must.
  [[nodiscard]] RunResult result(const RunConfig& config) const;
};

/// Runs `config` with a progress bar; `others` watch, too.
[[nodiscard]] RunOutcome carry_out(const RunConfig& config, std::vector<RunObserver*> others);

/// Exit status. Wrong input throws one line; nothing is half-written then.
[[nodiscard]] int run_simulation(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
