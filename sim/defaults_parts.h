// The parts of resolve(), in the order in which they run. Each reads what was
// asked for and what the parts before it came to.
#pragma once

#include "sim/run_config.h"
#include "sim/run_config.pb.h"

namespace kneepoint::sim {

inline constexpr double kGiB = 1073741824.0;

/// Model, GPU, parallelism and types (sim/defaults_model.cc).
void resolve_deployment(const pb::RunConfig& asked, RunConfig& config);

/// Scheduler and limits of a step (sim/defaults.cc).
void resolve_scheduler(const pb::RunConfig& asked, RunConfig& config);
void resolve_context(const pb::RunConfig& asked, RunConfig& config);
void resolve_limits(const pb::RunConfig& asked, RunConfig& config);

/// KV blocks out of memory, and max_model_len where that follows from it
/// (sim/defaults_memory.cc).
void resolve_memory(const pb::RunConfig& asked, RunConfig& config);

/// Clients, admission, what stops the run, report (sim/defaults_client.cc).
void resolve_client(const pb::RunConfig& asked, RunConfig& config);
void resolve_limits_of_run(const pb::RunConfig& asked, RunConfig& config);
void resolve_report(const pb::RunConfig& asked, RunConfig& config);

}  // namespace kneepoint::sim
