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
#include <utility>
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
  std::vector<engine::RequestId> paused;              ///< StepPlan::paused.
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

  [[nodiscard]] std::size_t num_in_flight() const { return in_flight_.size(); }
  [[nodiscard]] bool idle() const { return in_flight_.empty(); }
  [[nodiscard]] SimTime oldest_end() const { return in_flight_.front().record.end; }

  /// Takes the oldest batch's result to the engine. `outcome` says who got what.
  const Batch& finish_oldest(Sampler& sampler, engine::StepOutcome& outcome);

  /// Turns the loop `num_turns` times, as the engine promised (Scheduler::steady_turns()): each time the oldest batch
  /// ends and a like one is planned `turnaround` later. Stops before a batch that ends, or is answered with a plan, at
  /// `until` or later. Tells `visit` each batch that has ended; returns how many did.
  template <class Visit>
  std::int64_t turn_steadily(std::int64_t num_turns, SimDuration turnaround, SimTime until, Visit visit);

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
  void put_on_timeline(Batch& batch, SimTime planned, const hw::StepTime& time);
  void begin_steadily();
  void plan_steadily(SimTime now, std::int64_t num_turns);
  void note_usage(Batch& batch) const;
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
  hw::StepShape shape_;  // Of the newest plan.
  std::vector<hw::StepTime> times_ahead_;  // Of the next plans like it.
  std::size_t next_ahead_ = 0;

  // Reused from step to step.
  engine::StepPlan plan_;
  engine::StepResult result_;
  std::vector<hw::Chunk> chunks_;
  std::vector<std::int64_t> window_sums_;
  std::vector<hw::Extrapolation> extrapolations_;
  std::int64_t largest_seen_[3] = {0, 0, 0};  // Tokens, context, requests: only a new record can leave the range.
};

template <class Visit>
std::int64_t Server::turn_steadily(std::int64_t num_turns, SimDuration turnaround, SimTime until, Visit visit) {
  begin_steadily();
  std::int64_t turns = 0;
  for (; turns < num_turns && oldest_end() + turnaround < until; ++turns) {
    const SimTime now = oldest_end();
    note_usage(in_flight_.front());
    engine_.advance(1);
    plan_steadily(now + turnaround, num_turns - turns);
    visit(std::as_const(finished_));
  }
  return turns;
}

}  // namespace kneepoint::sim
