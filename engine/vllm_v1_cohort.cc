// The cohort's part of a step: planned, and later answered, without a look at its members.
//
// A step may leave the cohort unwalked if walking would give each member one
// token and one block where it is due:
//
//     - the token budget reaches all of them, whatever the loose ones before
//       them take;
//     - the pool has a block for all who need one, so that nobody is preempted;
//     - the step before, and no other, is in flight when it is planned
//       asynchronously, none when it is planned synchronously: so each member's
//       last token is known by step number.
//
// If not, the cohort is dissolved: every member gets its own numbers back, in the
// batches in flight, too, and the step is planned the plain way. Who sampled in it
// may join again at the next.
//
// A member's life, asynchronously: its prompt ends in step j - 1 (walked), it joins
// in j, is planned in each step to its last, E, and answered for in each; while E is
// in flight it is ejected, so that E's result finds it walked, and it ends.
#include <algorithm>
#include <boost/assert.hpp>

#include "engine/vllm_v1.h"

namespace kneepoint::engine {

/// False: nothing is planned, the cohort is dissolved, and the running pass has to walk.
bool VllmV1::plan_cohort(Limits& limits, StepPlan& plan, Batch& batch) {
  if (!keeps_cohort_) {
    return false;
  }
  const std::size_t others_in_flight = num_in_flight_ - 1;  // This batch counts already.
  join_fresh(batch);
  eject_ended(step_ - 1);
  if (cohort_.empty()) {
    cohort_planned_ = step_;
    return false;  // Nothing to spare: all are loose.
  }
  Limits left_over = limits;
  if (others_in_flight != (async_ ? 1 : 0) || limits.defers_prefills || !size_loose(left_over)) {
    dissolve_cohort();
    batch.joined.clear();
    cohort_planned_ = step_;
    return false;
  }
  take_cohort_blocks(batch);
  limits = left_over;
  batch.num_unwalked = cohort_.size();
  plan.num_unwalked = cohort_.size();
  plan.num_tokens += cohort_.size();
  plan.cohort = {cohort_.size(), cohort_.context_sum(step_), cohort_.context_max(step_)};
  cohort_planned_ = step_;
  return true;
}

/// Those for whom the step before samples, and who lack nothing but that token, join.
void VllmV1::join_fresh(Batch& batch) {
  for (const Planned& fresh : fresh_) {
    Request& r = requests_[fresh.slot];
    if (r.id != fresh.share.id || r.status != RequestStatus::kRunning || r.order != fresh.order) {
      continue;
    }
    const std::int32_t known = r.num_tokens + r.num_output_placeholders;  // With the token in flight.
    const std::int32_t end = std::min(r.prompt_tokens + r.max_tokens, max_model_len_);
    if (known - r.num_computed_tokens != 1 || known >= end) {
      continue;
    }
    r.joined = step_;
    cohort_.add({.order = r.order,
                 .offset = r.num_computed_tokens + 1 - step_,
                 .last_step = step_ + end - known - 1,
                 .slot = fresh.slot});
    loose_.erase(std::ranges::lower_bound(loose_, r.order, {}, [this](Slot slot) { return requests_[slot].order; }));
    batch.joined.push_back(fresh);
  }
}

/// What each loose request gets, in order, between the members. False if a member would get nothing, or if
/// blocks are short.
bool VllmV1::size_loose(Limits& limits) {
  loose_tokens_.clear();
  std::int64_t passed = 0;  // Members served.
  std::int64_t blocks = static_cast<std::int64_t>(cohort_.begin_block(step_).size());
  const auto serve_members = [&](std::int64_t up_to) {
    const std::int64_t count = up_to - passed;
    passed = up_to;
    if (count > left(limits)) {
      return false;
    }
    limits.budget -= count;
    limits.room -= count;
    return true;
  };
  for (const Slot slot : loose_) {
    const Request& r = requests_[slot];
    if (!serve_members(cohort_.count_before(r.order))) {
      return false;
    }
    const std::int32_t tokens = left(limits) <= 0 || sits_out(r, limits) ? 0 : std::max(gap_to_close(r, limits), 0);
    loose_tokens_.push_back(tokens);
    if (tokens > 0) {
      blocks += kv_.blocks_to_extend(r, tokens);
      spend(limits, tokens);
    }
  }
  return serve_members(cohort_.size()) && blocks <= kv_.pool().num_free();
}

/// Blocks in the order in which walking would take them.
void VllmV1::take_cohort_blocks(Batch& batch) {
  const std::span<const Cohort::Entry> begin = cohort_.begin_block(step_);
  // A block's last token is known when the next block begins (async: the step before is in flight), or a step
  // before that.
  const std::span<const Cohort::Entry> full = async_ ? begin : cohort_.begin_block(step_ + 1);
  auto taker = begin.begin();
  auto namer = full.begin();
  const auto serve_members = [&](std::int64_t before) {
    while (taker != begin.end() || namer != full.end()) {
      const bool takes = taker != begin.end() && (namer == full.end() || taker->first <= namer->first);
      if ((takes ? taker : namer)->first >= before) {
        return;
      }
      if (takes) {
        kv_.begin_block(requests_[(taker++)->second]);
      } else {
        Request& r = requests_[(namer++)->second];
        const auto computed = r.num_computed_tokens + static_cast<std::int32_t>(step_ - r.joined);
        kv_.register_full_blocks(r, async_ ? computed : computed + 1);
      }
    }
  };
  if (!kv_.names_blocks()) {
    kv_.take_unnamed(static_cast<std::int32_t>(begin.size()));
    taker = begin.end();
  }
  if (!kv_.caching()) {
    namer = full.end();
  }
  for (std::size_t i = 0; i < loose_.size(); ++i) {
    if (loose_tokens_[i] == 0) {
      continue;
    }
    Request& r = requests_[loose_[i]];
    serve_members(r.order);
    const bool extended = kv_.extend(r, loose_tokens_[i]);
    BOOST_ASSERT_MSG(extended, "CONSERVE_BLOCKS: the blocks of a step were counted wrongly");
    static_cast<void>(extended);
    Planned& planned = batch.planned.emplace_back();
    planned.slot = loose_[i];
    planned.order = r.order;
    planned.share.id = r.id;
    planned.share.num_scheduled_tokens = loose_tokens_[i];
    planned.share.num_computed_tokens = r.num_computed_tokens;
  }
  serve_members(next_order_);
}

/// A member's share of step `step`.
VllmV1::Planned VllmV1::spell_out(const CohortMember& member, std::int64_t step) const {
  Planned planned;
  planned.slot = member.slot;
  planned.order = member.order;
  planned.share.id = requests_[member.slot].id;
  planned.share.num_scheduled_tokens = 1;
  planned.share.num_computed_tokens = static_cast<std::int32_t>(member.offset + step - 1);
  planned.share.samples = true;
  planned.share.has_output = true;
  return planned;
}

/// Those whose last step is at most `last_step` leave the cohort; that step is in flight.
void VllmV1::eject_ended(std::int64_t last_step) {
  while (cohort_.next_end() <= last_step) {
    eject(cohort_.next_to_end());
  }
}

void VllmV1::eject(const CohortMember& member) {
  move_into_batches(member);
  settle(member);
  cohort_.remove(member.order);
  loose_.insert(std::ranges::lower_bound(loose_, member.order, {}, [this](Slot slot) { return requests_[slot].order; }),
                member.slot);
}

void VllmV1::dissolve_cohort() {
  if (cohort_.empty()) {
    return;
  }
  for (const CohortMember& member : cohort_.members()) {
    move_into_batches(member);
    settle(member);
  }
  cohort_.clear();
  loose_ = running_;
}

/// The batches in flight that count the member now name it.
void VllmV1::move_into_batches(const CohortMember& member) {
  const std::int64_t joined = requests_[member.slot].joined;
  for (std::size_t age = 0; age < num_in_flight_; ++age) {
    Batch& batch = batch_in_flight(age);
    if (batch.step < joined || batch.step > cohort_planned_) {
      continue;
    }
    batch.planned.insert(std::ranges::upper_bound(batch.planned, member.order, {}, &Planned::order),
                         spell_out(member, batch.step));
    --batch.num_unwalked;
    if (batch.step == joined) {
      std::erase_if(batch.joined, [&](const Planned& p) { return p.order == member.order; });
    }
  }
}

/// The member's own numbers, as if it had been walked.
void VllmV1::settle(const CohortMember& member) {
  Request& r = requests_[member.slot];
  const auto planned = static_cast<std::int32_t>(std::max<std::int64_t>(cohort_planned_ - r.joined + 1, 0));
  const auto updated = static_cast<std::int32_t>(std::max<std::int64_t>(cohort_updated_ - r.joined + 1, 0));
  r.num_computed_tokens += planned;
  r.num_tokens += updated;
  r.num_in_flight_tokens += planned - updated;
  if (async_) {
    r.num_output_placeholders += planned - updated;
    r.next_eligible_step = std::max(r.next_eligible_step, cohort_planned_ + decode_spacing_);
  }
  r.mid_prefill = false;
  r.joined = kNotMember;
  kv_.settle_unnamed(r, r.num_computed_tokens);
}

/// Members that the oldest batch counts, in front of `order`.
std::int64_t VllmV1::unwalked_before(std::int64_t order) const {
  const Batch& batch = batches_[oldest_];
  if (batch.num_unwalked == 0) {
    return 0;
  }
  std::int64_t count = cohort_.count_before(order);
  for (std::size_t age = 1; age < num_in_flight_; ++age) {  // Who joined after it.
    const Batch& later = batches_[(oldest_ + age) % batches_.size()];
    count -= std::ranges::count_if(later.joined, [order](const Planned& p) { return p.order < order; });
  }
  return count;
}

/// A running, loose request gives up its place.
void VllmV1::leave_running(Slot slot) {
  const std::int64_t order = requests_[slot].order;
  const auto by_order = [this](Slot other) { return requests_[other].order; };
  running_.erase(std::ranges::lower_bound(running_, order, {}, by_order));
  if (keeps_cohort_) {
    loose_.erase(std::ranges::lower_bound(loose_, order, {}, by_order));
  }
}

}  // namespace kneepoint::engine
