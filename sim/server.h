// The server between its front end and its GPU: the engine's loop on the clock.
//
// vLLM's loop with D batches in flight (spec.md 7.1), one turn of it being
//
//     take in what has arrived; plan a step if there is anything to plan for;
//     if fewer than D batches are in flight and there is work, turn again;
//     else wait for the oldest batch, process its result, turn again.
//
// With D = 1 that is plan, run, update. With D = 2 batch i is planned when batch
// i - 2 ends, while i - 1 runs: the host's work hides behind the device's, and an
// arrival waits a step longer.
//
// The server knows when a step begins and ends (hw/step_time_model.h); what it
// samples comes from the Sampler.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/scheduler.h"
#include "hw/deployment.h"
#include "hw/step_time_model.h"
#include "sim/observer.h"
#include "sim/sim_time.h"

namespace kneepoint::sim {

/// A request's share of a batch in flight.
struct BatchMember {
  engine::RequestId id = engine::kNoRequest;
  std::int32_t num_draft_tokens = 0;
  bool samples = false;
  bool drafts_padded = false;
};

/// A planned step until its result is in.
struct Batch {
  StepRecord record;
  std::int64_t num_tokens = 0;
  std::vector<BatchMember> members;  ///< In planned order; the engine's cohort is not among them.
};

/// Says what a batch samples.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Fills `result` with what differs from one token for each sampling member.
  virtual void sample(const Batch& batch, engine::StepResult& result) = 0;
};

/// What a turn of the loop decided, besides putting batches in flight.
struct TurnReport {
  bool computed = false;                              ///< The newest plan has tokens.
  struct Started {
    engine::RequestId id = engine::kNoRequest;
    std::int64_t cached_tokens = 0;  ///< Its prefix hit.
  };
  std::vector<Started> started;                       ///< Planned for the first time, in order.
  std::vector<engine::RequestId> preempted;
  std::vector<engine::RequestId> ignored;             ///< Ended by the plan: the policy can never run them.
  void clear();
};

class Server {
 public:
  /// `graphs` is null for a measured server, whose times include any padding.
  Server(engine::Scheduler& engine, const hw::StepTimeModel& times, const hw::GraphSizes* graphs,
         const engine::SchedulerConfig& config);

  /// Turns the loop at `now` until it has to wait: for the oldest batch
  /// (oldest_end()), or, with nothing in flight, for an arrival.
  void turn(SimTime now, TurnReport& report);

  [[nodiscard]] bool idle() const { return in_flight_.empty(); }
  /// Whether no batch but the newest plan is in flight.
  [[nodiscard]] bool idle_but_for_newest() const { return in_flight_.size() <= 1; }
  [[nodiscard]] SimTime oldest_end() const { return in_flight_.front().record.end; }

  /// Takes the oldest batch's result to the engine. `outcome` says who got what.
  const Batch& finish_oldest(Sampler& sampler, engine::StepOutcome& outcome);

  /// Whether a batch with tokens is in flight.
  [[nodiscard]] bool computing() const;

  /// Why nobody, or not everybody, was admitted by the newest plan.
  [[nodiscard]] engine::AdmissionStop admission_stop() const { return plan_.admission_stop; }

  [[nodiscard]] SimDuration device_busy() const { return device_busy_; }
  [[nodiscard]] std::vector<hw::Extrapolation> extrapolations() const { return extrapolations_; }

 private:
  void plan_step(SimTime now, TurnReport& report);
  void fill_members(Batch& batch);
  [[nodiscard]] hw::StepShape shape_of_plan(const Batch& batch);
  void note_extrapolations(const hw::StepShape& shape);
  Batch take_spare();

  engine::Scheduler& engine_;
  const hw::StepTimeModel& times_;
  const hw::GraphSizes* graphs_;
  std::size_t depth_;
  std::int64_t tokens_per_decode_;  // 1 + drafts.

  std::deque<Batch> in_flight_;
  Batch finished_;
  SimTime device_free_{};
  SimDuration device_busy_{0};
  std::int64_t outputs_before_ = 0;

  // Reused from step to step.
  engine::StepPlan plan_;
  engine::StepResult result_;
  std::vector<hw::Chunk> chunks_;
  std::vector<std::int64_t> window_sums_;
  std::vector<hw::Extrapolation> extrapolations_;
  std::int64_t largest_seen_[3] = {0, 0, 0};  // Tokens, context, requests: only a new record can leave the range.
};

}  // namespace kneepoint::sim
