// orca: scheduling by iteration, whole prompts, KV room reserved up front.
//
// Each iteration computes the whole prompt of whoever has just been admitted and
// one token of everyone else. A request is admitted, first come first served,
// only if the KV slots of its longest possible answer are free, and keeps them
// until it ends; so nothing is ever preempted, and much of the memory is held
// for tokens that never come.
//
//     --orca-reserve max     up to max_model_len (the default)
//     --orca-reserve pow2    the answer's true length, rounded up to a power of two
//     --orca-reserve oracle  the answer's true length
//
// The last two cheat: the simulation tells them the length
// (NewRequest::reserve_output_tokens). There is no token budget; max_num_seqs is
// the batch size.
//
// Source  G.-I. Yu et al., "Orca: A Distributed Serving System for Transformer-
//         Based Generative Models", OSDI 2022, algorithm 1; the three reserves as
//         in W. Kwon et al., "Efficient Memory Management for LLM Serving with
//         PagedAttention", SOSP 2023, section 6.1.
#pragma once

#include <memory>

#include "engine/block_pool.h"
#include "engine/stepwise.h"

namespace kneepoint::engine {

class Orca final : public Stepwise {
 public:
  explicit Orca(const SchedulerConfig& config);

  [[nodiscard]] std::int64_t blocks_needed_by_head() const override;

 private:
  void plan_requests(StepPlan& plan) override;
  void give_up_blocks(Request& request) override;
  [[nodiscard]] std::int64_t free_blocks() const override { return pool_.num_free(); }
  [[nodiscard]] std::int64_t usable_blocks() const override { return pool_.num_usable(); }

  [[nodiscard]] std::int32_t reserved_blocks(const Request& r) const;
  [[nodiscard]] AdmissionStop admit_from_queue();

  OrcaReserve reserve_;
  BlockPool pool_;
};

[[nodiscard]] std::unique_ptr<Scheduler> make_orca(const SchedulerConfig& config, BlockKeySource& keys);

}  // namespace kneepoint::engine
