// The parts of a knee search, each against values worked by hand.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "sim/interval.h"
#include "sim/knee_report.h"
#include "sim/knee_workload.h"
#include "sim/kneedle.h"
#include "sim/saturation.h"
#include "sim/slo.h"
#include "sim/usage_error.h"
#include "sim/warm_up.h"
#include "tests/support/toy_run.h"

namespace kneepoint::sim {
namespace {

using namespace std::chrono_literals;

// ---- intervals

TEST(Interval, IsStudents) {
  // 1, 2, 3, 4, 5: mean 3, s^2 = 10 / 4, standard error sqrt(2.5 / 5) = 0.70711, t(4) = 2.776.
  const std::vector<double> values{1, 2, 3, 4, 5};
  const Estimate estimate = mean_with_interval(values);
  EXPECT_DOUBLE_EQ(estimate.value, 3);
  EXPECT_NEAR(estimate.half_width, 2.776 * 0.7071068, 1e-4);
}

TEST(Interval, ManyDegreesApproachTheNormal) {
  EXPECT_NEAR(student_t_95(60), 2.000, 0.001);   // Tables: 2.000.
  EXPECT_NEAR(student_t_95(120), 1.980, 0.001);  // 1.980.
  EXPECT_NEAR(student_t_95(100000), 1.960, 0.001);
}

// ---- warm-up

TEST(WarmUp, CutsAStepAtItsEdge) {
  // 50 zeros, then 450 values that alternate around 10: with the zeros cut what is left
  // has batch means of 9.8 and 10.2 only; any zero batch more adds 100 to the squares.
  std::vector<double> series(500, 0.0);
  for (std::size_t i = 50; i < series.size(); ++i) {
    series[i] = 10 + (i % 2 == 0 ? 1 : -1);
  }
  EXPECT_EQ(warm_up_length(series), 50U);
}

TEST(WarmUp, NothingToCut) {
  EXPECT_EQ(warm_up_length(std::vector<double>(400, 7.0)), 0U);
  EXPECT_EQ(warm_up_length(std::vector<double>(10, 7.0)), 0U);
}

TEST(WarmUp, ARunThatNeverSettlesIsNotCut) {
  // Ever rising: the later the cut the better, to the half where the rule ends.
  std::vector<double> series(400);
  for (std::size_t i = 0; i < series.size(); ++i) {
    series[i] = static_cast<double>(i * i);
  }
  EXPECT_EQ(warm_up_length(series), 0U);
}

// ---- the elbow

TEST(Kneedle, FindsTheCornerOfTwoLines) {
  // Flat to 8, then steep: after stretching to the unit square the corner (0.8, 0) is
  // 0.8 off the diagonal, and nothing else is as far.
  const std::vector<CurvePoint> curve{{0, 0}, {2, 0}, {4, 0}, {6, 0}, {8, 0}, {10, 100}};
  const auto elbow = find_elbow(curve);
  ASSERT_TRUE(elbow);
  EXPECT_NEAR(*elbow, 8, 0.2);  // The cubic leaves the corner horizontally.
}

TEST(Kneedle, FindsTheClosedFormOfAHyperbola) {
  // y = 1 / (1 - x) on [0, 0.9]: y' = (y - 1) / 9, x' = x / 0.9. The gap x' - y' is
  // largest where dy/dx = 9 / 0.9 = 10: (1 - x)^2 = 1 / 10, x = 0.6838.
  std::vector<CurvePoint> curve;
  for (int i = 0; i <= 18; ++i) {
    const double x = 0.05 * i;
    curve.push_back({x, 1 / (1 - x)});
  }
  EXPECT_NEAR(find_elbow(curve).value(), 0.6838, 0.01);
}

TEST(Kneedle, AStraightLineHasNone) {
  EXPECT_FALSE(find_elbow(std::vector<CurvePoint>{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}}));
  EXPECT_FALSE(find_elbow(std::vector<CurvePoint>{{0, 5}, {1, 5}, {2, 5}, {3, 5}}));
}

// ---- SLOs

RunLog log_of(const std::vector<std::int64_t>& ttft_ms) {
  RunLog log;
  log.requests = std::ssize(ttft_ms);
  for (std::size_t i = 0; i < ttft_ms.size(); ++i) {
    RequestLine line;
    line.sent_ns = static_cast<std::int64_t>(i) * 1'000'000'000;
    line.ttft_ns = ttft_ms[i] * 1'000'000;
    line.e2e_ns = line.ttft_ns + 90'000'000;
    line.output_tokens = 10;
    line.over = true;
    log.lines.push_back(line);
  }
  return log;
}

Slo slo_of(std::initializer_list<const char*> texts) {
  Slo slo;
  for (const char* text : texts) {
    add_slo(text, slo);
  }
  return slo;
}

TEST(SloMargin, IsTheLogarithmOfMeasuredOverAllowed) {
  const RunLog log = log_of({100, 200, 300, 400});
  EXPECT_DOUBLE_EQ(slo_margin({log, 0, 1, 0}, slo_of({"ttft:mean:250"})).value(), 0);
  EXPECT_DOUBLE_EQ(slo_margin({log, 0, 1, 0}, slo_of({"ttft:p100:200"})).value(), std::log(2));
  EXPECT_DOUBLE_EQ(slo_margin({log, 0, 1, 0}, slo_of({"ttft:median:500"})).value(), std::log(0.5));
  // 90 ms over 9 further tokens: 10 ms each.
  EXPECT_DOUBLE_EQ(slo_margin({log, 0, 1, 0}, slo_of({"tpot:p99:20"})).value(), std::log(0.5));
  // The worst of several counts.
  EXPECT_DOUBLE_EQ(slo_margin({log, 0, 1, 0}, slo_of({"tpot:p99:20", "ttft:p100:200"})).value(), std::log(2));
}

TEST(SloMargin, LeavesTheWarmUpOut) {
  const RunLog log = log_of({900, 900, 100, 100});
  EXPECT_DOUBLE_EQ(slo_margin({log, 2, 1, 0}, slo_of({"ttft:p99:100"})).value(), 0);
}

TEST(SloMargin, ASlowerServerStretchesAllButTheFrontEnd) {
  // 4 ms of the 104 are the front end's: twice as slow is 4 + 200 = 204.
  const RunLog log = log_of({104, 104, 104});
  EXPECT_DOUBLE_EQ(slo_margin({log, 0, 2, 4'000'000}, slo_of({"ttft:p99:204"})).value(), 0);
}

TEST(SloMargin, WhoWasTurnedAwayMetNothing) {
  RunLog log = log_of({100, 100, 100, 100});
  log.lines[3].end = RequestEnd::kQueuedReqsLimit;
  EXPECT_GT(slo_margin({log, 0, 1, 0}, slo_of({"ttft:p99:500"})).value(), 0);
  EXPECT_LT(slo_margin({log, 0, 1, 0}, slo_of({"ttft:p50:500"})).value(), 0);
  log.lines[3].end = RequestEnd::kPromptTooLong;  // At any load: says nothing about load.
  EXPECT_LT(slo_margin({log, 0, 1, 0}, slo_of({"ttft:p99:500"})).value(), 0);
}

TEST(SloMargin, Goodput) {
  const RunLog log = log_of({100, 200, 300, 400});
  Slo slo = slo_of({"goodput:0.75"});
  slo.good.ttft = 300ms;  // Three of four.
  EXPECT_DOUBLE_EQ(slo_margin({log, 0, 1, 0}, slo).value(), 0);
  slo.good.ttft = 299ms;
  EXPECT_DOUBLE_EQ(slo_margin({log, 0, 1, 0}, slo).value(), std::log(1.5));
}

TEST(SloMargin, AStoppedRunHasNone) {
  RunLog log = log_of({100});
  log.stopped = true;
  EXPECT_FALSE(slo_margin({log, 0, 1, 0}, slo_of({"ttft:p99:500"})));
}

struct WrongSlo {
  const char* text;
  const char* says;
};
class WrongSlos : public testing::TestWithParam<WrongSlo> {};
TEST_P(WrongSlos, AreRefusedWithAWayOut) {
  Slo slo;
  try {
    add_slo(GetParam().text, slo);
    FAIL() << "taken";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().says), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}
INSTANTIATE_TEST_SUITE_P(
    , WrongSlos,
    testing::Values(WrongSlo{"ttft", "ttft:p99:500"}, WrongSlo{"ttft:p99", "METRIC:STAT:MS"},
                    WrongSlo{"ttftt:p99:500", "did you mean 'ttft'"}, WrongSlo{"ttft:q99:500", "p0 to p100"},
                    WrongSlo{"ttft:p101:5", "p0 to p100"}, WrongSlo{"ttft:p99:0", "above 0"},
                    WrongSlo{"ttft:p99:5x", "milliseconds"}, WrongSlo{"goodput:1.5", "at most 1"}));

// ---- saturation

// `n` requests a second apart that find `queue(i)` others waiting and are served after as long.
template <typename Queue>
RunLog queue_log(std::int64_t n, Queue queue) {
  RunLog log = log_of(std::vector<std::int64_t>(static_cast<std::size_t>(n), 10));
  for (std::size_t i = 0; i < log.lines.size(); ++i) {
    log.lines[i].waiting = static_cast<std::int32_t>(queue(static_cast<double>(i)));
  }
  return log;
}

TEST(Saturation, AGrowingQueueHasATrend) {
  const TrendTest test = test_open_loop(queue_log(1000, [](double i) { return i / 10; }), 0);
  EXPECT_FALSE(test.keeps_up);
  EXPECT_GT(test.t, kTrendCriticalT);
}

TEST(Saturation, AQueueThatComesBackHasNone) {
  EXPECT_TRUE(
      test_open_loop(queue_log(1000, [](double i) { return 50 + 50 * std::sin(i / 7); }), 0).keeps_up);
  // One burst at the end: 19 blocks of 0 and one of d make t = 1.
  EXPECT_TRUE(test_open_loop(queue_log(1000, [](double i) { return i > 960 ? 300 : 0; }), 0).keeps_up);
  // Too slow to matter: 5 in a thousand of the arrivals.
  EXPECT_TRUE(test_open_loop(queue_log(1000, [](double i) { return i / 200; }), 0).keeps_up);
}

TEST(Saturation, AClientThatFallsBehindIsATrend) {
  // Meant to send 1000 in 1000 s, and took 1200: its sessions waited for answers.
  RunLog log = queue_log(1000, [](double) { return 0; });
  log.load = 1;
  EXPECT_FALSE(outlasts(test_open_loop(log, 0), 1));
  for (RequestLine& line : log.lines) {
    line.sent_ns = line.sent_ns / 10 * 12;
  }
  EXPECT_TRUE(outlasts(test_open_loop(log, 0), 1));
  EXPECT_FALSE(outlasts(test_open_loop(log, 0), 1.15)) << "at low load it took that long already";
}

TEST(Saturation, CapacityIsWhatGetsDone) {
  // One request is sent a second, one ends every two: half of capacity is missing.
  RunLog log = log_of(std::vector<std::int64_t>(1000, 10));
  for (std::size_t i = 0; i < log.lines.size(); ++i) {
    log.lines[i].e2e_ns = static_cast<std::int64_t>(i + 1) * 2'000'000'000 - log.lines[i].sent_ns;
  }
  EXPECT_NEAR(completion_rate(log).value(), 0.5, 1e-9);
}

// ---- workloads

std::vector<traces::TraceRecord> bursty_trace() {
  std::vector<traces::TraceRecord> trace;
  std::chrono::nanoseconds at{0};
  for (int i = 0; i < 400; ++i) {
    at += i % 10 == 0 ? 9s : 100ms;  // Ten requests at once, then a pause.
    traces::TraceRecord record = testing_support::request_at(at, 16 + i, 4);
    record.prompt = {{1, 0, 8},
                     {static_cast<std::uint64_t>(100 + i), 0, 8 + i}};  // A shared start, a text of its own.
    trace.push_back(record);
  }
  return trace;
}

TEST(KneeWorkload, MeanRateIsExactAndSeedsDiffer) {
  const auto workload = blocks_of_trace(bursty_trace(), std::nullopt);
  const auto a = workload->requests(1, 1000);
  const auto b = workload->requests(2, 1000);
  ASSERT_EQ(a.size(), 1000U);
  EXPECT_NEAR(static_cast<double>(a.back().arrival.count()), 1000e9, 10);
  EXPECT_NE(a, b);
  EXPECT_EQ(a, workload->requests(1, 1000));
}

TEST(KneeWorkload, BlocksKeepBursts) {
  // A tenth of the gaps is 9 s of 9.9 s in ten requests, in the trace and so in blocks of it: the long ones
  // are 9 / 9.9 x 10 = 9.09 mean gaps, the short ones 0.1.
  const auto requests = blocks_of_trace(bursty_trace(), std::nullopt)->requests(3, 1000);
  int longer = 0;
  for (std::size_t i = 1; i < requests.size(); ++i) {
    const double gap = static_cast<double>((requests[i].arrival - requests[i - 1].arrival).count()) / 1e9;
    longer += gap > 5 ? 1 : 0;
    EXPECT_TRUE(gap < 0.2 || gap > 5) << gap;
  }
  EXPECT_NEAR(longer, 100, 10);
}

TEST(KneeWorkload, ABlockDrawnTwiceSharesOnlyWhatTheTraceShares) {
  const auto requests = blocks_of_trace(bursty_trace(), std::nullopt)->requests(3, 2000);
  std::vector<std::uint64_t> own;
  for (const traces::TraceRecord& record : requests) {
    EXPECT_EQ(record.prompt[0].content, 1U);
    own.push_back(record.prompt[1].content);
  }
  std::sort(own.begin(), own.end());
  EXPECT_EQ(std::adjacent_find(own.begin(), own.end()), own.end())
      << "two requests share a text of their own";
}

TEST(KneeWorkload, LoadStretchesTime) {
  const auto requests = drawn_requests({"8", "4", 0}, 1.0)->requests(1, 100);
  LoadedWorkload twice(requests, 100, 2);
  Send send;
  ASSERT_TRUE(twice.next(send));
  EXPECT_NEAR(static_cast<double>(send.arrival.time_since_epoch().count()),
              static_cast<double>(requests[0].arrival.count()) / 2, 1);
}

}  // namespace
}  // namespace kneepoint::sim
