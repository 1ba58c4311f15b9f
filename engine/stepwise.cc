#include "engine/stepwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/assert.hpp>

namespace kneepoint::engine {

Stepwise::Stepwise(std::string_view name, const SchedulerConfig& config)
    : max_num_batched_tokens_(config.max_num_scheduled_tokens.value_or(config.max_num_batched_tokens)),
      max_num_seqs_(static_cast<std::size_t>(
          std::min(config.max_num_active_seqs.value_or(config.max_num_seqs), config.max_num_seqs))),
      max_model_len_(static_cast<std::int32_t>(config.max_model_len)),
      block_size_(static_cast<std::int32_t>(config.block_size)),
      waiting_(config.policy) {
  const char* asks_for = batches_in_flight(config) != 1 ? "batches in flight (--no-async-scheduling, -pp 1)"
                         : config.spec_method != SpeculativeMethod::kNone ? "speculative decoding"
                         : config.sliding_window                          ? "a sliding window"
                                                                          : nullptr;
  if (asks_for != nullptr) {
    throw ConfigError(
        fmt::format("scheduler {} plans plain steps, one at a time: do without {}", name, asks_for));
  }
}

void Stepwise::add_request(const NewRequest& request) {
  const Slot slot = requests_.add(request);
  waiting_.push_back(slot, requests_[slot]);
}

void Stepwise::abort_request(RequestId id) {
  const Slot slot = requests_.find(id);
  if (slot == kNoSlot) {
    return;
  }
  const auto place = std::ranges::find(running_, slot);
  if (place != running_.end()) {
    running_.erase(place);
  } else if (!leave_elsewhere(slot)) {
    waiting_.remove(slot);
  }
  leave(slot);
}

// The request is out of every queue already.
void Stepwise::leave(Slot slot) {
  Request& r = requests_[slot];
  give_up_blocks(r);
  r.status = RequestStatus::kFinished;
  ended_.push_back(r.id);
  requests_.remove(slot);
}

void Stepwise::plan_step(StepPlan& plan) {
  BOOST_ASSERT_MSG(!in_flight_, "CLOCK_FORWARD: the step before has no result yet");
  in_flight_ = true;
  plan.clear();
  plan.step = ++step_;
  plan.finished.swap(ended_);
  planned_.clear();
  plan_requests(plan);
  if (plan.admission_stop != AdmissionStop::kQueueEmpty) {
    plan.not_admitted = waiting_.empty() ? kNoRequest : requests_[waiting_.front()].id;
  }
  for (Planned& planned : planned_) {
    ScheduledRequest& share = planned.share;
    plan.num_tokens += share.num_scheduled_tokens;
    if (share.kind == ScheduledKind::kRunning && share.num_scheduled_tokens == 1 && share.samples) {
      const std::int64_t context = share.num_computed_tokens + 1;
      ++plan.cohort.count;
      plan.cohort.context_sum += context;
      plan.cohort.context_max = std::max(plan.cohort.context_max, context);
    } else {
      plan.individual.push_back(share);
    }
  }
}

void Stepwise::schedule(Slot slot, std::int32_t tokens, ScheduledKind kind, std::int32_t cached_tokens) {
  Request& r = requests_[slot];
  Planned& planned = planned_.emplace_back();
  planned.slot = slot;
  planned.share = {.id = r.id,
                   .num_scheduled_tokens = tokens,
                   .num_computed_tokens = r.num_computed_tokens,
                   .num_cached_tokens = cached_tokens,
                   .kind = kind,
                   .has_output = r.num_output_tokens() > 0};
  r.num_computed_tokens += tokens;
  r.num_in_flight_tokens = tokens;
  r.mid_prefill = r.num_computed_tokens < r.num_tokens;
  planned.share.samples = !r.mid_prefill;
}

ScheduledKind Stepwise::start_head(std::int32_t cached_tokens) {
  const Slot slot = waiting_.pop_front();
  Request& r = requests_[slot];
  const bool resumed = r.num_preemptions > 0;
  (resumed ? stats_.resumed_query_tokens : stats_.query_tokens) += r.num_tokens;
  (resumed ? stats_.resumed_hit_tokens : stats_.hit_tokens) += cached_tokens;
  r.status = RequestStatus::kRunning;
  r.num_computed_tokens = cached_tokens;
  running_.push_back(slot);
  return resumed ? ScheduledKind::kResumed : ScheduledKind::kNew;
}

void Stepwise::recompute_later(Slot slot, StepPlan& plan) {
  Request& r = requests_[slot];
  give_up_blocks(r);
  r.status = RequestStatus::kPreempted;
  r.num_computed_tokens = 0;
  ++r.num_preemptions;
  waiting_.push_front(slot, r);
  plan.preempted.push_back(r.id);
}

void Stepwise::ignore_head(StepPlan& plan) {
  const Slot slot = waiting_.pop_front();
  plan.finished_reason.resize(plan.finished.size(), FinishReason::kNone);
  plan.finished.push_back(requests_[slot].id);
  plan.finished_reason.push_back(FinishReason::kIgnored);
  requests_.remove(slot);
}

void Stepwise::update(const StepResult& result, StepOutcome& outcome) {
  BOOST_ASSERT_MSG(in_flight_, "CLOCK_FORWARD: a result without a planned step");
  in_flight_ = false;
  outcome.clear();
  outcome.step = step_;
  for (std::size_t i = 0; i < result.exceptions.size(); ++i) {
    if (const Slot slot = requests_.find(result.exceptions[i].id); slot != kNoSlot) {
      requests_[slot].has_exception = true;
      requests_[slot].exception = static_cast<std::int32_t>(i);
    }
  }
  bool somebody_left = false;
  for (const Planned& planned : planned_) {
    Request& r = requests_[planned.slot];
    if (r.id != planned.share.id) {
      continue;  // Aborted while the step ran.
    }
    r.num_in_flight_tokens = 0;
    SampledTokens sampled{.id = r.id, .num_tokens = planned.share.samples ? 1 : 0};
    if (r.has_exception) {
      sampled = result.exceptions[static_cast<std::size_t>(r.exception)];
      r.has_exception = false;
    }
    on_computed(r);
    std::int32_t kept = 0;
    const FinishReason finish = append(r, sampled, kept);
    if (kept > 0) {
      outcome.emitted.push_back({r.id, kept, finish, outcome.num_emitted++});
    }
    if (finish != FinishReason::kNone) {
      leave(planned.slot);
      somebody_left = true;
    }
  }
  if (somebody_left) {
    std::erase_if(running_, [this](Slot slot) { return requests_[slot].id == kNoRequest; });
  }
}

FinishReason Stepwise::append(Request& r, const SampledTokens& sampled, std::int32_t& kept) const {
  BOOST_ASSERT_MSG(sampled.num_tokens <= 1, "CONSERVE_REQUESTS: more than one token without drafts");
  if (sampled.num_tokens == 0) {
    return FinishReason::kNone;
  }
  kept = 1;
  ++r.num_tokens;
  if (sampled.stop_at == 0) {
    return FinishReason::kStop;
  }
  return r.num_tokens >= max_model_len_ || r.num_output_tokens() >= r.max_tokens ? FinishReason::kLength
                                                                                 : FinishReason::kNone;
}

bool Stepwise::has_requests() const {
  return requests_.size() > 0 || !ended_.empty();
}

EngineLoad Stepwise::load() const {
  return {.num_running = static_cast<std::int64_t>(running_.size()),
          .num_waiting = waiting_.size() + num_elsewhere(),
          .free_blocks = free_blocks(),
          .usable_blocks = usable_blocks()};
}

RequestId Stepwise::waiting_head() const {
  return waiting_.empty() ? kNoRequest : requests_[waiting_.front()].id;
}

void Stepwise::for_each_scheduled(const std::function<void(const ScheduledRequest&)>& visit) const {
  for (const Planned& planned : planned_) {
    visit(planned.share);
  }
}

}  // namespace kneepoint::engine
