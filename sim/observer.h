// Who watches a run. The event loop tells, observers listen; none can change
// what happens. Metrics, the step log and the tests' own accountants are
// observers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

/// Tokens that a step gave to requests which only decode, one each, and each had one from the step before. They are
/// told together; first and last tokens are always told one by one.
struct CohortTokens {
  SimTime first{};       ///< When the output in place 0 of the step is at its client,
  SimDuration spacing{}; ///< and how much later each next one.
  std::int64_t num_outputs = 0;  ///< Of the step, listed or not.
  std::int64_t count = 0;        ///< Of them, those told here.
  struct Stretch {
    std::int64_t count = 0;
    SimDuration gap{};  ///< Since the token before.
  };
  std::vector<Stretch> stretches;    ///< In the order of places; their counts sum to `count`.
  std::vector<std::int64_t> listed;  ///< Places that are told one by one, in order.
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;

  /// Whether tokens must be told one by one, to on_tokens(), all of them: the run must then have
  /// RunConfig::engine.walk_decodes.
  [[nodiscard]] virtual bool wants_every_token() const { return false; }

  /// A request was sent by the client.
  virtual void on_send(const RequestRecord&) {}
  /// Tokens reached the client at `at_client`, `previous` being when the ones before did (kNever: these are the
  /// first). `request.output_tokens` includes them.
  virtual void on_tokens(const RequestRecord& /*request*/, SimTime /*previous*/, SimTime /*at_client*/,
                         std::int64_t /*num_tokens*/) {}
  /// Tokens of requests that only decode, told together.
  virtual void on_cohort_tokens(const CohortTokens&) {}
  /// A request that has had output fails, or is cut with the run: each time at which it got tokens. Told before
  /// its end, and only if tokens are told together; else the observer has seen them all.
  virtual void on_tokens_withdrawn(std::span<const SimTime> /*at_client*/) {}
  /// A request lost its blocks to the plan that was made at `now`; `request.preemptions` includes it.
  virtual void on_preempt(const RequestRecord& /*request*/, SimTime /*now*/) {}
  /// The client knows that a request is over; told once for each, in the order of their ends.
  virtual void on_request_end(const RequestRecord&) {}
  virtual void on_step(const StepRecord&) {}
  /// Queue and pool after a change: an arrival, a plan, a result.
  virtual void on_load(SimTime, const engine::EngineLoad&) {}
};

}  // namespace kneepoint::sim
