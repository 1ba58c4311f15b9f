// Which configurations are refused, and what the message says to do.
#include "engine/scheduler_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/request.h"
#include "engine/step_plan.h"

namespace kneepoint::engine {
namespace {

using testing::HasSubstr;

SchedulerConfig good() {
  SchedulerConfig config;
  config.num_blocks = 1000;
  return config;
}

std::string error_of(const SchedulerConfig& config) {
  try {
    validate(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct Refused {
  const char* message;
  void (*spoil)(SchedulerConfig&);
};

const Refused kRefused[] = {
    {"max-num-batched-tokens is 0", [](SchedulerConfig& c) { c.max_num_batched_tokens = 0; }},
    {"max-num-scheduled-tokens is 0", [](SchedulerConfig& c) { c.max_num_scheduled_tokens = 0; }},
    {"max-num-scheduled-tokens (4096) is above",
     [](SchedulerConfig& c) { c.max_num_scheduled_tokens = 4096; }},
    {"max-num-seqs is 0", [](SchedulerConfig& c) { c.max_num_seqs = 0; }},
    {"max-num-active-seqs is 129; give a value from 1 to 128",
     [](SchedulerConfig& c) { c.max_num_active_seqs = 129; }},
    {"max-model-len is 1", [](SchedulerConfig& c) { c.max_model_len = 1; }},
    {"max-model-len is 2147483648", [](SchedulerConfig& c) { c.max_model_len = 2147483648; }},
    {"long-prefill-token-threshold is -1", [](SchedulerConfig& c) { c.long_prefill_token_threshold = -1; }},
    {"long-prefill-token-threshold is 9000",
     [](SchedulerConfig& c) { c.long_prefill_token_threshold = 9000; }},
    {"prefill-schedule-interval is 0", [](SchedulerConfig& c) { c.prefill_schedule_interval = 0; }},
    {"block-size is 0", [](SchedulerConfig& c) { c.block_size = 0; }},
    {"num-gpu-blocks is 1", [](SchedulerConfig& c) { c.num_blocks = 1; }},
    {"watermark is 1", [](SchedulerConfig& c) { c.watermark = 1.0; }},
    {"watermark is -0.1", [](SchedulerConfig& c) { c.watermark = -0.1; }},
    {"sliding window is 0", [](SchedulerConfig& c) { c.sliding_window = 0; }},
    {"max-loras is 0", [](SchedulerConfig& c) { c.max_loras = 0; }},
    {"pipeline-parallel-size is 0", [](SchedulerConfig& c) { c.pipeline_parallel_size = 0; }},
    {"batches in flight is 0", [](SchedulerConfig& c) { c.depth = 0; }},
    {"below max-model-len (8192); raise the one",
     [](SchedulerConfig& c) { c.enable_chunked_prefill = false; }},
    {"the model has no sliding window", [](SchedulerConfig& c) { c.prefix_cache_retention_interval = 64; }},
    {"no multiple of block-size (16)",
     [](SchedulerConfig& c) {
       c.sliding_window = 128;
       c.prefix_cache_retention_interval = 40;
     }},
    {"num-speculative-tokens is 0", [](SchedulerConfig& c) { c.spec_method = SpeculativeMethod::kEagle; }},
    {"without a speculative method", [](SchedulerConfig& c) { c.num_speculative_tokens = 2; }},
    {"async scheduling does not wait for",
     [](SchedulerConfig& c) {
       c.spec_method = SpeculativeMethod::kNgram;
       c.num_speculative_tokens = 2;
       c.async_scheduling = true;
     }},
    {"leaves no token beside the draft slots",
     [](SchedulerConfig& c) {
       c.spec_method = SpeculativeMethod::kDraftModel;
       c.num_speculative_tokens = 2;
       c.max_num_batched_tokens = 1;
     }},
    {"leave it 0", [](SchedulerConfig& c) { c.scheduler_delay_factor = 0.5; }},
};

TEST(SchedulerConfig, RefusesWhatContradictsItself) {
  ASSERT_EQ(error_of(good()), "");
  for (const Refused& row : kRefused) {
    SchedulerConfig config = good();
    row.spoil(config);
    EXPECT_THAT(error_of(config), HasSubstr(row.message));
  }
}

struct Accepted {
  const char* story;
  void (*change)(SchedulerConfig&);
};

const Accepted kAccepted[] = {
    {"dense retention without a window",
     [](SchedulerConfig& c) { c.prefix_cache_retention_interval.reset(); }},
    {"retention of two blocks with one",
     [](SchedulerConfig& c) {
       c.sliding_window = 128;
       c.prefix_cache_retention_interval = 32;
     }},
    {"whole prompts that fit",
     [](SchedulerConfig& c) {
       c.enable_chunked_prefill = false;
       c.max_num_batched_tokens = c.max_model_len;
     }},
    {"eagle while async",
     [](SchedulerConfig& c) {
       c.spec_method = SpeculativeMethod::kEagle;
       c.num_speculative_tokens = 3;
       c.async_scheduling = true;
     }},
    {"fewer tokens than sequences", [](SchedulerConfig& c) { c.max_num_batched_tokens = 11; }},
};

TEST(SchedulerConfig, AcceptsWhatVllmAccepts) {
  for (const Accepted& row : kAccepted) {
    SchedulerConfig config = good();
    row.change(config);
    EXPECT_EQ(error_of(config), "") << row.story;
  }
}

// Sync: pp. Async: pp + 1 on the V2 runner; on the V1 runner 2 if pp = 1, else pp.
struct Depth {
  bool async;
  bool v2;
  std::int64_t pp;
  std::int64_t depth;
};

const Depth kDepths[] = {{false, false, 1, 1}, {false, true, 1, 1}, {false, true, 3, 3}, {true, false, 1, 2},
                         {true, false, 2, 2},  {true, false, 4, 4}, {true, true, 1, 2},  {true, true, 2, 3}};

TEST(SchedulerConfig, BatchesInFlight) {
  for (const Depth& row : kDepths) {
    SchedulerConfig config = good();
    config.async_scheduling = row.async;
    config.use_v2_model_runner = row.v2;
    config.pipeline_parallel_size = row.pp;
    EXPECT_EQ(batches_in_flight(config), row.depth) << row.async << row.v2 << row.pp;
    config.depth = 7;
    EXPECT_EQ(batches_in_flight(config), 7);
  }
}

TEST(Names, AreThoseOfReportsAndTraces) {
  EXPECT_EQ(finish_reason_name(FinishReason::kNone), "");
  EXPECT_EQ(finish_reason_name(FinishReason::kStop), "STOP");
  EXPECT_EQ(finish_reason_name(FinishReason::kLength), "LENGTH");
  EXPECT_EQ(finish_reason_name(FinishReason::kAborted), "ABORT");
  EXPECT_EQ(finish_reason_name(FinishReason::kIgnored), "IGNORED");
  EXPECT_EQ(admission_stop_name(AdmissionStop::kKvBlocks), "kv_blocks");
  EXPECT_EQ(admission_stop_name(AdmissionStop::kTokenBudget), "token_budget");
  EXPECT_EQ(admission_stop_name(AdmissionStop::kDraftRoom), "draft_room");
}

TEST(StepPlan, ClearLeavesAnEmptyPlan) {
  StepPlan plan;
  plan.step = 3;
  plan.individual.push_back({});
  plan.cohort = {1, 2, 3};
  plan.num_tokens = 4;
  plan.preempted = {1};
  plan.finished = {2};
  plan.finished_reason = {FinishReason::kIgnored};
  plan.admission_stop = AdmissionStop::kKvBlocks;
  plan.not_admitted = 5;
  plan.blocks_swapped_in = plan.blocks_swapped_out = 6;
  plan.clear();
  EXPECT_EQ(plan.step, 0);
  EXPECT_EQ(plan.num_requests(), 0);
  EXPECT_EQ(plan.cohort.context_sum, 0);
  EXPECT_EQ(plan.cohort.context_max, 0);
  EXPECT_EQ(plan.num_tokens, 0);
  EXPECT_TRUE(plan.preempted.empty() && plan.finished.empty() && plan.finished_reason.empty());
  EXPECT_EQ(plan.admission_stop, AdmissionStop::kQueueEmpty);
  EXPECT_EQ(plan.not_admitted, kNoRequest);
  EXPECT_EQ(plan.blocks_swapped_in, 0);
  EXPECT_EQ(plan.blocks_swapped_out, 0);
}

}  // namespace
}  // namespace kneepoint::engine
