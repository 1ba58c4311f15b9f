#include "engine/vllm_v1.h"

#include <algorithm>
#include <boost/assert.hpp>

namespace kneepoint::engine {

VllmV1::VllmV1(const SchedulerConfig& config, BlockKeySource& keys)
    : max_num_batched_tokens_(config.max_num_batched_tokens),
      max_num_scheduled_tokens_(config.max_num_scheduled_tokens.value_or(config.max_num_batched_tokens)),
      max_num_active_seqs_(static_cast<std::size_t>(
          std::min(config.max_num_active_seqs.value_or(config.max_num_seqs), config.max_num_seqs))),
      max_loras_(static_cast<std::size_t>(config.max_loras)),
      max_model_len_(static_cast<std::int32_t>(config.max_model_len)),
      long_prefill_token_threshold_(config.long_prefill_token_threshold),
      long_prefill_adaptive_(config.long_prefill_token_threshold_adaptive),
      chunked_prefill_(config.enable_chunked_prefill),
      prefill_schedule_interval_(config.prefill_schedule_interval),
      policy_(config.policy),
      async_(config.async_scheduling),
      decode_spacing_(config.async_scheduling && config.use_v2_model_runner ? config.pipeline_parallel_size
                                                                            : 0),
      num_drafts_(static_cast<std::int32_t>(config.num_speculative_tokens)),
      draft_slots_(draft_slots(config)),
      keeps_cohort_(can_keep_cohort(config)),
      waiting_(config.policy),
      kv_(config, keys),
      batches_(static_cast<std::size_t>(batches_in_flight(config))),
      cohort_(static_cast<std::int32_t>(config.block_size)) {}

bool VllmV1::preset_free_queue(std::span<const FreeBlock> queue) {
  kv_.preset_free_queue(queue);
  return true;
}

void VllmV1::add_request(const NewRequest& request) {
  BOOST_ASSERT_MSG(
      request.prompt_tokens >= 1 && request.prompt_tokens < max_model_len_ && request.max_tokens >= 1,
      "CONSERVE_REQUESTS: a request is checked before it arrives");
  const Slot slot = requests_.add(request);
  kv_.meet(requests_[slot]);
  waiting_.push_back(slot, requests_[slot]);
}

void VllmV1::abort_request(RequestId id) {
  const Slot slot = requests_.find(id);
  if (slot == kNoSlot) {
    return;
  }
  if (requests_[slot].status == RequestStatus::kRunning) {
    dissolve_cohort(&CohortUse::for_abort);
    leave_running(slot);
  }
  leave(slot);
}

/// Gives up everything the request has but its place in running_, which the caller closes.
void VllmV1::leave(Slot slot) {
  Request& r = requests_[slot];
  if (r.status != RequestStatus::kRunning) {
    waiting_.remove(slot);
  }
  kv_.release(r);
  r.status = RequestStatus::kFinished;
  ended_.push_back(r.id);
  requests_.remove(slot);
}

void VllmV1::plan_step(StepPlan& plan) {
  BOOST_ASSERT_MSG(num_in_flight_ < batches_.size(),
                   "CLOCK_FORWARD: planned more steps than may be in flight");
  ++step_;
  plan.clear();
  plan.step = step_;
  newest_ = (oldest_ + num_in_flight_) % batches_.size();
  ++num_in_flight_;
  Batch& batch = batches_[newest_];
  batch.step = step_;
  batch.planned.clear();
  batch.num_unwalked = 0;
  batch.joined.clear();

  Limits limits = begin_step();
  ++next_turn_;
  if (!plan_cohort(limits, plan, batch)) {
    plan_running(limits, plan, batch);
  }
  plan_waiting(limits, plan, batch);
  note_paused(plan, batch);
  finish_plan(plan, batch);
}

VllmV1::Limits VllmV1::begin_step() const {
  Limits limits;
  limits.budget = max_num_scheduled_tokens_;
  limits.room = max_num_batched_tokens_;
  const std::int64_t known = static_cast<std::int64_t>(running_.size()) + waiting_.size();
  if (long_prefill_token_threshold_ > 0 && known > 1) {
    limits.cap = long_prefill_token_threshold_;
    if (long_prefill_adaptive_) {
      limits.cap = std::max(limits.cap, max_num_batched_tokens_ / known);
    }
  }
  const bool throttled = next_turn_ % prefill_schedule_interval_ != 0;
  limits.defers_prefills = throttled && !capacity_bound_ && std::ranges::any_of(running_, [this](Slot slot) {
                             return !requests_[slot].mid_prefill;
                           });
  return limits;
}

/// Tokens that the next request may get; each costs its tokens of `budget`, and its draft slots of `room`.
std::int64_t VllmV1::left(const Limits& limits) const {
  return std::min(limits.budget, limits.room - draft_slots_);
}

void VllmV1::spend(Limits& limits, std::int64_t tokens) const {
  limits.budget -= tokens;
  limits.room -= tokens + draft_slots_;
}

void VllmV1::give_back(Limits& limits, std::int64_t tokens) const {
  limits.budget += tokens;
  limits.room += tokens + draft_slots_;
}

/// The request computes so many tokens in the step, after those it has computed.
VllmV1::Planned& VllmV1::put_into(Batch& batch, Slot slot, std::int32_t tokens) {
  const Request& r = requests_[slot];
  Planned& planned = batch.planned.emplace_back();
  planned.slot = slot;
  planned.order = r.order;
  planned.share.id = r.id;
  planned.share.num_scheduled_tokens = tokens;
  planned.share.num_computed_tokens = r.num_computed_tokens;
  return planned;
}

/// Counts the planned tokens as computed, and tells the plan.
void VllmV1::finish_plan(StepPlan& plan, Batch& batch) {
  fresh_.clear();
  for (Planned& planned : batch.planned) {
    ScheduledRequest& share = planned.share;
    Request& r = requests_[planned.slot];
    share.has_output = r.num_output_tokens() + r.num_output_placeholders > 0;
    r.num_computed_tokens += share.num_scheduled_tokens;
    r.num_in_flight_tokens += share.num_scheduled_tokens;
    r.mid_prefill = r.num_computed_tokens < r.num_tokens + r.num_output_placeholders;
    share.samples = !r.mid_prefill;
    if (async_ && share.samples) {
      r.num_output_placeholders += 1 + share.num_draft_tokens;
      r.num_draft_tokens = num_drafts_;
      r.next_eligible_step = step_ + decode_spacing_;
    }
    if (keeps_cohort_ && share.samples && !r.may_stop && r.adapter == 0) {
      fresh_.push_back(planned);
    }
    plan.num_tokens += share.num_scheduled_tokens;
    if (share.kind == ScheduledKind::kRunning && share.num_scheduled_tokens == 1 && share.samples &&
        share.num_draft_tokens == 0) {
      const std::int64_t context = share.num_computed_tokens + 1;
      ++plan.cohort.count;
      plan.cohort.context_sum += context;
      plan.cohort.context_max = std::max(plan.cohort.context_max, context);
    } else {
      plan.individual.push_back(share);
    }
  }
  use_.walked += keeps_cohort_ && plan.num_unwalked == 0 && plan.cohort.count > 0 ? 1 : 0;
  plan.finished.swap(ended_);
  ended_.clear();
  admission_stop_ = plan.admission_stop;
}

bool VllmV1::has_requests() const {
  return requests_.size() > 0 || !ended_.empty();
}

EngineLoad VllmV1::load() const {
  return {.num_running = static_cast<std::int64_t>(running_.size()),
          .num_waiting = waiting_.size(),
          .free_blocks = kv_.pool().num_free(),
          .usable_blocks = kv_.pool().num_usable()};
}

std::int64_t VllmV1::blocks_needed_by_head() const {
  if (waiting_.empty()) {
    return 0;
  }
  const Request& head = requests_[waiting_.front()];
  const Limits limits = begin_step();
  std::int64_t first_chunk = std::min<std::int64_t>(head.num_tokens, left(limits));
  if (limits.cap > 0) {
    first_chunk = std::min(first_chunk, limits.cap);
  }
  return kv_.blocks_on_empty_pool(head, static_cast<std::int32_t>(first_chunk));
}

RequestId VllmV1::waiting_head() const {
  return waiting_.empty() ? kNoRequest : requests_[waiting_.front()].id;
}

void VllmV1::for_each_walked(const std::function<void(const ScheduledRequest&)>& visit) const {
  for (const Planned& planned : batches_[newest_].planned) {
    visit(planned.share);
  }
}

void VllmV1::for_each_scheduled(const std::function<void(const ScheduledRequest&)>& visit) const {
  const Batch& batch = batches_[newest_];
  auto walked = batch.planned.begin();
  if (batch.num_unwalked > 0) {
    for (const CohortMember& member : cohort_.members()) {
      for (; walked != batch.planned.end() && walked->order < member.order; ++walked) {
        visit(walked->share);
      }
      visit(spell_out(member, batch.step).share);
    }
  }
  for (; walked != batch.planned.end(); ++walked) {
    visit(walked->share);
  }
}

std::vector<RequestId> VllmV1::running() const {
  std::vector<RequestId> ids;
  for (const Slot slot : running_) {
    ids.push_back(requests_[slot].id);
  }
  return ids;
}

std::vector<VllmV1::Waiting> VllmV1::waiting() const {
  std::vector<Waiting> all;
  for (const Slot slot : waiting_.in_order()) {
    all.push_back({requests_[slot].id, requests_[slot].deferred});
  }
  return all;
}

std::span<const BlockId> VllmV1::block_table(RequestId id) const {
  const Slot slot = requests_.find(id);
  return slot == kNoSlot ? std::span<const BlockId>{} : std::span<const BlockId>{requests_[slot].blocks};
}

std::unique_ptr<Scheduler> make_vllm_v1(const SchedulerConfig& config, BlockKeySource& keys) {
  return std::make_unique<VllmV1>(config, keys);
}

}  // namespace kneepoint::engine
