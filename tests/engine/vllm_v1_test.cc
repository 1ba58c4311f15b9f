// Rules of vllm-v1 that no recording shows, worked by hand in blocks of 16.
#include "engine/vllm_v1.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kneepoint::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Every request has blocks of its own, unless it is told to share those of another.
class Keys final : public BlockKeySource {
 public:
  BlockKey block_key(RequestId id, std::int32_t index) override {
    return {.high = shares_all ? 0 : id, .low = static_cast<std::uint64_t>(index)};
  }
  bool shares_all = false;
};

class VllmV1Test : public testing::Test {
 protected:
  static SchedulerConfig config(std::int64_t num_blocks) {
    SchedulerConfig config;
    config.num_blocks = num_blocks;
    return config;
  }

  static NewRequest request(RequestId id, std::int32_t prompt, std::int32_t max_tokens = 16,
                            AdapterId adapter = 0) {
    NewRequest r;
    r.id = id;
    r.prompt_tokens = prompt;
    r.max_tokens = max_tokens;
    r.adapter = adapter;
    return r;
  }

  /// Plans one step: "id:tokens@computed" for each request of it.
  std::vector<std::string> plan(VllmV1& engine) {
    engine.plan_step(plan_);
    std::vector<std::string> step;
    engine.for_each_scheduled([&](const ScheduledRequest& s) {
      step.push_back(std::to_string(s.id) + ":" + std::to_string(s.num_scheduled_tokens) + "@" +
                     std::to_string(s.num_computed_tokens));
    });
    return step;
  }

  void update(VllmV1& engine) { engine.update(result_, outcome_); }

  Keys keys_;
  StepPlan plan_;
  StepResult result_;
  StepOutcome outcome_;
};

// One slot. 1 and 3 use adapter 7, 2 uses adapter 8, 4 the base model: 2 is set aside and passed by both.
// When 1 and 3 have ended (2 outputs each), 2 gets the slot.
TEST_F(VllmV1Test, WhoLacksAnAdapterSlotIsPassed) {
  SchedulerConfig with = config(100);
  with.max_loras = 1;
  VllmV1 engine(with, keys_);
  engine.add_request(request(1, 10, 2, 7));
  engine.add_request(request(2, 10, 2, 8));
  engine.add_request(request(3, 10, 2, 7));
  engine.add_request(request(4, 10, 3, 0));
  EXPECT_THAT(plan(engine), ElementsAre("1:10@0", "3:10@0", "4:10@0"));
  EXPECT_EQ(plan_.admission_stop, AdmissionStop::kAdapterSlots);
  EXPECT_EQ(plan_.not_admitted, 2U);
  ASSERT_EQ(engine.waiting().size(), 1U);
  EXPECT_TRUE(engine.waiting().front().deferred);
  update(engine);
  EXPECT_THAT(plan(engine), ElementsAre("1:1@10", "3:1@10", "4:1@10"));
  update(engine);
  EXPECT_THAT(plan(engine), ElementsAre("4:1@11", "2:10@0"));
  EXPECT_EQ(plan_.admission_stop, AdmissionStop::kQueueEmpty);
  EXPECT_EQ(plan_.not_admitted, kNoRequest);
}

// With two slots the second adapter gets one at once.
TEST_F(VllmV1Test, TwoSlotsServeTwoAdapters) {
  SchedulerConfig with = config(100);
  with.max_loras = 2;
  VllmV1 engine(with, keys_);
  for (RequestId id = 1; id <= 3; ++id) {
    engine.add_request(request(id, 10, 2, id));
  }
  EXPECT_THAT(plan(engine), ElementsAre("1:10@0", "2:10@0"));
  EXPECT_EQ(plan_.not_admitted, 3U);
}

// 4 usable blocks. 70 tokens need cdiv(70, 16) = 5: never. 64 need 4: they fit.
TEST_F(VllmV1Test, SaysWhatTheHeadNeeds) {
  VllmV1 engine(config(5), keys_);
  EXPECT_EQ(engine.blocks_needed_by_head(), 0);
  EXPECT_EQ(engine.waiting_head(), kNoRequest);
  engine.add_request(request(1, 70));
  engine.add_request(request(2, 10));
  EXPECT_EQ(engine.waiting_head(), 1U);
  EXPECT_EQ(engine.blocks_needed_by_head(), 5);
  EXPECT_EQ(engine.load().usable_blocks, 4);
  EXPECT_THAT(plan(engine), IsEmpty());
  EXPECT_EQ(plan_.admission_stop, AdmissionStop::kKvBlocks);
  update(engine);
  engine.abort_request(1);
  EXPECT_EQ(engine.blocks_needed_by_head(), 1);
  EXPECT_THAT(plan(engine), ElementsAre("2:10@0"));
  EXPECT_THAT(plan_.finished, ElementsAre(1U));
}

// Without a reserve its first chunk of 32 tokens gets in, but before its first token all 70 must be there.
TEST_F(VllmV1Test, WithoutReserveTheHeadStillNeedsItsWholePrompt) {
  SchedulerConfig with = config(5);
  with.scheduler_reserve_full_isl = false;
  with.max_num_batched_tokens = 32;
  VllmV1 engine(with, keys_);
  engine.add_request(request(1, 70));
  EXPECT_EQ(engine.blocks_needed_by_head(), 5);
  EXPECT_THAT(plan(engine), ElementsAre("1:32@0"));
}

// 1 has computed 32 tokens, 2 shares them and hits min(32, (33 - 1) / 16 blocks) = 32 of its 33. Query
// tokens count the whole prompt, 32 + 33.
TEST_F(VllmV1Test, CountsHitsAtAdmission) {
  keys_.shares_all = true;
  VllmV1 engine(config(100), keys_);
  engine.add_request(request(1, 32));
  engine.add_request(request(2, 33));
  EXPECT_THAT(plan(engine), ElementsAre("1:32@0", "2:1@32"));
  EXPECT_EQ(engine.prefix_cache_stats().query_tokens, 65);
  EXPECT_EQ(engine.prefix_cache_stats().hit_tokens, 32);
  EXPECT_EQ(engine.prefix_cache_stats().resumed_query_tokens, 0);
}

// 4 usable blocks, both of 31 tokens hold 2. At S1 each has 32 tokens, at S2 33: 1 needs a third block,
// takes those of 2, which has 33 tokens to compute again when it resumes, and hits what was its own.
TEST_F(VllmV1Test, ResumptionsAreCountedApart) {
  VllmV1 engine(config(5), keys_);
  engine.add_request(request(1, 31, 3));
  engine.add_request(request(2, 31, 9));
  for (const char* decode : {"31@0", "1@31"}) {
    EXPECT_THAT(plan(engine), ElementsAre(std::string("1:") + decode, std::string("2:") + decode));
    update(engine);
  }
  EXPECT_THAT(plan(engine), ElementsAre("1:1@32"));
  EXPECT_THAT(plan_.preempted, ElementsAre(2U));
  EXPECT_EQ(plan_.admission_stop, AdmissionStop::kPreempted);
  EXPECT_EQ(plan_.not_admitted, 2U);
  update(engine);
  ASSERT_EQ(outcome_.emitted.size(), 1U);
  EXPECT_EQ(outcome_.emitted[0].finish, FinishReason::kLength);
  // 2's blocks went to the tail as block 4, then 3; 1 took 4, and gave it back without a key.
  EXPECT_THAT(plan(engine), ElementsAre("2:17@16"));
  EXPECT_EQ(engine.prefix_cache_stats().query_tokens, 62);
  EXPECT_EQ(engine.prefix_cache_stats().resumed_query_tokens, 33);
  EXPECT_EQ(engine.prefix_cache_stats().resumed_hit_tokens, 16);
}

// Interval 3. The clock of turns is told once and then runs by itself: turns 5, 6: at 5 prompts wait
// beside the decode of 1, at 6 they do not.
TEST_F(VllmV1Test, CountsTurnsOnFromTheOneItWasTold) {
  SchedulerConfig with = config(100);
  with.prefill_schedule_interval = 3;
  VllmV1 engine(with, keys_);
  engine.add_request(request(1, 10, 20));
  EXPECT_THAT(plan(engine), ElementsAre("1:10@0"));
  update(engine);
  engine.add_request(request(2, 10, 20));
  engine.set_engine_turn(5);
  EXPECT_THAT(plan(engine), ElementsAre("1:1@10"));
  EXPECT_EQ(plan_.admission_stop, AdmissionStop::kThrottled);
  EXPECT_EQ(plan_.not_admitted, 2U);
  update(engine);
  EXPECT_THAT(plan(engine), ElementsAre("1:1@11", "2:10@0"));
}

// Two steps in flight; 1 goes while both compute for it. Its blocks are free at once, the results say
// nothing of it, the next plan reports it.
TEST_F(VllmV1Test, AnAbortInFlightLeavesNothingBehind) {
  SchedulerConfig with = config(100);
  with.async_scheduling = true;
  VllmV1 engine(with, keys_);
  engine.add_request(request(1, 40));
  engine.add_request(request(2, 40));
  EXPECT_THAT(plan(engine), ElementsAre("1:40@0", "2:40@0"));
  EXPECT_THAT(plan(engine), ElementsAre("1:1@40", "2:1@40"));
  engine.abort_request(1);
  engine.abort_request(1);
  EXPECT_EQ(engine.load().free_blocks, 99 - 3);
  for (int result = 0; result < 2; ++result) {
    result_.exceptions = {{.id = 1, .num_tokens = 1, .stop_at = 0}};  // For somebody who is gone.
    update(engine);
    ASSERT_EQ(outcome_.emitted.size(), 1U);
    EXPECT_EQ(outcome_.emitted[0].id, 2U);
  }
  EXPECT_THAT(plan(engine), ElementsAre("2:1@41"));
  EXPECT_THAT(plan_.finished, ElementsAre(1U));
}

// The cohort holds plain decodes only; a chunk, an admission and a request with drafts stand apart.
TEST_F(VllmV1Test, TheCohortIsPlainDecodes) {
  SchedulerConfig with = config(100);
  with.max_num_batched_tokens = 50;
  VllmV1 engine(with, keys_);
  engine.add_request(request(1, 20));
  engine.add_request(request(2, 10));
  EXPECT_THAT(plan(engine), ElementsAre("1:20@0", "2:10@0"));
  EXPECT_EQ(plan_.cohort.count, 0);
  EXPECT_EQ(plan_.individual.size(), 2U);
  update(engine);
  engine.add_request(request(3, 100));
  EXPECT_THAT(plan(engine), ElementsAre("1:1@20", "2:1@10", "3:48@0"));
  EXPECT_EQ(plan_.cohort.count, 2);
  EXPECT_EQ(plan_.cohort.context_sum, 21 + 11);
  EXPECT_EQ(plan_.cohort.context_max, 21);
  ASSERT_EQ(plan_.individual.size(), 1U);
  EXPECT_FALSE(plan_.individual[0].samples);
  EXPECT_FALSE(plan_.individual[0].has_output);
  EXPECT_EQ(plan_.num_tokens, 50);
}

}  // namespace
}  // namespace kneepoint::engine
