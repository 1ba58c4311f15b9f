// The waiting pass: admit from the head of the queue until something is short.
//
// What may be short, and what it is called in the plan, is AdmissionStop. Two
// kinds of requests are set aside instead of stopping the pass, so that others
// pass them: one whose output from before its preemption is still in flight, and
// one whose adapter has no slot in this step. They return to the front.
#include <algorithm>
#include <boost/assert.hpp>

#include "engine/vllm_v1.h"

namespace kneepoint::engine {

void VllmV1::plan_waiting(Limits& limits, StepPlan& plan, Batch& batch) {
  if (!plan.preempted.empty()) {
    plan.admission_stop = AdmissionStop::kPreempted;
    plan.not_admitted = waiting_head();
    return;
  }
  set_aside_.clear();
  plan.admission_stop = admit_from_queue(limits, batch);
  for (auto slot = set_aside_.rbegin(); slot != set_aside_.rend(); ++slot) {
    waiting_.push_front(*slot, requests_[*slot]);
  }
  if (plan.admission_stop != AdmissionStop::kQueueEmpty) {
    plan.not_admitted = waiting_head();
  }
  if (!limits.defers_prefills) {
    capacity_bound_ = waiting_.size() > waiting_.num_deferred();
  }
}

/// Admits whom it can. Returns what ended it: why the head stays, or why the first one set aside was.
AdmissionStop VllmV1::admit_from_queue(Limits& limits, Batch& batch) {
  adapters_.clear();
  bool decodes_only = true;
  for (const Planned& planned : batch.planned) {
    const Request& r = requests_[planned.slot];
    decodes_only = decodes_only && !r.mid_prefill;
    note_adapter(r.adapter);
  }
  const bool any_planned = !batch.planned.empty();
  AdmissionStop first_set_aside = AdmissionStop::kQueueEmpty;

  while (!waiting_.empty()) {
    if (left(limits) <= 0) {
      return AdmissionStop::kTokenBudget;
    }
    if (running_.size() >= max_num_active_seqs_) {
      return AdmissionStop::kMaxNumSeqs;
    }
    const Slot slot = waiting_.front();
    Request& r = requests_[slot];
    if (const AdmissionStop why = why_set_aside(r); why != AdmissionStop::kQueueEmpty) {
      static_cast<void>(waiting_.pop_front());
      r.deferred = true;
      if (set_aside_.empty()) {
        first_set_aside = why;
      }
      set_aside_.push_back(slot);
      continue;
    }
    Admission admission;
    admission.hit_tokens = kv_.find_hit(r, hit_);
    const AdmissionStop stop = size_admission(r, limits, decodes_only, any_planned, admission);
    if (stop != AdmissionStop::kQueueEmpty) {
      return stop;
    }
    if (!kv_.admit(r, hit_, admission.tokens, !running_.empty())) {
      return AdmissionStop::kKvBlocks;
    }
    static_cast<void>(waiting_.pop_front());
    admit(slot, admission, batch);
    spend(limits, admission.tokens);
  }
  return first_set_aside;
}

/// kQueueEmpty: no reason to.
AdmissionStop VllmV1::why_set_aside(const Request& r) const {
  if (r.num_stale_tokens > 0) {
    return AdmissionStop::kOutputInFlight;
  }
  const bool has_slot = r.adapter == 0 || adapters_.size() < max_loras_ ||
                        std::ranges::find(adapters_, r.adapter) != adapters_.end();
  return has_slot ? AdmissionStop::kQueueEmpty : AdmissionStop::kAdapterSlots;
}

/// How many tokens the head computes if admitted now, or why it is not (kQueueEmpty: it may be).
/// `decodes_only`: nobody planned so far was in the midst of its prompt before this step.
AdmissionStop VllmV1::size_admission(const Request& r, const Limits& limits, bool decodes_only,
                                     bool any_planned, Admission& admission) const {
  const std::int64_t most = left(limits);
  const std::int32_t hit = admission.hit_tokens;
  if (limits.defers_prefills && hit < r.num_tokens - 1) {
    return AdmissionStop::kThrottled;
  }
  std::int64_t tokens = r.num_tokens - hit;
  // A request that lacks a single token looks like a decode. Beside others that carry drafts it gets
  // as many, which are never accepted, so that the batch stays uniform.
  const bool pads = num_drafts_ > 0 && tokens == 1 && decodes_only && (any_planned || hit > 0) &&
                    hit + 1 + num_drafts_ + 1 <= max_model_len_;
  if (pads) {
    tokens = 1 + num_drafts_;
    if (tokens > most) {
      return AdmissionStop::kDraftRoom;
    }
    admission.drafts = num_drafts_;
  }
  if (limits.cap > 0) {
    tokens = std::min(tokens, limits.cap);
  }
  if (!chunked_prefill_ && tokens > most) {
    return AdmissionStop::kPromptTooLong;
  }
  admission.tokens = static_cast<std::int32_t>(std::min(tokens, most));
  return AdmissionStop::kQueueEmpty;
}

/// The head, already out of the queue and with its blocks, starts to run.
void VllmV1::admit(Slot slot, const Admission& admission, Batch& batch) {
  Request& r = requests_[slot];
  if (kv_.caching()) {
    const bool resumed = r.num_preemptions > 0;
    (resumed ? stats_.resumed_query_tokens : stats_.query_tokens) += r.num_tokens;
    (resumed ? stats_.resumed_hit_tokens : stats_.hit_tokens) += admission.hit_tokens;
  }
  r.order = next_order_++;
  r.num_computed_tokens = admission.hit_tokens;
  Planned& planned = put_into(batch, slot, admission.tokens);
  planned.share.num_cached_tokens = admission.hit_tokens;
  planned.share.num_draft_tokens = admission.drafts;
  planned.share.drafts_padded = admission.drafts > 0;
  planned.share.kind = r.status == RequestStatus::kPreempted ? ScheduledKind::kResumed : ScheduledKind::kNew;
  note_adapter(r.adapter);
  r.status = RequestStatus::kRunning;
  r.deferred = false;
  running_.push_back(slot);
  if (keeps_cohort_) {
    loose_.push_back(slot);
  }
}

/// The base model needs no slot.
void VllmV1::note_adapter(AdapterId adapter) {
  if (adapter != 0 && std::ranges::find(adapters_, adapter) == adapters_.end()) {
    adapters_.push_back(adapter);
  }
}

}  // namespace kneepoint::engine
