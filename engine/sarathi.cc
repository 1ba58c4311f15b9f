#include "engine/sarathi.h"

#include <algorithm>

namespace kneepoint::engine {

Sarathi::Sarathi(const SchedulerConfig& config)
    : Stepwise("sarathi", config),
      pool_(static_cast<std::int32_t>(config.num_blocks)),
      watermark_blocks_(
          static_cast<std::int32_t>(config.watermark * static_cast<double>(config.num_blocks))) {
  if (config.enable_prefix_caching) {
    throw ConfigError("scheduler sarathi shares no prefixes: add --no-enable-prefix-caching");
  }
}

void Sarathi::plan_requests(StepPlan& plan) {
  std::int64_t budget = max_num_batched_tokens_;
  plan_decodes(budget, plan);
  const bool chunk_planned = plan_running_chunk(budget);
  if (!plan.preempted.empty()) {
    plan.admission_stop = AdmissionStop::kPreempted;
  } else if (!waiting_.empty()) {
    plan.admission_stop = chunk_planned || budget <= 0 ? AdmissionStop::kTokenBudget : admit_one(budget);
  }
}

// Blocks for the first `tokens` tokens, leaving `spare` in the pool; false: none were taken.
bool Sarathi::grow(Request& r, std::int32_t tokens, std::int32_t spare) {
  const std::int32_t missing = blocks_for(tokens, block_size_) - static_cast<std::int32_t>(r.blocks.size());
  if (missing > 0 && missing > pool_.num_free() - spare) {
    return false;
  }
  for (std::int32_t i = 0; i < missing; ++i) {
    r.blocks.push_back(pool_.take());
  }
  return true;
}

// A block for the next token if it needs one, at the cost of those behind; false: `slot` itself had to go.
bool Sarathi::make_room(Slot slot, StepPlan& plan) {
  while (!grow(requests_[slot], requests_[slot].num_tokens, 0)) {
    const Slot victim = running_.back();
    running_.pop_back();
    recompute_later(victim, plan);
    if (victim == slot) {
      return false;
    }
  }
  return true;
}

void Sarathi::plan_decodes(std::int64_t& budget, StepPlan& plan) {
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const Slot slot = running_[i];
    if (decodes(requests_[slot]) && make_room(slot, plan)) {
      schedule(slot, 1, ScheduledKind::kRunning);
      --budget;
    }
  }
}

// Its blocks are there already. At most one prompt is unfinished at a time.
bool Sarathi::plan_running_chunk(std::int64_t budget) {
  const auto unfinished = std::ranges::find_if(running_, [this](Slot slot) {
    return requests_[slot].num_computed_tokens < requests_[slot].num_tokens - 1;
  });
  if (unfinished == running_.end() || budget <= 0) {
    return false;
  }
  const Request& r = requests_[*unfinished];
  schedule(*unfinished,
           static_cast<std::int32_t>(std::min<std::int64_t>(budget, r.num_tokens - r.num_computed_tokens)),
           ScheduledKind::kRunning);
  return true;
}

// The head's first chunk is the chunk of this step.
AdmissionStop Sarathi::admit_one(std::int64_t budget) {
  if (running_.size() >= max_num_seqs_) {
    return AdmissionStop::kMaxNumSeqs;
  }
  const Slot slot = waiting_.front();
  Request& r = requests_[slot];
  if (!grow(r, r.num_tokens, running_.empty() ? 0 : watermark_blocks_)) {
    return AdmissionStop::kKvBlocks;
  }
  const ScheduledKind kind = start_head(0);
  schedule(slot, static_cast<std::int32_t>(std::min<std::int64_t>(budget, r.num_tokens)), kind);
  return waiting_.empty() ? AdmissionStop::kQueueEmpty : AdmissionStop::kTokenBudget;
}

void Sarathi::give_up_blocks(Request& request) {
  pool_.free_tail_first(request.blocks);
  request.blocks.clear();
}

std::int64_t Sarathi::blocks_needed_by_head() const {
  return waiting_.empty() ? 0 : blocks_for(requests_[waiting_.front()].num_tokens, block_size_);
}

std::unique_ptr<Scheduler> make_sarathi(const SchedulerConfig& config, BlockKeySource& /*keys*/) {
  return std::make_unique<Sarathi>(config);
}

}  // namespace kneepoint::engine
