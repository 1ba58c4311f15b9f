// The engine without a clock: someone else says before which step each request
// arrives, and learns what every step was made of.
//
// This is how a real server's step log is compared with ours: with the arrivals
// placed as the log shows them, everything else follows from the scheduling
// rules, and each of our steps can be held against the logged one.
//
// With D batches in flight step i is planned before the result of step i - D + 1
// is in, as in sim/server.h.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "sim/content_keys.h"
#include "traces/trace_record.h"

namespace kneepoint::sim {

/// What one step was made of, as the step log counts it and as its time depends on it.
struct ReplayedStep {
  std::int64_t context_requests = 0;  ///< Without any output before the step.
  std::int64_t context_tokens = 0;
  std::int64_t generation_requests = 0;
  std::int64_t generation_tokens = 0;
  double kv_usage = 0;  ///< Share of the usable blocks, after the update (depth 1 only).

  std::int64_t prefill_tokens = 0;  ///< Of requests with more than one token in the step.
  double attention_pairs = 0;       ///< Sum over these of n computed + n (n + 1) / 2.
  std::int64_t max_chunk_context = 0;
  std::int64_t sequences = 0;    ///< Requests with exactly one token.
  std::int64_t context_sum = 0;  ///< Sum over these of computed + 1.

  std::int64_t running = 0;  ///< After the update.
  bool idle_after = false;   ///< Nobody runs or waits after the update.

  std::vector<engine::RequestId> started;  ///< Admitted for the first time, in order.
  std::int64_t cached_tokens = 0;          ///< Prefix hits of `started`.
  std::vector<engine::RequestId> preempted;
  /// Got a token when this step was over, in the order of the batch (depth 1: from this step).
  std::vector<engine::RequestId> emitted;
  engine::AdmissionStop admission_stop = engine::AdmissionStop::kQueueEmpty;
  engine::RequestId not_admitted = engine::kNoRequest;
};

class StepReplay {
 public:
  /// Request i of `requests` has the engine's id i. Both spans must outlive the
  /// replay's construction only. `free_queue`: the pool's free queue, head
  /// first, every usable block once; empty: a fresh pool.
  /// Throws engine::ConfigError for a configuration that cannot run.
  StepReplay(const engine::SchedulerConfig& config, std::span<const traces::TraceRecord> requests,
             std::span<const engine::FreeBlock> free_queue);

  /// Request `index` arrives, behind those that arrived before.
  void add(std::size_t index);

  /// Plans the next step that computes something and processes the results
  /// that are due. False, and `step` meaningless, if nothing can run.
  [[nodiscard]] bool next(ReplayedStep& step);

  /// Running requests without any output: the next step's context requests,
  /// arrivals aside.
  [[nodiscard]] std::int64_t running_without_output() const { return running_without_output_; }
  [[nodiscard]] engine::EngineLoad load() const { return scheduler_->load(); }

 private:
  void record_plan(ReplayedStep& step);
  void process_oldest(ReplayedStep* newest);
  void set_without_output(engine::RequestId id, bool value);

  engine::SchedulerConfig config_;
  ContentKeys keys_;
  std::unique_ptr<engine::Scheduler> scheduler_;
  std::vector<engine::NewRequest> requests_;
  std::size_t depth_ = 1;
  std::size_t in_flight_ = 0;
  std::vector<bool> without_output_;  // By id: runs, and no step so far gave it a token.
  std::int64_t running_without_output_ = 0;
  engine::StepPlan plan_;
  engine::StepResult result_;
  engine::StepOutcome outcome_;
};

}  // namespace kneepoint::sim
