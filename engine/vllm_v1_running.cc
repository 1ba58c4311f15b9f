// The running pass: everyone who runs takes what it lacks, in order of admission.
//
// A request that finds no block makes others give up theirs: under "fcfs" the
// last of those who run, under "priority" the least urgent, who may have been
// planned a moment ago. If it must give up its own, the pass ends.
#include <algorithm>
#include <boost/assert.hpp>
#include <utility>

#include "engine/vllm_v1.h"

namespace kneepoint::engine {

void VllmV1::plan_running(Limits& limits, StepPlan& plan, Batch& batch) {
  std::size_t position = 0;
  while (position < running_.size() && left(limits) > 0) {
    const Slot slot = running_[position];
    Request& r = requests_[slot];
    const std::int32_t tokens = sits_out(r, limits) ? 0 : gap_to_close(r, limits);
    if (tokens <= 0) {
      ++position;  // Later requests may pass it.
      continue;
    }
    while (!kv_.extend(r, tokens)) {
      const Slot victim = take_victim(position, limits, batch);
      preempt(victim, plan);
      if (victim == slot) {
        return;
      }
    }
    const std::int32_t beyond_known =
        r.num_computed_tokens + tokens - r.num_tokens - r.num_output_placeholders;
    Planned& planned = put_into(batch, slot, tokens);
    planned.share.num_draft_tokens = std::clamp(beyond_known, 0, r.num_draft_tokens);
    r.num_draft_tokens = 0;
    spend(limits, tokens);
    ++position;
  }
}

/// Whether a request is left out of this step although it has something to compute.
bool VllmV1::sits_out(const Request& r, const Limits& limits) const {
  // With its last token in flight already, another decode would be wasted.
  const bool ends_in_flight =
      r.num_output_placeholders > 0 &&
      r.num_computed_tokens + 2 - r.num_output_placeholders >= r.prompt_tokens + r.max_tokens;
  return ends_in_flight || step_ < r.next_eligible_step || (limits.defers_prefills && r.mid_prefill);
}

std::int32_t VllmV1::gap_to_close(const Request& r, const Limits& limits) const {
  std::int64_t tokens = r.num_tokens + r.num_draft_tokens + r.num_output_placeholders - r.num_computed_tokens;
  if (limits.cap > 0) {
    tokens = std::min(tokens, limits.cap);
  }
  tokens = std::min(tokens, left(limits));
  tokens = std::min<std::int64_t>(tokens, max_model_len_ - r.num_computed_tokens - 1);
  return static_cast<std::int32_t>(tokens);
}

/// Chooses who gives up its blocks and takes it out of running_ and of the plan; `position` keeps
/// pointing at the same request.
Slot VllmV1::take_victim(std::size_t& position, Limits& limits, Batch& batch) {
  if (policy_ == SchedulingPolicy::kFcfs) {
    const Slot last = running_.back();
    running_.pop_back();
    return last;
  }
  // max_element finds the first of equals: the id breaks no tie here.
  const auto least_urgent = std::ranges::max_element(running_, {}, [this](Slot slot) {
    return std::pair{requests_[slot].priority, requests_[slot].arrival};
  });
  const Slot victim = *least_urgent;
  if (static_cast<std::size_t>(least_urgent - running_.begin()) < position) {
    --position;
  }
  running_.erase(least_urgent);
  const auto planned = std::ranges::find(batch.planned, victim, &Planned::slot);
  if (planned != batch.planned.end()) {
    give_back(limits, planned->share.num_scheduled_tokens);
    batch.planned.erase(planned);
  }
  return victim;
}

void VllmV1::preempt(Slot slot, StepPlan& plan) {
  Request& r = requests_[slot];
  std::erase(loose_, slot);
  kv_.release_for_now(r);
  r.status = RequestStatus::kPreempted;
  r.num_computed_tokens = 0;
  r.num_draft_tokens = 0;
  r.num_stale_tokens = r.num_in_flight_tokens;
  r.num_output_placeholders = 0;
  ++r.num_preemptions;
  waiting_.push_front(slot, r);
  plan.preempted.push_back(r.id);
}

}  // namespace kneepoint::engine
