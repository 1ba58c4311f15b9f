// vllm-v0: the scheduler of vLLM before late 2025.
//
// Without chunked prefill (its default) a step is either prompts or decodes:
//
//     prompts first   admit whole prompts while budget, max_num_seqs and blocks
//                     last; if one was admitted, nobody decodes in this step
//     else decodes    everyone who runs, oldest first; who finds no block evicts
//                     the last; then, if nobody was evicted, swapped requests
//                     come back
//
// so each arrival stalls all decodes for a whole prefill. With chunked prefill
// the step is: those who run (decodes and chunks), swapped ones, new prompts, all
// within one token budget.
//
// Admission needs the whole prompt's blocks and leaves a watermark of 1 % of the
// blocks free. An evicted request starts again from nothing (recompute), or, with
// preemption_mode_swap, keeps its blocks in host memory and comes back ahead of
// everyone who waits. Under the policy "priority" the head of the queue may, on a
// step without an admission, push out running requests of lower priority; it is
// then admitted in a later step.
//
// Prefix caching here: blocks become hits only when their step has run, and free
// ones are evicted by the step of their last use, of equals the one deepest in
// its prompt first.
//
// Source  vLLM of 2025-08-10, as described in engine/README.md.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/stepwise.h"
#include "engine/vllm_v0_blocks.h"

namespace kneepoint::engine {

class VllmV0 final : public Stepwise {
 public:
  VllmV0(const SchedulerConfig& config, BlockKeySource& keys);

  [[nodiscard]] std::int64_t blocks_needed_by_head() const override;
  [[nodiscard]] RequestId waiting_head() const override;

 private:
  void plan_requests(StepPlan& plan) override;
  void give_up_blocks(Request& request) override;
  void on_computed(Request& request) override { blocks_.register_computed(request); }
  [[nodiscard]] std::int64_t num_elsewhere() const override { return static_cast<std::int64_t>(swapped_.size()); }
  [[nodiscard]] bool leave_elsewhere(Slot slot) override;
  [[nodiscard]] std::int64_t free_blocks() const override { return blocks_.num_free(); }
  [[nodiscard]] std::int64_t usable_blocks() const override { return blocks_.num_blocks(); }

  void plan_prefill_first(StepPlan& plan);
  void plan_chunked(StepPlan& plan);
  [[nodiscard]] std::int64_t admit_prompts(std::int64_t budget, StepPlan& plan);
  void plan_running(std::int64_t& budget, StepPlan& plan);
  void swap_in(std::int64_t& budget, StepPlan& plan);
  void evict(Slot slot, StepPlan& plan);
  void push_out_for_head(StepPlan& plan);
  void rebuild_running_order(std::size_t ran_before);
  [[nodiscard]] std::int32_t chunk_of(const Request& r, std::int64_t budget) const;

  bool chunked_;
  bool swaps_;
  SchedulingPolicy policy_;
  std::int64_t prompt_limit_;
  std::int64_t free_host_blocks_;
  std::int32_t watermark_blocks_;
  VllmV0Blocks blocks_;

  struct Swapped {
    Slot slot = kNoSlot;
    std::int32_t num_blocks = 0;  // In host memory.
  };
  std::deque<Swapped> swapped_;

  // Of the step being planned, for the order of running_ after it.
  std::vector<Slot> came_back_;
};

[[nodiscard]] std::unique_ptr<Scheduler> make_vllm_v0(const SchedulerConfig& config, BlockKeySource& keys);

}  // namespace kneepoint::engine
