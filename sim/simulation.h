// One simulation: a resolved configuration in, what happened out.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "hw/step_time_model.h"
#include "sim/client.h"
#include "sim/observer.h"
#include "sim/run_config.h"
#include "sim/run_summary.h"
#include "sim/stop_signal.h"

namespace kneepoint::sim {

struct SimulationResult {
  RunSummary summary;
  std::uint64_t num_requests = 0;  ///< In the trace.
  std::string trace_source;        ///< What the trace's header says of its origin.
  std::string trace_sha256;
  std::string time_provenance;     ///< Which rates the step times come from.
};

/// Runs `config` and tells `observers` what happens. Throws TraceError,
/// SpecError or ConfigError for wrong input, also in the middle of a trace.
[[nodiscard]] SimulationResult simulate(const RunConfig& config, std::span<RunObserver* const> observers);

/// The same with a client that is not made from `config.trace`; the fields about
/// the trace stay empty.
[[nodiscard]] SimulationResult simulate(const RunConfig& config, Client& client,
                                        std::span<RunObserver* const> observers);

/// The same with step times that are not made from `config` either, so that many
/// runs can share them, and a way to end it early. `stop` may be null.
[[nodiscard]] SimulationResult simulate(const RunConfig& config, Client& client, const hw::StepTimeModel& times,
                                        const StopSignal* stop, std::span<RunObserver* const> observers);

/// The step times `config` asks for: a measured server's, or the GPU's.
[[nodiscard]] std::unique_ptr<hw::StepTimeModel> make_step_times(const RunConfig& config);

}  // namespace kneepoint::sim
