// The cohort's part of a step: planned, and later answered, without a look at its members.
//
// A step may leave the cohort unwalked if walking would give each member one
// token and one block where it is due:
//
//     - the token budget reaches all of them, whatever the loose ones before
//       them take;
//     - the pool has a block for all who need one, or whoever is preempted for it
//       is the last of those who run (fcfs), who was not served before;
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
#include <limits>

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
  Limits left_over = limits;
  std::int64_t CohortUse::*obstacle = nullptr;
  if (others_in_flight != (async_ ? 1 : 0)) {
    obstacle = &CohortUse::for_pipeline;
  } else if (limits.defers_prefills) {
    obstacle = &CohortUse::for_throttle;
  } else {
    enough_blocks_ = size_loose(left_over, obstacle);
    if (obstacle == nullptr && !enough_blocks_ && policy_ != SchedulingPolicy::kFcfs) {
      obstacle = &CohortUse::for_blocks;  // The victim may be one who was served.
    }
  }
  if (obstacle != nullptr || cohort_.empty()) {  // Or all are loose, and there is nothing to spare.
    dissolve_cohort(obstacle);
    batch.joined.clear();
    cohort_planned_ = step_;
    return false;
  }
  ++use_.unwalked;
  serve_in_order(plan, batch);
  limits = left_over;
  batch.num_unwalked = cohort_.size();
  plan.num_unwalked = cohort_.size();
  plan.num_tokens += cohort_.size();
  if (!cohort_.empty()) {  // Else all of it was evicted.
    plan.cohort = {cohort_.size(), cohort_.context_sum(step_), cohort_.context_max(step_)};
  }
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

/// What each loose request gets, in order, between the members; returns whether there are blocks for all of it.
/// `short_of` is set if a member would get nothing.
bool VllmV1::size_loose(Limits& limits, std::int64_t CohortUse::*& short_of) {
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
      short_of = &CohortUse::for_budget;
      return false;
    }
    const std::int32_t tokens = left(limits) <= 0 || sits_out(r, limits) ? 0 : std::max(gap_to_close(r, limits), 0);
    loose_tokens_.push_back(tokens);
    if (tokens > 0) {
      blocks += kv_.blocks_to_extend(r, tokens);
      spend(limits, tokens);
    }
  }
  if (!serve_members(cohort_.size())) {
    short_of = &CohortUse::for_budget;
  }
  return blocks <= kv_.pool().num_free();
}

/// Everyone gets its blocks, in order: loose ones by their tokens, members where a block begins or is full. Who finds
/// none evicts from the back, as walking would; nobody there was served before.
void VllmV1::serve_in_order(StepPlan& plan, Batch& batch) {
  // A block's last token is known when the next block begins (async: the step before is in flight), or a step
  // before that.
  const std::int64_t full_step = async_ ? step_ : step_ + 1;
  std::size_t next_loose = 0;
  std::size_t next_taker = 0;
  std::size_t next_namer = kv_.caching() ? 0 : cohort_.begin_block(full_step).size();
  if (!kv_.names_blocks() && enough_blocks_) {  // Nobody can tell the order.
    next_taker = cohort_.begin_block(step_).size();
    kv_.take_unnamed(static_cast<std::int32_t>(next_taker));
  }
  constexpr std::int64_t kNobody = std::numeric_limits<std::int64_t>::max();
  for (;;) {
    // Looked at anew each time: an eviction shortens all three at their ends.
    const std::span<const Cohort::Entry> takers = cohort_.begin_block(step_);
    const std::span<const Cohort::Entry> namers = cohort_.begin_block(full_step);
    const std::int64_t taker = next_taker < takers.size() ? takers[next_taker].first : kNobody;
    const std::int64_t namer = next_namer < namers.size() ? namers[next_namer].first : kNobody;
    const std::int64_t loose = next_loose < loose_.size() ? requests_[loose_[next_loose]].order : kNobody;
    if (loose == kNobody && taker == kNobody && namer == kNobody) {
      return;
    }
    if (loose < std::min(taker, namer)) {
      if (!serve_loose(next_loose++, plan, batch)) {
        return;
      }
    } else if (taker <= namer) {
      if (!make_room(1, taker, plan, batch)) {
        return;
      }
      kv_.begin_block(requests_[takers[next_taker++].second]);
    } else {
      Request& r = requests_[namers[next_namer++].second];
      const auto computed = r.num_computed_tokens + static_cast<std::int32_t>(step_ - r.joined);
      kv_.register_full_blocks(r, async_ ? computed : computed + 1);
    }
  }
}

/// False: it had to give up its own blocks, and with it the pass ends.
bool VllmV1::serve_loose(std::size_t index, StepPlan& plan, Batch& batch) {
  const std::int32_t tokens = loose_tokens_[index];
  if (tokens == 0) {
    return true;
  }
  const Slot slot = loose_[index];
  Request& r = requests_[slot];
  if (!make_room(kv_.blocks_to_extend(r, tokens), r.order, plan, batch)) {
    return false;
  }
  const bool extended = kv_.extend(r, tokens);
  BOOST_ASSERT_MSG(extended, "CONSERVE_BLOCKS: the blocks of a step were counted wrongly");
  static_cast<void>(extended);
  put_into(batch, slot, tokens);
  return true;
}

/// Evicts from the back until so many blocks are free; false if that took `order` itself.
bool VllmV1::make_room(std::int32_t blocks, std::int64_t order, StepPlan& plan, Batch& batch) {
  while (kv_.pool().num_free() < blocks) {
    const Slot victim = running_.back();
    const std::int64_t its_order = requests_[victim].order;
    if (requests_[victim].joined != kNotMember) {
      leave_cohort(cohort_.members().back());
      std::erase_if(batch.joined, [its_order](const Planned& p) { return p.order == its_order; });
    }
    running_.pop_back();
    preempt(victim, plan);
    if (its_order == order) {
      return false;
    }
  }
  return true;
}

std::int64_t VllmV1::steady_turns(std::int64_t limit) {
  if (!only_cohort_runs() || !waiting_stays()) {
    return 0;
  }
  std::int64_t turns = std::min(limit, cohort_.next_end() - step_);
  std::int64_t blocks = kv_.pool().num_free();
  for (std::int64_t turn = 1; turn <= turns; ++turn) {
    blocks -= static_cast<std::int64_t>(cohort_.begin_block(step_ + turn).size());
    if (blocks < 0) {
      turns = turn - 1;
    }
  }
  return turns;
}

bool VllmV1::only_cohort_runs() const {
  const bool alone = !cohort_.empty() && loose_.empty() && fresh_.empty() && ended_.empty();
  return alone && num_in_flight_ == batches_.size() && std::ranges::all_of(batches_, [this](const Batch& batch) {
           return batch.planned.empty() && batch.joined.empty() && batch.num_unwalked == cohort_.size();
         });
}

/// Whether those who wait are passed over in each coming step for the reason of the newest one. Blocks only become
/// fewer meanwhile; but with prefix caching the head's own prefix may come to be known.
bool VllmV1::waiting_stays() const {
  if (prefill_schedule_interval_ != 1) {
    return false;
  }
  return waiting_.empty() || admission_stop_ == AdmissionStop::kMaxNumSeqs ||
         (admission_stop_ == AdmissionStop::kKvBlocks && !kv_.caching());
}

/// A step of members alone, for all of whom there are blocks.
void VllmV1::take_member_blocks() {
  const std::span<const Cohort::Entry> takers = cohort_.begin_block(step_);
  if (!kv_.names_blocks()) {
    kv_.take_unnamed(static_cast<std::int32_t>(takers.size()));
    return;
  }
  StepPlan none;
  enough_blocks_ = true;
  serve_in_order(none, batches_[newest_]);
}

void VllmV1::advance(std::int64_t num_turns) {
  for (std::int64_t turn = 0; turn < num_turns; ++turn) {
    ++step_;
    take_member_blocks();
  }
  next_turn_ += num_turns;
  use_.steady += num_turns;
  cohort_planned_ += num_turns;
  cohort_updated_ += num_turns;
  for (Batch& batch : batches_) {
    batch.step += num_turns;
  }
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
    leave_cohort(cohort_.next_to_end());
  }
}

/// One member becomes loose. By value: the member's own entry goes.
void VllmV1::leave_cohort(CohortMember member) {
  if (!move_into_batches(member) && requests_[member.slot].joined <= cohort_updated_) {
    unlisted_.push_back(member);
  }
  settle(member);
  cohort_.remove(member.order);
  loose_.insert(std::ranges::lower_bound(loose_, member.order, {}, [this](Slot slot) { return requests_[slot].order; }),
                member.slot);
}

void VllmV1::dissolve_cohort(std::int64_t CohortUse::*reason) {
  if (cohort_.empty()) {
    return;
  }
  ++(use_.*reason);
  for (const CohortMember& member : cohort_.members()) {
    if (!move_into_batches(member) && requests_[member.slot].joined <= cohort_updated_) {
      unlisted_.push_back(member);
    }
    settle(member);
  }
  cohort_.clear();
  loose_ = running_;
}

/// Who left the cohort and has no part in this step either.
void VllmV1::note_paused(StepPlan& plan, const Batch& batch) {
  for (const CohortMember& member : unlisted_) {
    const bool planned = std::ranges::any_of(batch.planned, [&](const Planned& p) { return p.order == member.order; });
    if (!planned && requests_[member.slot].id != kNoRequest && requests_[member.slot].order == member.order) {
      plan.paused.push_back(requests_[member.slot].id);
    }
  }
  unlisted_.clear();
}

/// The batches in flight that count the member now name it; false if there is none.
bool VllmV1::move_into_batches(const CohortMember& member) {
  const std::int64_t joined = requests_[member.slot].joined;
  bool found = false;
  for (std::size_t age = 0; age < num_in_flight_; ++age) {
    Batch& batch = batch_in_flight(age);
    if (batch.step < joined || batch.step > cohort_planned_) {
      continue;
    }
    batch.planned.insert(std::ranges::upper_bound(batch.planned, member.order, {}, &Planned::order),
                         spell_out(member, batch.step));
    --batch.num_unwalked;
    found = true;
    if (batch.step == joined) {
      std::erase_if(batch.joined, [&](const Planned& p) { return p.order == member.order; });
    }
  }
  return found;
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
