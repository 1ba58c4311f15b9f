// Who watches a run. The event loop tells, observers listen; none can change
// what happens. Metrics, the step log and the tests' own accountants are
// observers.
#pragma once

#include <cstdint>

#include "engine/scheduler.h"
#include "engine/step_plan.h"
#include "sim/request_record.h"
#include "sim/sim_time.h"

namespace kneepoint::sim {

/// One step that computed something, told when its result has been processed.
/// Requests count as vLLM's step log counts them: "context" are those without
/// any output before the step, "generation" the others, resumed ones included.
struct StepRecord {
  std::int64_t step = 0;  ///< The engine's counter.
  SimTime planned{};
  SimTime begin{};  ///< On the device.
  SimTime end{};
  std::int64_t context_requests = 0;
  std::int64_t context_tokens = 0;
  std::int64_t generation_requests = 0;
  std::int64_t generation_tokens = 0;
  std::int64_t preempted = 0;  ///< By the plan of this step.
  double kv_usage = 0;         ///< Share of usable blocks in use, after the update.
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;

  /// A request was sent by the client.
  virtual void on_send(const RequestRecord&) {}
  /// Tokens reached the client at `at_client`, `previous` being when the ones before did (kNever: these are the
  /// first). `request.output_tokens` includes them.
  virtual void on_tokens(const RequestRecord& /*request*/, SimTime /*previous*/, SimTime /*at_client*/,
                         std::int64_t /*num_tokens*/) {}
  /// A request lost its blocks to the plan that was made at `now`; `request.preemptions` includes it.
  virtual void on_preempt(const RequestRecord& /*request*/, SimTime /*now*/) {}
  /// The client knows that a request is over; told once for each, in the order of their ends.
  virtual void on_request_end(const RequestRecord&) {}
  virtual void on_step(const StepRecord&) {}
  /// Queue and pool after a change: an arrival, a plan, a result.
  virtual void on_load(SimTime, const engine::EngineLoad&) {}
};

}  // namespace kneepoint::sim
