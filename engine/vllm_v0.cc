#include "engine/vllm_v0.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/assert.hpp>
#include <utility>

namespace kneepoint::engine {
namespace {

// Share of the blocks that admission leaves free, unless --watermark says otherwise.
constexpr double kWatermark = 0.01;

std::int32_t watermark_of(const SchedulerConfig& config) {
  const double share = config.watermark > 0 ? config.watermark : kWatermark;
  return static_cast<std::int32_t>(share * static_cast<double>(config.num_blocks));
}

}  // namespace

VllmV0::VllmV0(const SchedulerConfig& config, BlockKeySource& keys)
    : Stepwise("vllm-v0", config),
      chunked_(config.enable_chunked_prefill),
      swaps_(config.preemption_mode_swap),
      policy_(config.policy),
      prompt_limit_(std::min(config.max_model_len, config.enable_chunked_prefill ? config.max_model_len
                                                                                  : max_num_batched_tokens_)),
      free_host_blocks_(config.num_cpu_blocks),
      watermark_blocks_(watermark_of(config)),
      blocks_(static_cast<std::int32_t>(config.num_blocks), block_size_, config.enable_prefix_caching, keys) {}

void VllmV0::plan_requests(StepPlan& plan) {
  came_back_.clear();
  chunked_ ? plan_chunked(plan) : plan_prefill_first(plan);
}

void VllmV0::plan_prefill_first(StepPlan& plan) {
  std::int64_t budget = max_num_batched_tokens_;
  const std::int64_t admitted = swapped_.empty() ? admit_prompts(budget, plan) : 0;
  if (admitted > 0) {
    return;  // A step of prompts only.
  }
  if (!swapped_.empty() && !waiting_.empty()) {
    plan.admission_stop = AdmissionStop::kPreempted;
  }
  if (policy_ == SchedulingPolicy::kPriority) {
    push_out_for_head(plan);
  }
  plan_running(budget, plan);
  if (plan.preempted.empty()) {
    swap_in(budget, plan);
  }
}

void VllmV0::plan_chunked(StepPlan& plan) {
  std::int64_t budget = max_num_batched_tokens_;
  plan_running(budget, plan);
  if (plan.preempted.empty()) {
    swap_in(budget, plan);
  }
  const std::size_t ran_before = running_.size();
  if (swapped_.empty()) {
    (void)admit_prompts(budget, plan);
  } else if (!waiting_.empty()) {
    plan.admission_stop = AdmissionStop::kPreempted;
  }
  rebuild_running_order(ran_before);
}

// Admits from the head while everything lasts; returns how many were.
std::int64_t VllmV0::admit_prompts(std::int64_t budget, StepPlan& plan) {
  std::int64_t admitted = 0;
  while (!waiting_.empty()) {
    const Slot slot = waiting_.front();
    Request& r = requests_[slot];
    const std::int32_t blocks = blocks_for(r.num_tokens, block_size_);
    if (r.num_tokens > prompt_limit_ || blocks_.num_blocks() - blocks < watermark_blocks_) {
      ignore_head(plan);
      continue;
    }
    if (blocks_.num_free() - blocks < watermark_blocks_) {
      plan.admission_stop = AdmissionStop::kKvBlocks;
      break;
    }
    if (running_.size() >= max_num_seqs_) {
      plan.admission_stop = AdmissionStop::kMaxNumSeqs;
      break;
    }
    if (budget <= 0 || (!chunked_ && r.num_tokens > budget)) {
      plan.admission_stop = AdmissionStop::kTokenBudget;
      break;
    }
    const std::int32_t hit = blocks_.take_whole(r);
    r.num_computed_tokens = hit;
    const std::int32_t tokens = chunk_of(r, budget);
    if (tokens == 0) {  // Less than a block of budget is left, and chunks are whole blocks.
      give_up_blocks(r);
      r.num_computed_tokens = 0;
      plan.admission_stop = AdmissionStop::kTokenBudget;
      break;
    }
    const ScheduledKind kind = start_head(hit);
    schedule(slot, tokens, kind, hit);
    budget -= tokens;
    ++admitted;
  }
  return admitted;
}

// What is left of the prompt, within the budget; part of a prompt is whole blocks if they are to be shared.
std::int32_t VllmV0::chunk_of(const Request& r, std::int64_t budget) const {
  const std::int32_t left = r.num_tokens - r.num_computed_tokens;
  if (left <= budget) {
    return left;
  }
  const auto part = static_cast<std::int32_t>(budget);
  return blocks_.caching() ? part / block_size_ * block_size_ : part;
}

void VllmV0::plan_running(std::int64_t& budget, StepPlan& plan) {
  for (std::size_t i = 0; i < running_.size() && budget > 0;) {
    const Slot slot = running_[i];
    Request& r = requests_[slot];
    const std::int32_t tokens = chunk_of(r, budget);
    if (tokens == 0) {
      return;
    }
    // The append check counts the block that the token is written to, new or not.
    bool stays = true;
    while (stays && decodes(r) && blocks_.num_free() < 1) {
      const Slot victim = running_.back();
      running_.pop_back();
      stays = victim != slot;
      evict(victim, plan);
    }
    if (!stays) {
      return;
    }
    blocks_.grow(r, r.num_computed_tokens + tokens);
    schedule(slot, tokens, ScheduledKind::kRunning);
    budget -= tokens;
    ++i;
  }
}

// Before: not in running_ any more, and not in this step.
void VllmV0::evict(Slot slot, StepPlan& plan) {
  Request& r = requests_[slot];
  if (!swaps_) {
    recompute_later(slot, plan);
    return;
  }
  const auto blocks = static_cast<std::int32_t>(r.blocks.size());
  if (blocks > free_host_blocks_) {
    throw ConfigError(fmt::format("swap space is full: {} blocks are to be swapped out and {} are free in host memory; "
                                  "give more --swap-space or preempt by recompute",
                                  blocks, free_host_blocks_));
  }
  free_host_blocks_ -= blocks;
  plan.blocks_swapped_out += blocks;
  plan.preempted.push_back(r.id);
  ++r.num_preemptions;
  blocks_.release(r, step_);
  swapped_.push_back({slot, blocks});
}

void VllmV0::swap_in(std::int64_t& budget, StepPlan& plan) {
  while (!swapped_.empty() && budget > 0 && running_.size() < max_num_seqs_) {
    const Swapped back = swapped_.front();
    Request& r = requests_[back.slot];
    const std::int32_t tokens = chunk_of(r, budget);
    // Its blocks, and the one that its next token touches.
    if (tokens == 0 || blocks_.num_free() - (back.num_blocks + 1) < watermark_blocks_) {
      return;
    }
    swapped_.pop_front();
    free_host_blocks_ += back.num_blocks;
    plan.blocks_swapped_in += back.num_blocks;
    blocks_.grow(r, std::max(back.num_blocks * block_size_, r.num_computed_tokens + tokens));
    running_.push_back(back.slot);
    came_back_.push_back(back.slot);
    schedule(back.slot, tokens, ScheduledKind::kRunning);
    budget -= tokens;
  }
}

// Running requests less urgent than the head make room for it, the least urgent
// first; the head itself is admitted in a later step.
void VllmV0::push_out_for_head(StepPlan& plan) {
  if (waiting_.empty()) {
    return;
  }
  const auto urgency = [this](Slot slot) {
    const Request& r = requests_[slot];
    return std::pair{r.priority, r.arrival};
  };
  const Slot head = waiting_.front();
  const std::int32_t blocks = blocks_for(requests_[head].num_tokens, block_size_);
  while (!running_.empty() && blocks_.num_free() - blocks < watermark_blocks_) {
    const auto least_urgent = std::ranges::max_element(running_, {}, urgency);
    if (urgency(*least_urgent) <= urgency(head)) {
      return;
    }
    const Slot victim = *least_urgent;
    running_.erase(least_urgent);
    evict(victim, plan);
  }
}

// Swapped-in, decodes, chunks that finish their prompt in this step, other chunks, new ones.
void VllmV0::rebuild_running_order(std::size_t ran_before) {
  const auto rank = [this](Slot slot) {
    const Request& r = requests_[slot];
    if (std::ranges::find(came_back_, slot) != came_back_.end()) {
      return 0;
    }
    if (r.num_in_flight_tokens == 1 && !r.mid_prefill) {
      return 1;
    }
    return r.mid_prefill ? 3 : 2;
  };
  std::ranges::stable_sort(running_.begin(), running_.begin() + static_cast<std::ptrdiff_t>(ran_before), {}, rank);
}

void VllmV0::give_up_blocks(Request& request) {
  const auto swapped = std::ranges::find_if(swapped_, [&](const Swapped& s) { return requests_[s.slot].id == request.id; });
  if (swapped != swapped_.end()) {
    free_host_blocks_ += swapped->num_blocks;
    swapped_.erase(swapped);
  }
  blocks_.release(request, step_);
}

bool VllmV0::leave_elsewhere(Slot slot) {
  // give_up_blocks() takes it out.
  return std::ranges::find(swapped_, slot, &Swapped::slot) != swapped_.end();
}

RequestId VllmV0::waiting_head() const {
  return swapped_.empty() ? Stepwise::waiting_head() : requests_[swapped_.front().slot].id;
}

std::int64_t VllmV0::blocks_needed_by_head() const {
  if (!swapped_.empty()) {  // See swap_in().
    return std::int64_t{swapped_.front().num_blocks} + 1 + watermark_blocks_;
  }
  return waiting_.empty() ? 0 : blocks_for(requests_[waiting_.front()].num_tokens, block_size_);
}

std::unique_ptr<Scheduler> make_vllm_v0(const SchedulerConfig& config, BlockKeySource& keys) {
  return std::make_unique<VllmV0>(config, keys);
}

}  // namespace kneepoint::engine
