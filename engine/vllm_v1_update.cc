// What a step's result means: tokens appended one by one, each tested for the end.
//
// Planning counted every planned token as computed, drafts included; here the
// rejected ones are taken back. Output of a step that was planned before its
// request was preempted ("stale") is still delivered, but nothing is taken back
// for it, as the preemption already reset all counts.
#include <algorithm>
#include <boost/assert.hpp>

#include "engine/vllm_v1.h"

namespace kneepoint::engine {

void VllmV1::update(const StepResult& result, StepOutcome& outcome) {
  BOOST_ASSERT_MSG(num_in_flight_ > 0, "CLOCK_FORWARD: a result without a planned step");
  const Batch& batch = batches_[oldest_];
  outcome.clear();
  outcome.step = batch.step;

  std::size_t unclaimed = attach_exceptions(result);
  eject_ended(batch.step);
  for (const Planned& planned : batch.planned) {
    if (requests_[planned.slot].id != planned.share.id) {
      continue;  // Aborted, or ended by an earlier result, while this step was in flight.
    }
    unclaimed -= requests_[planned.slot].has_exception ? 1 : 0;
    take_output(planned, claim_sample(planned, result), outcome);
  }
  BOOST_ASSERT_MSG(unclaimed == 0,
                   "CONSERVE_REQUESTS: a result names a live request that was not in the step");
  outcome.num_emitted = static_cast<std::int64_t>(outcome.emitted.size()) + batch.num_unwalked;
  for (const Planned& joined : batch.joined) {
    outcome.joined.push_back(joined.share.id);
  }
  cohort_updated_ = batch.step;
  if (!async_ && num_drafts_ > 0) {
    offer_drafts(batch);
  }
  oldest_ = (oldest_ + 1) % batches_.size();
  --num_in_flight_;
}

/// Leaves each exception with its request; returns how many found theirs alive.
std::size_t VllmV1::attach_exceptions(const StepResult& result) {
  std::size_t attached = 0;
  for (std::size_t i = 0; i < result.exceptions.size(); ++i) {
    const Slot slot = requests_.find(result.exceptions[i].id);
    if (slot != kNoSlot) {
      if (requests_[slot].joined != kNotMember) {
        dissolve_cohort(&CohortUse::for_result);
      }
      requests_[slot].has_exception = true;
      requests_[slot].exception = static_cast<std::int32_t>(i);
      ++attached;
    }
  }
  return attached;
}

SampledTokens VllmV1::claim_sample(const Planned& planned, const StepResult& result) {
  Request& r = requests_[planned.slot];
  if (!r.has_exception) {
    return {.id = r.id, .num_tokens = planned.share.samples ? 1 : 0};
  }
  r.has_exception = false;
  return result.exceptions[static_cast<std::size_t>(r.exception)];
}

void VllmV1::take_output(const Planned& planned, const SampledTokens& sampled, StepOutcome& outcome) {
  Request& r = requests_[planned.slot];
  const bool stale = r.num_stale_tokens > 0;
  r.num_in_flight_tokens -= planned.share.num_scheduled_tokens;
  if (stale) {
    r.num_stale_tokens -= planned.share.num_scheduled_tokens;
  }
  if (const std::int32_t drafts = planned.share.num_draft_tokens;
      drafts > 0 && sampled.num_tokens > 0 && !stale) {
    const std::int32_t rejected = drafts - (sampled.num_tokens - 1);
    BOOST_ASSERT_MSG(rejected >= 0, "CONSERVE_REQUESTS: more drafts accepted than were planned");
    r.num_computed_tokens -= r.num_computed_tokens > 0 ? rejected : 0;
    r.num_output_placeholders -= r.num_output_placeholders > 0 ? rejected : 0;
  }
  std::int32_t kept = 0;
  const FinishReason finish = append_tokens(r, sampled, kept);
  if (async_ && !stale) {
    r.num_output_placeholders -= kept;
    if (r.status == RequestStatus::kRunning) {
      kv_.register_full_blocks(r, r.num_computed_tokens - r.num_output_placeholders);
    }
  }
  if (kept > 0) {
    const auto listed = static_cast<std::int64_t>(outcome.emitted.size());
    outcome.emitted.push_back({r.id, kept, finish, listed + unwalked_before(planned.order)});
  }
  if (finish != FinishReason::kNone) {
    if (r.status == RequestStatus::kRunning) {
      leave_running(planned.slot);
    }
    leave(planned.slot);
  }
}

FinishReason VllmV1::append_tokens(Request& r, const SampledTokens& sampled, std::int32_t& kept) const {
  for (kept = 0; kept < sampled.num_tokens;) {
    const bool stops = kept == sampled.stop_at;
    ++kept;
    ++r.num_tokens;
    if (stops) {
      return FinishReason::kStop;
    }
    if (r.num_tokens >= max_model_len_ || r.num_output_tokens() >= r.max_tokens) {
      return FinishReason::kLength;
    }
  }
  return FinishReason::kNone;
}

/// Synchronous drafting: everyone in the step whose prompt is done proposes as many tokens for the next.
void VllmV1::offer_drafts(const Batch& batch) {
  for (const Planned& planned : batch.planned) {
    Request& r = requests_[planned.slot];
    if (r.id == planned.share.id) {
      r.num_draft_tokens = r.mid_prefill ? 0 : num_drafts_;
    }
  }
}

}  // namespace kneepoint::engine
