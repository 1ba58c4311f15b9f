// What the schedulers that papers compare against have in common: one step at a
// time is planned, run and answered; no drafts, no batches in flight.
//
// A policy derives from Stepwise and says who computes what (plan_requests) and
// what it means to give blocks back (give_up_blocks). Queues, results, ends and
// the plan's books are kept here.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "engine/request_queue.h"
#include "engine/request_table.h"
#include "engine/scheduler.h"

namespace kneepoint::engine {

class Stepwise : public Scheduler {
 public:
  void add_request(const NewRequest& request) final;
  void abort_request(RequestId id) final;
  void plan_step(StepPlan& plan) final;
  void update(const StepResult& result, StepOutcome& outcome) final;
  [[nodiscard]] bool has_requests() const final;
  [[nodiscard]] EngineLoad load() const final;
  [[nodiscard]] PrefixCacheStats prefix_cache_stats() const final { return stats_; }
  [[nodiscard]] RequestId waiting_head() const override;
  void for_each_scheduled(const std::function<void(const ScheduledRequest&)>& visit) const final;

 protected:
  /// Throws ConfigError if `config` asks for batches in flight, drafts or a
  /// sliding window, naming the scheduler.
  Stepwise(std::string_view name, const SchedulerConfig& config);

  /// Who computes what: calls schedule() for each, fills plan.preempted and
  /// plan.admission_stop.
  virtual void plan_requests(StepPlan& plan) = 0;
  /// The request, on its way out or preempted, holds blocks no more.
  virtual void give_up_blocks(Request& request) = 0;
  /// A step that computed for the request has run.
  virtual void on_computed(Request& /*request*/) {}
  /// Those who are neither running nor in `waiting_` (vllm-v0's swapped ones).
  [[nodiscard]] virtual std::int64_t num_elsewhere() const { return 0; }
  /// Takes one of those out of where it is; false: it is not one of them.
  [[nodiscard]] virtual bool leave_elsewhere(Slot /*slot*/) { return false; }
  [[nodiscard]] virtual std::int64_t free_blocks() const = 0;
  [[nodiscard]] virtual std::int64_t usable_blocks() const = 0;

  /// Puts `tokens` tokens of a request into the step.
  void schedule(Slot slot, std::int32_t tokens, ScheduledKind kind, std::int32_t cached_tokens = 0);
  /// The head of the queue starts to run with `cached_tokens` known.
  ScheduledKind start_head(std::int32_t cached_tokens);
  /// Back to the front of the queue, to start again from nothing. Before: not in running_ any more.
  void recompute_later(Slot slot, StepPlan& plan);
  /// The head of the queue can never run under this policy.
  void ignore_head(StepPlan& plan);
  /// Whether the next token needs nothing but itself.
  [[nodiscard]] static bool decodes(const Request& r) { return r.num_computed_tokens == r.num_tokens - 1; }

  std::int64_t max_num_batched_tokens_;
  std::size_t max_num_seqs_;
  std::int32_t max_model_len_;
  std::int32_t block_size_;

  RequestTable requests_;
  RequestQueue waiting_;
  std::vector<Slot> running_;  // In the policy's order.
  PrefixCacheStats stats_;
  std::int64_t step_ = -1;

 private:
  struct Planned {
    ScheduledRequest share;
    Slot slot = kNoSlot;
  };

  void leave(Slot slot);
  [[nodiscard]] FinishReason append(Request& r, const SampledTokens& sampled, std::int32_t& kept) const;

  std::vector<Planned> planned_;
  bool in_flight_ = false;
  std::vector<RequestId> ended_;
};

}  // namespace kneepoint::engine
