// One or two requests through the whole loop, every time stamp worked by hand.
//
// The toy server's step takes 1 ms plus 10 us a token; a front end of 2 ms in and
// 0.5 ms out where a case has one.
#include "sim/event_loop.h"

#include <gtest/gtest.h>

#include "tests/support/toy_run.h"

namespace kneepoint::sim {
namespace {

using namespace std::chrono_literals;
using testing_support::Records;
using testing_support::request_at;
using testing_support::run_toy;
using testing_support::toy_config;
using testing_support::ToyStepTimes;

SimTime at(SimDuration since_start) { return SimTime(since_start); }

ToyStepTimes toy_times() {
  ToyStepTimes times;
  times.fixed = 1ms;
  times.per_token = 10us;
  return times;
}

TEST(EventLoop, AnUnloadedRequestTakesTheSumOfItsSteps) {
  // Budget 64, prompt 100: chunks of 64 and 36, then two decodes of one token.
  //   64: 1 ms + 0.64 ms; 36: 1 ms + 0.36 ms; each decode 1.01 ms.
  // Arrival 5 ms, so first token at 5 + 1.64 + 1.36 = 8 ms, then 9.01 and 10.02.
  RunConfig config = toy_config();
  config.engine.max_num_batched_tokens = 64;
  Records records;
  const RunSummary summary = run_toy(config, toy_times(), {request_at(5ms, 100, 3)}, {&records});
  ASSERT_EQ(records.all.size(), 1u);
  const RequestRecord& record = records.all[0];
  EXPECT_EQ(record.sent, at(5ms));
  EXPECT_EQ(record.queued, at(5ms));
  EXPECT_EQ(record.scheduled, at(5ms));
  EXPECT_EQ(record.first_token, at(8ms));
  EXPECT_EQ(record.last_token, at(10020us));
  EXPECT_EQ(record.output_tokens, 3);
  EXPECT_EQ(record.end, RequestEnd::kLength);
  EXPECT_EQ(summary.steps, 4);
  EXPECT_EQ(summary.scheduled_tokens, 64 + 36 + 1 + 1);
  EXPECT_EQ(summary.device_busy, 1640us + 1360us + 1010us + 1010us);
}

TEST(EventLoop, TheFrontEndDelaysArrivalAndOutput) {
  // Sent 0, seen by the engine at 2 ms, step of 10 tokens ends at 3.1 ms, its
  // token is at the client at 3.6 ms; the decode ends at 4.11, at the client 4.61.
  ToyStepTimes times = toy_times();
  times.front.arrival = 2ms;
  times.front.output = 500us;
  Records records;
  (void)run_toy(toy_config(), times, {request_at(0ms, 10, 2)}, {&records});
  const RequestRecord& record = records.all.at(0);
  EXPECT_EQ(record.queued, at(2ms));
  EXPECT_EQ(record.first_token, at(3600us));
  EXPECT_EQ(record.last_token, at(4610us));
}

TEST(EventLoop, AnArrivalDuringAStepJoinsTheNext) {
  // a: 100 tokens at 0, step until 2 ms. b: 50 tokens at 1 ms waits for it, then
  // both: 1 + 50 tokens, 1.51 ms, until 3.51 ms. a's second token and b's first.
  Records records;
  (void)run_toy(toy_config(), toy_times(), {request_at(0ms, 100, 2), request_at(1ms, 50, 1)}, {&records});
  ASSERT_EQ(records.all.size(), 2u);
  EXPECT_EQ(records.all[0].index, 0u);
  EXPECT_EQ(records.all[0].last_token, at(3510us));
  EXPECT_EQ(records.all[1].scheduled, at(2ms));
  EXPECT_EQ(records.all[1].first_token, at(3510us));
}

TEST(EventLoop, AnArrivalAsAStepEndsJoinsTheStepThatBeginsThen) {
  Records records;
  (void)run_toy(toy_config(), toy_times(), {request_at(0ms, 100, 2), request_at(2ms, 50, 1)}, {&records});
  EXPECT_EQ(records.all.at(1).scheduled, at(2ms));
  EXPECT_EQ(records.all.at(1).first_token, at(3510us));
}

TEST(EventLoop, AsynchronousSchedulingHidesTheHostsTime) {
  // Host 0.4 ms a step, prompt 10, 3 outputs. Synchronous: every step waits for
  // its own host time: 3 (0.4) + 1.1 + 1.01 + 1.01 = 4.32 ms. Asynchronous: only
  // the first does, the others are planned a step ahead: 0.4 + 3.12 = 3.52 ms.
  ToyStepTimes times = toy_times();
  times.host = 400us;
  for (const bool async : {false, true}) {
    RunConfig config = toy_config();
    config.engine.async_scheduling = async;
    Records records;
    (void)run_toy(config, times, {request_at(0ms, 10, 3)}, {&records});
    EXPECT_EQ(records.all.at(0).last_token, at(async ? 3520us : 4320us)) << "async " << async;
  }
}

TEST(EventLoop, AnEosEndsARequestThatAskedForMore) {
  traces::TraceRecord request = request_at(0ms, 10, 3);
  request.ends_by = traces::EndsBy::kEos;
  request.max_tokens = 50;
  for (const bool async : {false, true}) {
    RunConfig config = toy_config();
    config.engine.async_scheduling = async;
    Records records;
    const RunSummary summary = run_toy(config, toy_times(), {request}, {&records});
    EXPECT_EQ(records.all.at(0).end, RequestEnd::kStop);
    EXPECT_EQ(records.all.at(0).output_tokens, 3);
    EXPECT_EQ(summary.steps, async ? 4 : 3) << "asynchronously one decode is wasted";
  }
}

TEST(EventLoop, APromptAsLongAsTheContextIsRefusedAlone) {
  RunConfig config = toy_config();
  config.engine.max_model_len = 100;
  Records records;
  (void)run_toy(config, toy_times(), {request_at(0ms, 100, 1), request_at(0ms, 99, 5)}, {&records});
  ASSERT_EQ(records.all.size(), 2u);
  EXPECT_EQ(records.all[0].end, RequestEnd::kPromptTooLong);
  EXPECT_EQ(records.all[0].queued, kNever);
  EXPECT_EQ(records.all[1].end, RequestEnd::kLength);
  EXPECT_EQ(records.all[1].output_tokens, 1) << "99 + 1 is the whole context";
}

TEST(EventLoop, AClientThatGivesUpIsAFailureAndFreesItsBlocks) {
  // Budget 10: the prompt of 100 needs ten steps of 1.1 ms; the client waits 5 ms.
  RunConfig config = toy_config();
  config.engine.max_num_batched_tokens = 10;
  config.client.timeout = 5ms;
  Records records;
  const RunSummary summary = run_toy(config, toy_times(), {request_at(0ms, 100, 1)}, {&records});
  EXPECT_EQ(records.all.at(0).end, RequestEnd::kClientTimeout);
  EXPECT_EQ(records.all.at(0).last_token, at(5ms));
  EXPECT_EQ(records.all.at(0).output_tokens, 0);
  EXPECT_LE(summary.steps, 6) << "nothing is computed for it after the abort";
}

TEST(EventLoop, ARequestThatNeverFitsEndsAndTheOthersGoOn) {
  // 3 usable blocks of 16; the head needs 4. vLLM would hang at 0 ms.
  RunConfig config = toy_config(4);
  Records records;
  const RunSummary summary =
      run_toy(config, toy_times(), {request_at(0ms, 60, 1), request_at(1ms, 20, 1)}, {&records});
  ASSERT_EQ(records.all.size(), 2u);
  EXPECT_EQ(records.all[0].end, RequestEnd::kNeverFits);
  EXPECT_EQ(records.all[1].end, RequestEnd::kLength);
  EXPECT_EQ(summary.never_fit, 1);
  EXPECT_EQ(summary.hangs_from, at(0ms));
}

TEST(EventLoop, AClientMayGiveUpWhileARefusalIsOnItsWay) {
  // The head of above, refused at 0 ms; the refusal takes 10 ms, the client waits 5.
  RunConfig config = toy_config(4);
  config.client.timeout = 5ms;
  testing_support::ToyStepTimes times = toy_times();
  times.front.output = 10ms;
  Records records;
  const RunSummary summary = run_toy(config, times, {request_at(0ms, 60, 1)}, {&records});
  ASSERT_EQ(records.all.size(), 1u);
  EXPECT_EQ(records.all[0].end, RequestEnd::kClientTimeout);
  EXPECT_EQ(records.all[0].last_token, at(5ms));
  EXPECT_EQ(summary.never_fit, 1);
}

TEST(EventLoop, ARequestThatOutgrowsThePoolEndsToo) {
  // 2 usable blocks; 30 tokens and 20 to come: the 33rd needs a third block. It
  // preempts itself and could wait forever.
  RunConfig config = toy_config(3);
  Records records;
  const RunSummary summary = run_toy(config, toy_times(), {request_at(0ms, 30, 20)}, {&records});
  EXPECT_EQ(records.all.at(0).end, RequestEnd::kNeverFits);
  EXPECT_EQ(records.all.at(0).preemptions, 1);
  EXPECT_EQ(summary.never_fit, 1);
}

TEST(EventLoop, WithoutReserveARequestLargerThanThePoolIsNotPreemptedForever) {
  // 3 usable blocks of 16, chunks of 16: three of the four chunks of 60 tokens get
  // blocks, then it preempts itself, alone, and would do so again and again.
  RunConfig config = toy_config(4);
  config.engine.scheduler_reserve_full_isl = false;
  config.engine.max_num_batched_tokens = 16;
  Records records;
  const RunSummary summary =
      run_toy(config, toy_times(), {request_at(0ms, 60, 1), request_at(1ms, 20, 1)}, {&records});
  ASSERT_EQ(records.all.size(), 2u);
  EXPECT_EQ(records.all[0].end, RequestEnd::kNeverFits);
  EXPECT_EQ(records.all[1].end, RequestEnd::kLength);
  EXPECT_FALSE(summary.storm);
}

TEST(EventLoop, ASwappedRequestThatTheWatermarkKeepsOutEnds) {
  // vllm-v0, 10 blocks, 5 of them watermark. Prompts of 40 and 32 tokens take 3 + 2
  // and leave 5, just enough. Both grow until all 10 are held, five each; then the
  // second is swapped out. To come back it needs its 5, one more and the watermark:
  // 11 of 10, even when the first is gone.
  RunConfig config = toy_config(10);
  config.scheduler = "vllm-v0";
  config.engine.enable_chunked_prefill = false;
  config.engine.enable_prefix_caching = false;
  config.engine.watermark = 0.5;
  config.engine.preemption_mode_swap = true;
  config.engine.num_cpu_blocks = 100;
  Records records;
  const RunSummary summary =
      run_toy(config, toy_times(), {request_at(0ms, 40, 60), request_at(1ms, 32, 70)}, {&records});
  ASSERT_EQ(records.all.size(), 2u);
  EXPECT_EQ(records.all[0].end, RequestEnd::kLength);
  EXPECT_EQ(records.all[1].end, RequestEnd::kNeverFits);
  EXPECT_EQ(summary.never_fit, 1);
}

TEST(EventLoop, APolicyThatNeverPlansItsHeadDoesNotHangTheRun) {
  // vllm-v0 with chunks and prefix caching computes parts of prompts in whole
  // blocks: with a budget of 8 tokens and blocks of 16 there is none.
  RunConfig config = toy_config();
  config.scheduler = "vllm-v0";
  config.engine.enable_prefix_caching = true;
  config.engine.max_num_batched_tokens = 8;
  Records records;
  (void)run_toy(config, toy_times(), {request_at(0ms, 60, 1), request_at(1ms, 8, 1)}, {&records});
  ASSERT_EQ(records.all.size(), 2u);
  EXPECT_EQ(records.all[0].end, RequestEnd::kIgnored);
  EXPECT_EQ(records.all[1].end, RequestEnd::kLength);
}

TEST(EventLoop, TheQueueLimitsRefuseByReason) {
  RunConfig config = toy_config();
  config.admission.max_num_queued_reqs = 2;
  Records records;
  (void)run_toy(config, toy_times(), {request_at(0ms, 10, 1), request_at(0ms, 10, 1), request_at(0ms, 10, 1)},
                {&records});
  ASSERT_EQ(records.all.size(), 3u);
  EXPECT_EQ(records.all[0].end, RequestEnd::kQueuedReqsLimit);
  EXPECT_EQ(records.all[0].index, 2u);

  // Below the limit of 15 prompt tokens a prompt of any length gets in, at it none.
  config.admission = {};
  config.admission.max_num_queued_tokens = 15;
  records.all.clear();
  (void)run_toy(config, toy_times(), {request_at(0ms, 14, 1), request_at(0ms, 90, 1), request_at(0ms, 1, 1)},
                {&records});
  EXPECT_EQ(records.all.at(0).end, RequestEnd::kQueuedTokensLimit);
  EXPECT_EQ(records.all.at(0).index, 2u);
}

TEST(EventLoop, AClosedLoopKeepsSoManyUnderWay) {
  // Three requests of one step each (10 tokens, 1.1 ms), one at a time.
  RunConfig config = toy_config();
  config.client.max_concurrency = 1;
  Records records;
  (void)run_toy(config, toy_times(), {request_at(0ms, 10, 1), request_at(0ms, 10, 1), request_at(0ms, 10, 1)},
                {&records});
  ASSERT_EQ(records.all.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(records.all[static_cast<std::size_t>(i)].arrival, at(0ms));
    EXPECT_EQ(records.all[static_cast<std::size_t>(i)].sent, at(i * 1100us));
    EXPECT_EQ(records.all[static_cast<std::size_t>(i)].last_token, at((i + 1) * 1100us));
  }
}

}  // namespace
}  // namespace kneepoint::sim
