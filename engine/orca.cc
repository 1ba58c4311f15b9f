#include "engine/orca.h"

#include <algorithm>
#include <bit>

namespace kneepoint::engine {

Orca::Orca(const SchedulerConfig& config)
    : Stepwise("orca", config),
      reserve_(config.orca_reserve),
      pool_(static_cast<std::int32_t>(config.num_blocks)) {
  if (config.enable_prefix_caching) {
    throw ConfigError(
        "scheduler orca reserves room for each request by itself: add --no-enable-prefix-caching");
  }
}

void Orca::plan_requests(StepPlan& plan) {
  for (const Slot slot : running_) {
    schedule(slot, 1, ScheduledKind::kRunning);
  }
  plan.admission_stop = admit_from_queue();
}

AdmissionStop Orca::admit_from_queue() {
  while (!waiting_.empty()) {
    if (running_.size() >= max_num_seqs_) {
      return AdmissionStop::kMaxNumSeqs;
    }
    const Slot slot = waiting_.front();
    Request& r = requests_[slot];
    const std::int32_t blocks = reserved_blocks(r);
    if (blocks > pool_.num_free()) {
      return AdmissionStop::kKvBlocks;
    }
    for (std::int32_t i = 0; i < blocks; ++i) {
      r.blocks.push_back(pool_.take());
    }
    const ScheduledKind kind = start_head(0);
    schedule(slot, r.num_tokens, kind);
  }
  return AdmissionStop::kQueueEmpty;
}

std::int32_t Orca::reserved_blocks(const Request& r) const {
  std::int32_t answer = max_model_len_;
  if (reserve_ == OrcaReserve::kOracle) {
    answer = r.reserve_output_tokens;
  } else if (reserve_ == OrcaReserve::kPow2) {
    answer = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(r.reserve_output_tokens)));
  }
  answer = std::min(answer, max_model_len_ - r.prompt_tokens);
  return blocks_for(r.prompt_tokens + answer, block_size_);
}

void Orca::give_up_blocks(Request& request) {
  pool_.free_tail_first(request.blocks);
  request.blocks.clear();
}

std::int64_t Orca::blocks_needed_by_head() const {
  return waiting_.empty() ? 0 : reserved_blocks(requests_[waiting_.front()]);
}

std::unique_ptr<Scheduler> make_orca(const SchedulerConfig& config, BlockKeySource& /*keys*/) {
  return std::make_unique<Orca>(config);
}

}  // namespace kneepoint::engine
