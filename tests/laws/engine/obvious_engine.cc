#include "tests/laws/engine/obvious_engine.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace kneepoint::laws {

using engine::AdmissionStop;
using engine::RequestId;
using engine::SchedulingPolicy;

ObviousEngine::ObviousEngine(const engine::SchedulerConfig& config, engine::BlockKeySource& keys,
                             Mutation mutation)
    : config_(config),
      keys_(keys),
      mutation_(mutation),
      pool_(static_cast<int>(config.num_blocks), mutation) {}

int ObviousEngine::slots() const {
  const bool charged = config_.spec_method == engine::SpeculativeMethod::kDraftModel;
  return charged && !is(Mutation::kDraftSlotsFree) ? 1 : 0;
}

void ObviousEngine::add(const engine::NewRequest& request) {
  requests_[request.id].in = request;
  enqueue_back(request.id);
}

void ObviousEngine::abort(RequestId id) {
  if (requests_.contains(id)) {
    end(id);
  }
}

void ObviousEngine::end(RequestId id) {
  release(requests_.at(id));
  std::erase(running_, id);
  std::erase(waiting_, id);
  requests_.erase(id);
  ended_.push_back(id);
}

void ObviousEngine::enqueue_back(RequestId id) {
  if (config_.policy == SchedulingPolicy::kFcfs) {
    waiting_.push_back(id);
    return;
  }
  const auto urgency = [this](RequestId one) {
    const engine::NewRequest& in = requests_.at(one).in;
    return std::tuple{in.priority, is(Mutation::kPriorityIgnoresArrival) ? 0 : in.arrival, one};
  };
  const auto behind =
      std::ranges::find_if(waiting_, [&](RequestId other) { return urgency(other) > urgency(id); });
  waiting_.insert(behind, id);
}

void ObviousEngine::enqueue_front(RequestId id) {
  if (config_.policy == SchedulingPolicy::kFcfs) {
    waiting_.insert(waiting_.begin(), id);
  } else {
    enqueue_back(id);
  }
}

std::vector<ObviousEngine::Waiting> ObviousEngine::waiting() const {
  std::vector<Waiting> all;
  for (const RequestId id : waiting_) {
    all.push_back({id, requests_.at(id).deferred});
  }
  return all;
}

std::vector<int> ObviousEngine::table(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? std::vector<int>{} : found->second.table;
}

ObviousEngine::Step ObviousEngine::start_step(std::int64_t turn) const {
  Step step;
  step.budget = config_.max_num_scheduled_tokens.value_or(config_.max_num_batched_tokens);
  step.room = config_.max_num_batched_tokens;
  const auto known = static_cast<std::int64_t>(requests_.size());
  step.cap = config_.long_prefill_token_threshold;
  if (known <= 1 && !is(Mutation::kCapsTheOnlyOne)) {
    step.cap = 0;
  } else if (step.cap > 0 && config_.long_prefill_token_threshold_adaptive) {
    step.cap = std::max(step.cap, config_.max_num_batched_tokens / known);
  }
  bool somebody_decodes = false;
  for (const RequestId id : running_) {
    somebody_decodes = somebody_decodes || !requests_.at(id).mid_prefill;
  }
  const bool bound = capacity_bound_ && !is(Mutation::kThrottleForgetsCapacity);
  step.defers = turn % config_.prefill_schedule_interval != 0 && !bound && somebody_decodes;
  return step;
}

ObviousPlan ObviousEngine::plan(std::int64_t turn) {
  ++step_;
  ObviousPlan plan;
  Step step = start_step(turn);
  if (is(Mutation::kWaitingBeforeRunning)) {
    admit_those_who_wait(step, plan);
    run_those_who_run(step, plan);
  } else {
    run_those_who_run(step, plan);
    admit_those_who_wait(step, plan);
  }
  after_planning(plan);
  return plan;
}

void ObviousEngine::run_those_who_run(Step& step, ObviousPlan& plan) {
  for (std::size_t i = 0; i < running_.size() && step.budget > 0 && step.room > slots();) {
    const RequestId id = running_[i];
    Request& r = requests_.at(id);
    const bool last_in_flight =
        r.placeholders > 0 && r.computed + 2 - r.placeholders >= r.in.prompt_tokens + r.in.max_tokens;
    std::int64_t n = r.num_tokens() + r.drafts + r.placeholders - r.computed;
    if (step.cap > 0) {
      n = std::min(n, step.cap);
    }
    n = std::min({n, step.budget, step.room - slots(), config_.max_model_len - r.computed - 1});
    if ((last_in_flight && !is(Mutation::kDecodesPastTheEnd)) || step_ < r.next_eligible_step ||
        (step.defers && r.mid_prefill) || n <= 0) {
      if (is(Mutation::kStopsAtIdle)) {
        return;
      }
      ++i;
      continue;
    }
    bool fits = allocate(r, static_cast<int>(n), {}, false);
    while (!fits) {
      const RequestId victim = choose_victim();
      const auto place = std::ranges::find(running_, victim);
      if (place < running_.begin() + static_cast<std::ptrdiff_t>(i)) {
        --i;
      }
      running_.erase(place);
      const auto planned = std::ranges::find(plan.scheduled, victim, &engine::ScheduledRequest::id);
      if (planned != plan.scheduled.end()) {
        step.budget += planned->num_scheduled_tokens;
        step.room += planned->num_scheduled_tokens + slots();
        plan.scheduled.erase(planned);
      }
      preempt(victim, plan);
      if (victim == id) {
        return;
      }
      fits = allocate(r, static_cast<int>(n), {}, false);
    }
    engine::ScheduledRequest share;
    share.id = id;
    share.num_scheduled_tokens = static_cast<int>(n);
    share.num_computed_tokens = r.computed;
    share.num_draft_tokens =
        std::clamp(static_cast<int>(n) + r.computed - r.num_tokens() - r.placeholders, 0, r.drafts);
    plan.scheduled.push_back(share);
    r.drafts = 0;
    step.budget -= n;
    step.room -= n + slots();
    ++i;
  }
}

RequestId ObviousEngine::choose_victim() const {
  if (config_.policy == SchedulingPolicy::kFcfs) {
    return is(Mutation::kVictimIsFirst) ? running_.front() : running_.back();
  }
  const auto urgency = [this](RequestId id) {
    return std::pair{requests_.at(id).in.priority, requests_.at(id).in.arrival};
  };
  RequestId victim = running_.front();
  for (const RequestId id : running_) {
    if (urgency(id) > urgency(victim) ||
        (urgency(id) == urgency(victim) && is(Mutation::kPriorityTieTakesLast))) {
      victim = id;
    }
  }
  return victim;
}

void ObviousEngine::preempt(RequestId id, ObviousPlan& plan) {
  Request& r = requests_.at(id);
  release(r);
  r.runs = false;
  r.computed = 0;
  r.drafts = 0;
  r.stale = r.in_flight;
  r.placeholders = 0;
  ++r.preemptions;
  if (is(Mutation::kPreemptedToBack)) {
    enqueue_back(id);
  } else if (is(Mutation::kVictimAheadOfNobody) && config_.policy == SchedulingPolicy::kFcfs) {
    waiting_.insert(std::ranges::find_if(waiting_, [this](RequestId o) { return !requests_.at(o).deferred; }),
                    id);
  } else {
    enqueue_front(id);
  }
  plan.preempted.push_back(id);
}

void ObviousEngine::admit_those_who_wait(Step& step, ObviousPlan& plan) {
  if (!plan.preempted.empty() && !is(Mutation::kAdmitsAfterPreemption)) {
    plan.stop = AdmissionStop::kPreempted;
    plan.not_admitted = waiting_.front();
    return;
  }
  const std::size_t planned_by_running_pass = plan.scheduled.size();
  std::vector<RequestId> set_aside;
  std::vector<AdmissionStop> why;
  AdmissionStop stop = AdmissionStop::kQueueEmpty;
  while (!waiting_.empty() && stop == AdmissionStop::kQueueEmpty) {
    const RequestId id = waiting_.front();
    const Request& r = requests_.at(id);
    if (step.budget <= 0 || step.room <= slots()) {
      stop = AdmissionStop::kTokenBudget;
    } else if (std::ssize(running_) >=
               std::min(config_.max_num_active_seqs.value_or(config_.max_num_seqs), config_.max_num_seqs)) {
      stop = AdmissionStop::kMaxNumSeqs;
    } else {
      AdmissionStop aside = AdmissionStop::kQueueEmpty;
      if (r.stale > 0 && !is(Mutation::kResumesWithOutputInFlight)) {
        aside = AdmissionStop::kOutputInFlight;
      } else if (!adapter_has_slot(plan, r.in.adapter)) {
        aside = AdmissionStop::kAdapterSlots;
      } else {
        stop = try_to_admit(id, step, plan, planned_by_running_pass);
        if (stop == AdmissionStop::kKvBlocks && is(Mutation::kOvertakesHead)) {
          aside = std::exchange(stop, AdmissionStop::kQueueEmpty);
        }
      }
      if (aside != AdmissionStop::kQueueEmpty) {
        waiting_.erase(waiting_.begin());
        set_aside.push_back(id);
        why.push_back(aside);
        requests_.at(id).deferred = true;
      }
    }
  }
  if (!is(Mutation::kSetAsideReversed)) {
    std::ranges::reverse(set_aside);
  }
  if (is(Mutation::kSetAsideToBack)) {
    std::ranges::reverse(set_aside);
  }
  for (const RequestId id : set_aside) {
    is(Mutation::kSetAsideToBack) ? enqueue_back(id) : enqueue_front(id);
  }
  plan.stop = stop == AdmissionStop::kQueueEmpty && !why.empty() ? why.front() : stop;
  plan.not_admitted = waiting_.empty() ? engine::kNoRequest : waiting_.front();
  if (!step.defers) {
    capacity_bound_ =
        std::ranges::any_of(waiting_, [this](RequestId id) { return !requests_.at(id).deferred; });
  }
}

bool ObviousEngine::adapter_has_slot(const ObviousPlan& plan, std::uint32_t adapter) const {
  std::set<std::uint32_t> used;
  for (const engine::ScheduledRequest& share : plan.scheduled) {
    used.insert(requests_.at(share.id).in.adapter);
  }
  used.erase(0);
  return adapter == 0 || used.contains(adapter) || std::ssize(used) < config_.max_loras ||
         is(Mutation::kAdaptersUnlimited);
}

AdmissionStop ObviousEngine::try_to_admit(RequestId id, Step& step, ObviousPlan& plan,
                                          std::size_t planned_by_running_pass) {
  Request& r = requests_.at(id);
  const std::vector<int> hit_blocks = lookup(r);
  const int hit = block_size() * static_cast<int>(hit_blocks.size());
  if (step.defers && hit < r.num_tokens() - 1) {
    return AdmissionStop::kThrottled;
  }
  const std::int64_t left = std::min(step.budget, step.room - slots());
  std::int64_t n = r.num_tokens() - hit;
  const std::int64_t k = config_.num_speculative_tokens;
  bool chunk_planned = false;
  for (std::size_t i = 0; i < planned_by_running_pass; ++i) {
    chunk_planned = chunk_planned || requests_.at(plan.scheduled[i].id).mid_prefill;
  }
  int padding = 0;
  if (k > 0 && n == 1 && !chunk_planned && (planned_by_running_pass > 0 || hit > 0) &&
      hit + 1 + k + 1 <= config_.max_model_len) {
    if (1 + k > left) {
      return AdmissionStop::kDraftRoom;
    }
    n = 1 + k;
    padding = static_cast<int>(k);
  }
  if (step.cap > 0) {
    n = std::min(n, step.cap);
  }
  if (!config_.enable_chunked_prefill && n > left) {
    return AdmissionStop::kPromptTooLong;
  }
  n = std::min(n, left);
  if (!allocate(r, static_cast<int>(n), hit_blocks, true)) {
    return AdmissionStop::kKvBlocks;
  }
  waiting_.erase(waiting_.begin());
  running_.push_back(id);
  r.runs = true;
  r.deferred = false;
  r.computed = hit;
  engine::ScheduledRequest share;
  share.id = id;
  share.kind = r.preemptions > 0 ? engine::ScheduledKind::kResumed : engine::ScheduledKind::kNew;
  share.num_scheduled_tokens = static_cast<int>(n);
  share.num_computed_tokens = hit;
  share.num_cached_tokens = hit;
  share.num_draft_tokens = padding;
  share.drafts_padded = padding > 0;
  plan.scheduled.push_back(share);
  step.budget -= n;
  step.room -= n + slots();
  if (config_.enable_prefix_caching) {
    query_tokens_[r.preemptions > 0 ? 1 : 0] += r.num_tokens();
    hit_tokens_[r.preemptions > 0 ? 1 : 0] += hit;
  }
  return AdmissionStop::kQueueEmpty;
}

void ObviousEngine::after_planning(ObviousPlan& plan) {
  for (engine::ScheduledRequest& share : plan.scheduled) {
    Request& r = requests_.at(share.id);
    share.has_output = r.outputs + r.placeholders > 0;
    r.computed += share.num_scheduled_tokens;
    r.in_flight += share.num_scheduled_tokens;
    r.mid_prefill = r.computed < r.num_tokens() + r.placeholders;
    share.samples = !r.mid_prefill;
    if (config_.async_scheduling && !r.mid_prefill) {
      r.placeholders += 1 + share.num_draft_tokens;
      r.drafts = static_cast<int>(config_.num_speculative_tokens);
      if (config_.use_v2_model_runner) {
        r.next_eligible_step = step_ + config_.pipeline_parallel_size;
      }
    }
  }
  plan.finished = ended_;
  ended_.clear();
  in_flight_.push_back(plan.scheduled);
}

std::vector<engine::EmittedTokens> ObviousEngine::update(const engine::StepResult& result) {
  const std::vector<engine::ScheduledRequest> batch = in_flight_.front();
  in_flight_.erase(in_flight_.begin());
  std::vector<engine::EmittedTokens> emitted;
  for (const engine::ScheduledRequest& share : batch) {
    if (!requests_.contains(share.id)) {
      continue;
    }
    engine::SampledTokens sampled{share.id, share.samples ? 1 : 0, -1};
    for (const engine::SampledTokens& exception : result.exceptions) {
      sampled = exception.id == share.id ? exception : sampled;
    }
    const engine::EmittedTokens output = take_output(requests_.at(share.id), share, sampled);
    if (output.num_tokens > 0) {
      emitted.push_back(output);
    }
    if (output.finish != engine::FinishReason::kNone) {
      end(share.id);
    }
  }
  for (const engine::ScheduledRequest& share : batch) {
    if (!config_.async_scheduling && requests_.contains(share.id)) {
      Request& r = requests_.at(share.id);
      r.drafts = r.mid_prefill ? 0 : static_cast<int>(config_.num_speculative_tokens);
    }
  }
  return emitted;
}

engine::EmittedTokens ObviousEngine::take_output(Request& r, const engine::ScheduledRequest& share,
                                                 const engine::SampledTokens& sampled) {
  engine::EmittedTokens output{share.id, 0, engine::FinishReason::kNone};
  r.in_flight -= share.num_scheduled_tokens;
  const bool stale = r.stale > 0;
  r.stale -= stale ? share.num_scheduled_tokens : 0;
  if (stale && is(Mutation::kStaleOutputDropped)) {
    return output;
  }
  if (share.num_draft_tokens > 0 && sampled.num_tokens > 0 && !stale) {
    const int rejected = share.num_draft_tokens - (sampled.num_tokens - 1);
    r.computed -= r.computed > 0 ? rejected : 0;
    r.placeholders -= r.placeholders > 0 ? rejected : 0;
  }
  for (int i = 0; i < sampled.num_tokens && output.finish == engine::FinishReason::kNone; ++i) {
    ++r.outputs;
    ++output.num_tokens;
    if (i == sampled.stop_at) {
      output.finish = engine::FinishReason::kStop;
    } else if (r.num_tokens() >= config_.max_model_len || r.outputs >= r.in.max_tokens) {
      output.finish = engine::FinishReason::kLength;
    }
  }
  if (config_.async_scheduling && !stale) {
    r.placeholders -= output.num_tokens;
    if (r.runs) {
      register_blocks(r, r.computed - r.placeholders);
    }
  }
  if (is(Mutation::kRegistersAfterStep) && r.runs) {
    register_blocks(r, std::min(r.computed, r.num_tokens()));
  }
  return output;
}

}  // namespace kneepoint::laws
