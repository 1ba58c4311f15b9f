// Hand-worked timelines of the schedulers that papers compare against: orca,
// sarathi and vllm-v0. The arithmetic stands above each; blocks hold 4 tokens.
//
// A step is written as its planned requests in order, "a7" being 7 tokens of a
// and "c4@4" 4 tokens behind a prefix hit of 4; "-b": b was preempted; "!d": d
// was ignored; "out2", "in2": blocks swapped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/scheduler.h"

namespace kneepoint::engine {
namespace {

struct Arrival {
  char name = 'a';
  int step = 0;
  int prompt = 1;
  int max_tokens = 1;
  int priority = 0;
  int content = 0;  // Equal and above 0: equal tokens.
};

struct Case {
  const char* name;
  const char* scheduler;
  SchedulerConfig config;
  std::vector<Arrival> arrivals;
  std::vector<std::string> steps;
};

class ContentKeys final : public BlockKeySource {
 public:
  explicit ContentKeys(const std::vector<Arrival>& arrivals) {
    for (const Arrival& a : arrivals) {
      content_[static_cast<RequestId>(a.name)] = a.content > 0 ? a.content : 1000 + a.name;
    }
  }
  BlockKey block_key(RequestId id, std::int32_t index) override {
    return {static_cast<std::uint64_t>(content_.at(id)), static_cast<std::uint64_t>(index)};
  }

 private:
  std::map<RequestId, int> content_;
};

std::string written(const Scheduler& scheduler, const StepPlan& plan) {
  std::string text;
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  scheduler.for_each_scheduled([&](const ScheduledRequest& r) {
    add(fmt::format("{}{}", static_cast<char>(r.id), r.num_scheduled_tokens) +
        (r.num_cached_tokens > 0 ? fmt::format("@{}", r.num_cached_tokens) : ""));
  });
  for (const RequestId id : plan.preempted) {
    add(fmt::format("-{}", static_cast<char>(id)));
  }
  for (std::size_t i = 0; i < plan.finished_reason.size(); ++i) {
    if (plan.finished_reason[i] == FinishReason::kIgnored) {
      add(fmt::format("!{}", static_cast<char>(plan.finished[i])));
    }
  }
  if (plan.blocks_swapped_out > 0) {
    add(fmt::format("out{}", plan.blocks_swapped_out));
  }
  if (plan.blocks_swapped_in > 0) {
    add(fmt::format("in{}", plan.blocks_swapped_in));
  }
  return text;
}

SchedulerConfig small(std::int64_t num_blocks, std::int64_t budget) {
  SchedulerConfig config;
  config.block_size = 4;
  config.num_blocks = num_blocks;
  config.max_num_batched_tokens = budget;
  config.max_num_seqs = 4;
  config.max_model_len = 64;
  config.enable_prefix_caching = false;
  return config;
}

SchedulerConfig orca(std::int64_t num_blocks, OrcaReserve reserve) {
  SchedulerConfig config = small(num_blocks, 64);
  config.max_model_len = 16;
  config.orca_reserve = reserve;
  return config;
}

SchedulerConfig v0(std::int64_t num_blocks, std::int64_t budget = 16) {
  SchedulerConfig config = small(num_blocks, budget);
  config.enable_chunked_prefill = false;
  return config;
}

SchedulerConfig v0_swapping(std::int64_t num_blocks) {
  SchedulerConfig config = v0(num_blocks);
  config.preemption_mode_swap = true;
  config.num_cpu_blocks = 4;
  return config;
}

SchedulerConfig v0_chunked(std::int64_t budget, bool caching) {
  SchedulerConfig config = small(100, budget);
  config.enable_prefix_caching = caching;
  return config;
}

SchedulerConfig v0_priority(std::int64_t num_blocks) {
  SchedulerConfig config = v0(num_blocks);
  config.policy = SchedulingPolicy::kPriority;
  return config;
}

SchedulerConfig v0_caching() {
  SchedulerConfig config = v0(100);
  config.enable_prefix_caching = true;
  return config;
}

const Case kCases[] = {
    // Budget 8. Step 1: a's decode leaves 7 for b. Step 2: b's rest is the step's one
    // chunk, c waits although 4 are left. Step 4 ends a (5th token), b (3rd), c (2nd).
    {"SarathiOneChunkBesideDecodes",
     "sarathi",
     small(101, 8),
     {{'a', 0, 4, 5}, {'b', 1, 10, 3}, {'c', 1, 4, 2}},
     {"a4", "a1 b7", "a1 b3", "a1 b1 c4", "a1 b1 c1"}},
    // 5 usable blocks. Step 1: a's 9th token takes its 3rd block, b takes 2: none left.
    // Step 3: b's 9th token finds none, b is the last and goes. Steps 4, 5: b wants 3,
    // 2 and then 1 are free. a ends after step 5 (6 tokens); b starts again with 7 + 2.
    {"SarathiLastOneStartsAgain",
     "sarathi",
     small(6, 16),
     {{'a', 0, 8, 6}, {'b', 0, 7, 6}},
     {"a8", "a1 b7", "a1 b1", "a1 -b", "a1", "a1", "b9", "b1", "b1", "b1"}},
    // 8 usable blocks, everyone reserves 16 tokens = 4 of them: two fit. a ends after
    // step 1, so c comes at step 2.
    {"OrcaReservesTheWholeContext",
     "orca",
     orca(9, OrcaReserve::kMax),
     {{'a', 0, 6, 2}, {'b', 0, 3, 3}, {'c', 0, 2, 1}},
     {"a6 b3", "a1 b1", "b1 c2"}},
    // 5 usable. True lengths: a 6 + 2 = 2 blocks, b 5 + 3 = 2, c 2 + 1 = 1: all fit.
    {"OrcaOracleReservesWhatComes",
     "orca",
     orca(6, OrcaReserve::kOracle),
     {{'a', 0, 6, 2}, {'b', 0, 5, 3}, {'c', 0, 2, 1}},
     {"a6 b5 c2", "a1 b1", "b1"}},
    // The same with powers of two: b reserves 5 + 4 = 9 tokens = 3 blocks; 2 + 3 = 5, c
    // waits until a has ended.
    {"OrcaPow2ReservesAlmostTwice",
     "orca",
     orca(6, OrcaReserve::kPow2),
     {{'a', 0, 6, 2}, {'b', 0, 5, 3}, {'c', 0, 2, 1}},
     {"a6 b5", "a1 b1", "b1 c2"}},
    // Budget 16: b's 10 leave 6, too few for c's 8. a decodes only when nobody waits.
    {"V0PromptsStallDecodes",
     "vllm-v0",
     v0(100),
     {{'a', 0, 4, 4}, {'b', 1, 10, 2}, {'c', 1, 8, 1}},
     {"a4", "b10", "c8", "a1 b1", "a1", "a1"}},
    // 17 tokens do not fit a step of 16: ignored, and d behind it goes on.
    {"V0IgnoresAPromptLongerThanAStep", "vllm-v0", v0(100), {{'a', 0, 17, 4}, {'d', 0, 4, 1}}, {"d4 !a"}},
    // 200 blocks: the watermark is 2. 792 tokens = 198 blocks leave exactly 2: runs.
    // 793 tokens = 199 blocks leave 1 even when all is empty: never.
    {"V0WatermarkAtItsEdge",
     "vllm-v0",
     [] {
       SchedulerConfig config = v0(200, 1000);
       config.max_model_len = 1000;
       return config;
     }(),
     {{'a', 0, 792, 1}, {'b', 0, 793, 1}},
     {"a792 !b"}},
    // 5 blocks. Step 1: a's 9th token takes the last free one; b needs one to append
    // and goes. Step 2: b's 8 tokens fit 2 free blocks, a prompt goes first. Step 3: a
    // finds none to touch and evicts b. b's 9 tokens want 3: 2 free, then 1, until a has
    // its 6th token at step 6.
    {"V0Recompute",
     "vllm-v0",
     v0(5),
     {{'a', 0, 8, 6}, {'b', 0, 7, 6}},
     {"a8 b7", "a1 -b", "b8", "a1 -b", "a1", "a1", "a1", "b9", "b1", "b1", "b1"}},
    // The same, swapping: b's 2 blocks go out at step 1 and come back with one more to
    // append to (3 <= free) only when a has ended at step 5.
    {"V0Swap",
     "vllm-v0",
     v0_swapping(5),
     {{'a', 0, 8, 6}, {'b', 0, 7, 6}},
     {"a8 b7", "a1 -b out2", "a1", "a1", "a1", "a1", "b1 in2", "b1", "b1", "b1", "b1"}},
    // Budget 8: 1 + 7 of b's 10, then 1 + 3.
    {"V0Chunked",
     "vllm-v0",
     v0_chunked(8, false),
     {{'a', 0, 4, 3}, {'b', 1, 10, 2}},
     {"a4", "a1 b7", "a1 b3", "b1"}},
    // With caching a part of a prompt is whole blocks: 4 of the 7 that are left.
    {"V0ChunksAreWholeBlocksIfShared",
     "vllm-v0",
     v0_chunked(8, true),
     {{'a', 0, 4, 4}, {'b', 1, 10, 1}},
     {"a4", "a1 b4", "a1 b6", "a1"}},
    // 3 blocks; a (priority 5) holds 2 when b (0) wants 2: a goes, b comes a step later.
    // a's 9 tokens then take all 3, so its next append finds none to touch: again.
    {"V0PriorityPushesOut",
     "vllm-v0",
     v0_priority(3),
     {{'a', 0, 8, 3, 5}, {'b', 1, 8, 2, 0}},
     {"a8", "-a", "b8", "b1", "a9", "-a", "a10"}},
    // b, in the same step as its twin, computes everything; c, a step later, hits one
    // block of 4, as its last token must be computed.
    {"V0HitsOnlyWhatHasRun",
     "vllm-v0",
     v0_caching(),
     {{'a', 0, 8, 1, 0, 7}, {'b', 0, 8, 1, 0, 7}, {'c', 1, 8, 1, 0, 7}},
     {"a8 b8", "c4@4"}},
};

class Baseline : public testing::TestWithParam<Case> {};

TEST_P(Baseline, FollowsTheWorkedTimeline) {
  const Case& c = GetParam();
  ContentKeys keys(c.arrivals);
  const auto scheduler = find_scheduler(c.scheduler)->make(c.config, keys);
  StepPlan plan;
  StepOutcome outcome;
  std::vector<std::string> steps;
  for (int step = 0; step < 40; ++step) {
    for (const Arrival& a : c.arrivals) {
      if (a.step == step) {
        scheduler->add_request({.id = static_cast<RequestId>(a.name),
                                .prompt_tokens = a.prompt,
                                .max_tokens = a.max_tokens,
                                .priority = a.priority,
                                .arrival = step,
                                .reserve_output_tokens = a.max_tokens});
      }
    }
    scheduler->plan_step(plan);
    steps.push_back(written(*scheduler, plan));
    scheduler->update({}, outcome);
  }
  while (!steps.empty() && steps.back().empty()) {
    steps.pop_back();
  }
  EXPECT_EQ(steps, c.steps);
  EXPECT_FALSE(scheduler->has_requests());
  EXPECT_EQ(scheduler->load().free_blocks, scheduler->load().usable_blocks) << "CONSERVE_BLOCKS";
}

INSTANTIATE_TEST_SUITE_P(, Baseline, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Baselines, SayWhatTheyCannotDo) {
  ContentKeys keys({});
  SchedulerConfig async = small(10, 8);
  async.async_scheduling = true;
  EXPECT_THROW((void)find_scheduler("sarathi")->make(async, keys), ConfigError);
  SchedulerConfig caching = small(10, 8);
  caching.enable_prefix_caching = true;
  EXPECT_THROW((void)find_scheduler("orca")->make(caching, keys), ConfigError);
}

TEST(Baselines, FullSwapSpaceStopsTheRun) {
  ContentKeys keys({});
  SchedulerConfig config = v0_swapping(5);
  config.num_cpu_blocks = 1;
  const auto scheduler = find_scheduler("vllm-v0")->make(config, keys);
  scheduler->add_request({.id = 'a', .prompt_tokens = 8, .max_tokens = 6});
  scheduler->add_request({.id = 'b', .prompt_tokens = 7, .max_tokens = 6});
  StepPlan plan;
  StepOutcome outcome;
  scheduler->plan_step(plan);
  scheduler->update({}, outcome);
  EXPECT_THROW(scheduler->plan_step(plan), ConfigError) << "2 blocks to swap out, room for 1";
}

}  // namespace
}  // namespace kneepoint::engine
