// sarathi: decodes first, then one chunk of one prompt, up to a token budget.
//
// A prompt as long as the budget would stall every decode for the length of its
// prefill. Sarathi packs all decodes into each step first and fills what is left
// of the budget with a chunk of the oldest unfinished prompt, so no decode ever
// waits for a prefill and the step's length is bounded.
//
//     budget 8; a decodes, b brings 10 tokens, c brings 4
//     step 0   a:1 b:7
//     step 1   a:1 b:3          one chunk a step: c waits although 4 tokens are left
//     step 2   a:1 b:1 c:4
//
// A prompt's blocks are all taken when it is admitted. Who finds no block for a
// decode evicts the last of those who run, which starts again from its prompt
// (recompute), as in the system it was built into.
//
// Source  A. Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference
//         with Sarathi-Serve", OSDI 2024, section 4 and algorithm 3.
#pragma once

#include <memory>

#include "engine/block_pool.h"
#include "engine/stepwise.h"

namespace kneepoint::engine {

class Sarathi final : public Stepwise {
 public:
  explicit Sarathi(const SchedulerConfig& config);

  [[nodiscard]] std::int64_t blocks_needed_by_head() const override;

 private:
  void plan_requests(StepPlan& plan) override;
  void give_up_blocks(Request& request) override;
  [[nodiscard]] std::int64_t free_blocks() const override { return pool_.num_free(); }
  [[nodiscard]] std::int64_t usable_blocks() const override { return pool_.num_usable(); }

  [[nodiscard]] bool grow(Request& r, std::int32_t tokens, std::int32_t spare);
  [[nodiscard]] bool make_room(Slot slot, StepPlan& plan);
  void plan_decodes(std::int64_t& budget, StepPlan& plan);
  [[nodiscard]] bool plan_running_chunk(std::int64_t budget);
  [[nodiscard]] AdmissionStop admit_one(std::int64_t budget);

  BlockPool pool_;
  std::int32_t watermark_blocks_;
};

[[nodiscard]] std::unique_ptr<Scheduler> make_sarathi(const SchedulerConfig& config, BlockKeySource& keys);

}  // namespace kneepoint::engine
