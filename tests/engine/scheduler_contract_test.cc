// What every scheduler promises, over each row of schedulers() and random small
// servers: see the contract in engine/scheduler.h and the types in step_plan.h.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "tests/laws/engine/random_workload.h"

namespace kneepoint::engine {
namespace {

using laws::Dice;
using laws::RandomWorkload;

constexpr int kCases = 400;
constexpr std::int64_t kMostTurns = 20'000;  // Every case ends long before, or never would.

/// A server on which everyone can end: no limit below what one request needs.
SchedulerConfig livable_config(std::string_view scheduler, Dice& dice) {
  SchedulerConfig config = laws::random_config(dice);
  config.max_num_scheduled_tokens.reset();
  config.max_num_batched_tokens += 8;
  if (scheduler == "vllm-v1") {
    return config;
  }
  config.async_scheduling = false;
  config.pipeline_parallel_size = 1;
  config.depth.reset();
  config.spec_method = SpeculativeMethod::kNone;
  config.num_speculative_tokens = 0;
  config.sliding_window.reset();
  config.prefix_cache_retention_interval = 0;
  config.max_num_active_seqs.reset();
  config.long_prefill_token_threshold = 0;
  config.long_prefill_token_threshold_adaptive = false;
  config.prefill_schedule_interval = 1;
  config.orca_reserve = dice.pick<OrcaReserve>({OrcaReserve::kMax, OrcaReserve::kPow2, OrcaReserve::kOracle});
  config.preemption_mode_swap = dice.one_in(2);
  config.num_cpu_blocks = 8 * config.num_blocks;
  if (config.preemption_mode_swap) {
    config.watermark = 0;  // A swapped request that has grown into the watermark never returns, as in V0.
  }
  config.enable_prefix_caching = config.enable_prefix_caching && scheduler == "vllm-v0";
  return config;
}

bool same(const ScheduledRequest& a, const ScheduledRequest& b) {
  return a.id == b.id && a.num_scheduled_tokens == b.num_scheduled_tokens &&
         a.num_computed_tokens == b.num_computed_tokens && a.num_cached_tokens == b.num_cached_tokens &&
         a.num_draft_tokens == b.num_draft_tokens && a.kind == b.kind && a.samples == b.samples &&
         a.has_output == b.has_output && a.drafts_padded == b.drafts_padded;
}

std::vector<ScheduledRequest> spelled_out(const Scheduler& scheduler) {
  std::vector<ScheduledRequest> all;
  scheduler.for_each_scheduled([&](const ScheduledRequest& share) { all.push_back(share); });
  return all;
}

/// One random case: two schedulers get equal calls, the first is checked.
class Contract {
 public:
  Contract(const SchedulerRow& row, std::uint64_t seed)
      : row_(row),
        dice_(seed),
        config_(livable_config(row.name, dice_)),
        workload_(config_, dice_),
        scheduler_(row.make(config_, workload_)),
        twin_(row.make(config_, workload_)) {}

  void run() {
    const auto& events = workload_.events();
    while (turn_ < kMostTurns && !testing::Test::HasFailure()) {
      arrive();
      if (scheduler_->has_requests()) {
        plan();
      } else if (in_flight_.empty() && next_event_ == events.size()) {
        break;
      }
      const bool full = std::ssize(in_flight_) == batches_in_flight(config_);
      if (!in_flight_.empty() && (full || plan_.num_tokens == 0 || !scheduler_->has_requests())) {
        update();
      }
      ++turn_;
    }
    EXPECT_LT(turn_, kMostTurns) << "somebody never ends";
    EXPECT_TRUE(live_.empty()) << "CONSERVE_REQUESTS";
    EXPECT_EQ(scheduler_->load().free_blocks, scheduler_->load().usable_blocks) << "CONSERVE_BLOCKS";
    EXPECT_EQ(scheduler_->blocks_needed_by_head(), 0);
    EXPECT_EQ(scheduler_->waiting_head(), kNoRequest);
  }

 private:
  struct Live {
    NewRequest request;
    std::int32_t outputs = 0;
  };

  void arrive() {
    const auto& events = workload_.events();
    for (; next_event_ < events.size() && events[next_event_].turn <= turn_; ++next_event_) {
      NewRequest request = events[next_event_].request;
      if (events[next_event_].aborts) {
        scheduler_->abort_request(request.id);
        twin_->abort_request(request.id);
        if (live_.erase(request.id) > 0) {
          unreported_.insert(request.id);
        }
        continue;
      }
      request.reserve_output_tokens = config_.orca_reserve == OrcaReserve::kMax ? 0 : request.max_tokens;
      scheduler_->add_request(request);
      twin_->add_request(request);
      live_[request.id] = {request, 0};
    }
  }

  void plan() {
    scheduler_->plan_step(plan_);
    EXPECT_EQ(plan_.step, ++step_);
    const std::vector<ScheduledRequest> step = spelled_out(*scheduler_);
    check_twin(step);
    check_cohort(step);
    check_members(step);
    check_limits(step);
    for (std::size_t i = 0; i < plan_.finished.size(); ++i) {
      const RequestId id = plan_.finished[i];
      if (!plan_.finished_reason.empty() && plan_.finished_reason.at(i) == FinishReason::kIgnored) {
        EXPECT_EQ(live_.erase(id), 1U) << "an ignored request was alive";
      } else {
        EXPECT_EQ(unreported_.erase(id), 1U) << "an end is reported once, and only once it happened";
      }
    }
    EXPECT_TRUE(unreported_.empty());
    const EngineLoad load = scheduler_->load();
    EXPECT_EQ(load.num_running + load.num_waiting, std::ssize(live_)) << "CONSERVE_REQUESTS";
    in_flight_.push_back(workload_.run(step));
  }

  void check_twin(const std::vector<ScheduledRequest>& step) {
    twin_->plan_step(twin_plan_);
    const std::vector<ScheduledRequest> other = spelled_out(*twin_);
    EXPECT_TRUE(std::equal(step.begin(), step.end(), other.begin(), other.end(), same)) << "SCHEDULER_BLIND";
    EXPECT_EQ(plan_.preempted, twin_plan_.preempted);
    EXPECT_EQ(plan_.finished, twin_plan_.finished);
    EXPECT_EQ(plan_.admission_stop, twin_plan_.admission_stop);
    EXPECT_EQ(plan_.not_admitted, twin_plan_.not_admitted);
  }

  /// The plan's cohort and individuals are the spelled-out step, sorted into the two.
  void check_cohort(const std::vector<ScheduledRequest>& step) {
    DecodeCohort cohort;
    std::vector<ScheduledRequest> individual;
    std::int64_t tokens = 0;
    for (const ScheduledRequest& share : step) {
      tokens += share.num_scheduled_tokens;
      if (share.kind == ScheduledKind::kRunning && share.num_scheduled_tokens == 1 && share.samples &&
          share.num_draft_tokens == 0) {
        ++cohort.count;
        cohort.context_sum += share.num_computed_tokens + 1;
        cohort.context_max = std::max<std::int64_t>(cohort.context_max, share.num_computed_tokens + 1);
      } else {
        individual.push_back(share);
      }
    }
    EXPECT_EQ(plan_.num_tokens, tokens);
    EXPECT_EQ(plan_.num_requests(), std::ssize(step));
    EXPECT_EQ(plan_.cohort.count, cohort.count);
    EXPECT_EQ(plan_.cohort.context_sum, cohort.context_sum);
    EXPECT_EQ(plan_.cohort.context_max, cohort.context_max);
    EXPECT_TRUE(std::equal(individual.begin(), individual.end(), plan_.individual.begin(),
                           plan_.individual.end(), same));
  }

  void check_members(const std::vector<ScheduledRequest>& step) {
    // Where a script's drafts are in flight twice, or a cap cuts padded drafts, vLLM's counts are off.
    const std::int64_t k = config_.num_speculative_tokens;
    const std::int64_t cap = config_.long_prefill_token_threshold;
    const bool counts_off =
        k > 0 && ((!config_.async_scheduling && batches_in_flight(config_) > 1) || (0 < cap && cap < 1 + k));
    std::set<RequestId> members;
    for (const ScheduledRequest& share : step) {
      EXPECT_TRUE(live_.contains(share.id));
      EXPECT_TRUE(members.insert(share.id).second) << "planned twice";
      EXPECT_GE(share.num_scheduled_tokens, 1);
      EXPECT_LE(share.num_computed_tokens + share.num_scheduled_tokens, config_.max_model_len);
      if (!counts_off) {
        EXPECT_EQ(share.samples, workload_.reaches_end(share));
      }
    }
    for (const RequestId id : plan_.preempted) {
      EXPECT_TRUE(live_.contains(id));
      const auto again = std::ranges::find(step, id, &ScheduledRequest::id);
      if (row_.name == "vllm-v0" && again != step.end()) {  // With chunks it may resume at once.
        EXPECT_EQ(again->kind, ScheduledKind::kResumed);
      } else {
        EXPECT_TRUE(members.insert(id).second) << "planned and preempted";
      }
    }
    if (plan_.not_admitted != kNoRequest) {
      EXPECT_TRUE(live_.contains(plan_.not_admitted));
    }
  }

  void check_limits(const std::vector<ScheduledRequest>& step) {
    const EngineLoad load = scheduler_->load();
    EXPECT_LE(load.num_running, config_.max_num_seqs);
    EXPECT_LE(std::ssize(step), config_.max_num_seqs);
    EXPECT_GE(load.free_blocks, 0);
    EXPECT_LE(load.free_blocks, load.usable_blocks);
    if (row_.name != "orca") {  // It has no token budget.
      EXPECT_LE(plan_.num_tokens, config_.max_num_batched_tokens);
    }
  }

  void update() {
    scheduler_->update(in_flight_.front(), outcome_);
    twin_->update(in_flight_.front(), twin_outcome_);
    in_flight_.pop_front();
    EXPECT_EQ(outcome_.emitted.size(), twin_outcome_.emitted.size());
    for (const EmittedTokens& emitted : outcome_.emitted) {
      Live& live = live_.at(emitted.id);
      EXPECT_GE(emitted.num_tokens, 1);
      live.outputs += emitted.num_tokens;
      EXPECT_LE(live.outputs, live.request.max_tokens);
      EXPECT_LE(live.request.prompt_tokens + live.outputs, config_.max_model_len);
      if (emitted.finish != FinishReason::kNone) {
        live_.erase(emitted.id);
        unreported_.insert(emitted.id);
      }
    }
  }

  const SchedulerRow& row_;
  Dice dice_;
  SchedulerConfig config_;
  RandomWorkload workload_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Scheduler> twin_;
  StepPlan plan_;
  StepPlan twin_plan_;
  StepOutcome outcome_;
  StepOutcome twin_outcome_;
  std::map<RequestId, Live> live_;
  std::set<RequestId> unreported_;  // Ended, not yet named by a plan.
  std::deque<StepResult> in_flight_;
  std::size_t next_event_ = 0;
  std::int64_t turn_ = 0;
  std::int64_t step_ = -1;
};

class SchedulerContract : public testing::TestWithParam<SchedulerRow> {};

TEST_P(SchedulerContract, HoldsOnRandomServers) {
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE(fmt::format("{}, seed {}", GetParam().name, seed));
    Contract(GetParam(), seed).run();
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(SchedulerContract, IsFoundByItsNameAndExplainsItself) {
  const SchedulerRow* row = find_scheduler(GetParam().name);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->make, GetParam().make);
  EXPECT_FALSE(row->summary.empty());
  EXPECT_EQ(row->summary.find('\n'), std::string_view::npos);
}

INSTANTIATE_TEST_SUITE_P(, SchedulerContract, testing::ValuesIn(schedulers().begin(), schedulers().end()),
                         [](const auto& row) {
                           std::string name(row.param.name);
                           std::erase(name, '-');
                           return name;
                         });

TEST(Schedulers, UnknownNameIsNotFound) {
  EXPECT_EQ(find_scheduler("vllm-v2"), nullptr);
  EXPECT_EQ(find_scheduler(""), nullptr);
}

}  // namespace
}  // namespace kneepoint::engine
