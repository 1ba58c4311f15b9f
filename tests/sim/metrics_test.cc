// Metrics of a run that fits on a page. Times in milliseconds:
//
//     request   arrival  sent  queued  scheduled  chunks at the client          tokens   end
//     0         0        0     1       2          100, 110, 130                 3        length
//     1         50       50    51      110        250                           1        stop
//     2         60       60    61      130        300, 900                      2 of 9   client_timeout at
//     1060 3         80       80    -       -          -                             0        prompt_too_long
//     at 80 4         900      1200  1201    1250       1500, 1550 (2 tokens), 2000   4        length
//
//     TTFT   100, 200, 300             mean 200, p50 200, p90 280 (h = 1.8)
//     E2EL   130, 200, 800             mean 376.667, p50 200, p90 680
//     TPOT   30 / 2 = 15, 500 / 3      request 1 has one token, so none
//     ITL    10, 20, 50, 450           chunks, not tokens
//     queue  1, 59, 49; prefill 98, 140, 250
//
// Requests 2 and 3 failed: nothing of theirs is in these. Duration 2 s.
#include "sim/metrics.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/toy_run.h"

namespace kneepoint::sim {
namespace {

using std::chrono::milliseconds;

SimTime at(std::int64_t ms) {
  return SimTime(milliseconds(ms));
}

struct Row {
  RequestRecord record;
  std::vector<std::pair<std::int64_t, std::int64_t>> chunks;  // (ms, tokens)
};

RequestRecord record_of(std::uint64_t index, std::int64_t arrival, std::int64_t sent, std::int64_t queued,
                        std::int64_t scheduled, std::int64_t prompt_tokens, RequestEnd end,
                        std::int64_t over) {
  RequestRecord record;
  record.index = index;
  record.arrival = at(arrival);
  record.sent = at(sent);
  record.queued = queued < 0 ? kNever : at(queued);
  record.scheduled = scheduled < 0 ? kNever : at(scheduled);
  record.prompt_tokens = prompt_tokens;
  record.end = end;
  record.last_token = at(over);
  return record;
}

std::vector<Row> page() {
  return {
      {record_of(0, 0, 0, 1, 2, 100, RequestEnd::kLength, 130), {{100, 1}, {110, 1}, {130, 1}}},
      {record_of(1, 50, 50, 51, 110, 200, RequestEnd::kStop, 250), {{250, 1}}},
      {record_of(3, 80, 80, -1, -1, 99999, RequestEnd::kPromptTooLong, 80), {}},
      {record_of(2, 60, 60, 61, 130, 400, RequestEnd::kClientTimeout, 1060), {{300, 1}, {900, 1}}},
      {record_of(4, 900, 1200, 1201, 1250, 300, RequestEnd::kLength, 2000),
       {{1500, 1}, {1550, 2}, {2000, 1}}},
  };
}

// Tells `metrics` of `rows` in the order of their ends; each is sent before anything else happens to it.
void tell(Metrics& metrics, std::vector<Row> rows) {
  for (Row& row : rows) {
    metrics.on_send(row.record);
  }
  for (Row& row : rows) {
    SimTime previous = kNever;
    for (const auto& [ms, tokens] : row.chunks) {
      row.record.output_tokens += tokens;
      if (previous == kNever) {
        row.record.first_token = at(ms);
      }
      metrics.on_tokens(row.record, previous, at(ms), tokens);
      previous = at(ms);
    }
    metrics.on_request_end(row.record);
  }
}

MetricsReport report_of(const RunConfig& config, std::vector<Row> rows, const RunSummary& summary = {}) {
  Metrics metrics(config);
  tell(metrics, std::move(rows));
  return metrics.finish(summary);
}

TEST(Metrics, CountsAndThroughputOfThePage) {
  const MetricsReport report = report_of({}, page());
  EXPECT_EQ(report.completed, 3);
  EXPECT_EQ(report.failed, 2);
  EXPECT_EQ(report.ended[static_cast<std::size_t>(RequestEnd::kLength)], 2);
  EXPECT_EQ(report.ended[static_cast<std::size_t>(RequestEnd::kStop)], 1);
  EXPECT_EQ(report.ended[static_cast<std::size_t>(RequestEnd::kPromptTooLong)], 1);
  EXPECT_EQ(report.ended[static_cast<std::size_t>(RequestEnd::kClientTimeout)], 1);
  EXPECT_DOUBLE_EQ(report.error_rate().value(), 0.4);
  EXPECT_EQ(report.duration, milliseconds(2000));
  EXPECT_EQ(report.total_input_tokens, 600);
  EXPECT_EQ(report.total_output_tokens, 8);
  EXPECT_DOUBLE_EQ(report.request_throughput.value(), 1.5);
  EXPECT_DOUBLE_EQ(report.output_throughput.value(), 4);
  EXPECT_DOUBLE_EQ(report.total_token_throughput.value(), 304);
  EXPECT_FALSE(report.request_goodput.has_value());
}

TEST(Metrics, LatenciesOfThePage) {
  const MetricsReport report = report_of({}, page());
  EXPECT_EQ(report.ttft.count, 3);
  EXPECT_DOUBLE_EQ(report.ttft.mean_ms, 200);
  EXPECT_DOUBLE_EQ(report.ttft.p50_ms, 200);
  EXPECT_DOUBLE_EQ(report.ttft.p90_ms, 280);
  EXPECT_DOUBLE_EQ(report.ttft.max_ms, 300);

  EXPECT_DOUBLE_EQ(report.e2el.mean_ms, 1130.0 / 3);
  EXPECT_DOUBLE_EQ(report.e2el.p90_ms, 680);

  EXPECT_EQ(report.tpot.count, 2);
  EXPECT_NEAR(report.tpot.max_ms, 500.0 / 3, 0.5e-6);  // Whole nanoseconds.
  EXPECT_NEAR(report.tpot.mean_ms, (15 + 500.0 / 3) / 2, 0.5e-6);

  EXPECT_EQ(report.itl.count, 4);
  EXPECT_DOUBLE_EQ(report.itl.mean_ms, 132.5);
  EXPECT_DOUBLE_EQ(report.itl.p50_ms, 35);   // h = 1.5: between 20 and 50.
  EXPECT_DOUBLE_EQ(report.itl.p99_ms, 438);  // h = 2.97: 50 + 0.97 * 400.
  EXPECT_TRUE(report.itl_exact);

  EXPECT_DOUBLE_EQ(report.queue.mean_ms, 109.0 / 3);
  EXPECT_DOUBLE_EQ(report.prefill.mean_ms, 488.0 / 3);
}

TEST(Metrics, WholeDistributionOfTtftWhereFilesAreWritten) {
  EXPECT_TRUE(report_of({}, page()).ttft_quantiles_ms.empty());
  RunConfig config;
  config.report.out_dir = "out";
  const std::vector<double> quantiles = report_of(config, page()).ttft_quantiles_ms;
  ASSERT_EQ(quantiles.size(), 1001U);
  EXPECT_DOUBLE_EQ(quantiles.front(), 100);
  EXPECT_DOUBLE_EQ(quantiles[900], 280);
  EXPECT_DOUBLE_EQ(quantiles.back(), 300);
  EXPECT_TRUE(report_of(config, {page()[2]}).ttft_quantiles_ms.empty());
}

// Request 4 waited 300 ms for a slot of the client. TTFT does not know; with the
// limit set, the client's queue is a figure of its own.
TEST(Metrics, ClientQueueIsApart) {
  EXPECT_TRUE(report_of({}, page()).client_queue.empty());
  RunConfig config;
  config.client.max_concurrency = 4;
  const MetricsReport report = report_of(config, page());
  EXPECT_DOUBLE_EQ(report.client_queue.mean_ms, 100);
  EXPECT_DOUBLE_EQ(report.client_queue.max_ms, 300);
  EXPECT_DOUBLE_EQ(report.e2el_with_client_queue.max_ms, 1100);
  EXPECT_DOUBLE_EQ(report.ttft.max_ms, 300);
}

// Seconds are counted from the first send. Second 0: chunks at 100, 110, 130 and
// 250 of those that completed; second 1: 1500, 1550; second 2: 2000 (an edge
// belongs to the second it begins). Requests touching them: 0 and 1; 4; 4.
TEST(Metrics, FullestSecond) {
  const MetricsReport report = report_of({}, page());
  EXPECT_EQ(report.max_chunks_per_s, 4);
  EXPECT_EQ(report.max_concurrent_requests, 2);
}

// A second of its own begins at each whole second after 0.4, so 1.1 and 1.3 share one though 1.2 is an edge
// of no clock.
TEST(Metrics, SecondsBeginAtTheFirstSend) {
  Row late{record_of(0, 400, 400, 401, 402, 10, RequestEnd::kLength, 1399),
           {{500, 1}, {1100, 1}, {1300, 1}, {1399, 1}}};
  EXPECT_EQ(report_of({}, {late}).max_chunks_per_s, 4);
  late.chunks.back().first = 1400;  // 1 s after the first send: the next second.
  late.record.last_token = at(1400);
  EXPECT_EQ(report_of({}, {late}).max_chunks_per_s, 3);
}

// Limits hold up to and including their value: each row is tested at the limit and 1 ms below it.
TEST(Metrics, Goodput) {
  struct Case {
    std::optional<std::int64_t> ttft, tpot, e2el;
    double good;  // Of the three that completed, in 2 s.
  };
  const Case kCases[] = {
      {200, {}, {}, 2},   {199, {}, {}, 1},  // TTFT 100, 200, 300.
      {{}, 15, {}, 2},    {{}, 14, {}, 1},   // TPOT 15, 0 (one token), 166.7.
      {{}, 167, {}, 3},   {{}, 166, {}, 2}, {{}, {}, 800, 3}, {{}, {}, 799, 2},  // E2EL 130, 200, 800.
      {150, 200, 500, 1},
  };
  for (const Case& c : kCases) {
    RunConfig config;
    const auto limit = [](std::optional<std::int64_t> ms) {
      return ms ? std::optional<SimDuration>(milliseconds(*ms)) : std::nullopt;
    };
    config.report.goodput = {limit(c.ttft), limit(c.tpot), limit(c.e2el)};
    EXPECT_DOUBLE_EQ(report_of(config, page()).request_goodput.value(), c.good / 2);
  }
}

TEST(Metrics, NobodyCompletedIsNotZero) {
  const MetricsReport report = report_of({}, {page()[2], page()[3]});
  EXPECT_EQ(report.failed, 2);
  EXPECT_TRUE(report.ttft.empty());
  EXPECT_TRUE(report.itl.empty());
  EXPECT_EQ(report.max_chunks_per_s, 0);
  EXPECT_DOUBLE_EQ(report.request_throughput.value(), 0);  // None in 1.06 s: that is a rate.

  const MetricsReport nothing = report_of({}, {});
  EXPECT_FALSE(nothing.request_throughput.has_value());
  EXPECT_FALSE(nothing.error_rate().has_value());
}

// A fifth request is under way when the run is cut: it has given two chunks, 7 ms apart, and counts nowhere.
TEST(Metrics, ACutRunLastsUntilTheCut) {
  Metrics metrics{RunConfig{}};
  tell(metrics, page());
  RequestRecord cut = record_of(5, 2100, 2100, 2101, 2102, 10, RequestEnd::kLength, 0);
  metrics.on_send(cut);
  metrics.on_tokens(cut, kNever, at(2200), 1);
  metrics.on_tokens(cut, at(2200), at(2207), 1);
  RunSummary summary;
  summary.unfinished = 1;
  summary.end = at(4000);
  const MetricsReport report = metrics.finish(summary);
  EXPECT_EQ(report.duration, milliseconds(4000));
  EXPECT_EQ(report.completed, 3);
  EXPECT_EQ(report.itl.count, 4);
  EXPECT_DOUBLE_EQ(report.itl.mean_ms, 132.5);
}

TEST(Metrics, DetailedRequestsInTheOrderOfTheWorkload) {
  RunConfig config;
  config.report.save_detailed = true;
  const MetricsReport report = report_of(config, page());
  ASSERT_EQ(report.detailed.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(report.detailed[i].record.index, i);
  }
  EXPECT_EQ(report.detailed[4].gaps_ns, (std::vector<std::int64_t>{50'000'000, 450'000'000}));
  EXPECT_EQ(report.detailed[2].gaps_ns, (std::vector<std::int64_t>{600'000'000}));
  EXPECT_TRUE(report_of({}, page()).detailed.empty());
}

// Two requests of 20 tokens that answer 3, at 0 and at 5 ms, on a server whose steps take 10 ms and nothing
// else:
//
//     0-10 prefill of A, 10-20 prefill of B with a decode of A, 20-30 both, 30-40 B alone
//
// A: TTFT 10, tokens at 10, 20, 30. B: TTFT 15, tokens at 20, 30, 40; it queues from 5 to 10.
TEST(Metrics, AsAnObserverOfARun) {
  testing_support::ToyStepTimes times;
  times.fixed = milliseconds(10);
  const RunConfig config = testing_support::toy_config();
  Metrics metrics(config);
  const RunSummary summary = testing_support::run_toy(config, times,
                                                      {testing_support::request_at(milliseconds(0), 20, 3),
                                                       testing_support::request_at(milliseconds(5), 20, 3)},
                                                      {&metrics});
  const MetricsReport report = metrics.finish(summary);
  EXPECT_EQ(report.completed, 2);
  EXPECT_EQ(report.duration, milliseconds(40));
  EXPECT_DOUBLE_EQ(report.ttft.mean_ms, 12.5);
  EXPECT_DOUBLE_EQ(report.ttft.max_ms, 15);
  EXPECT_DOUBLE_EQ(report.e2el.mean_ms, 32.5);
  EXPECT_DOUBLE_EQ(report.tpot.mean_ms, 10);
  EXPECT_EQ(report.itl.count, 4);
  EXPECT_DOUBLE_EQ(report.itl.std_ms, 0);
  EXPECT_DOUBLE_EQ(report.queue.max_ms, 5);
  EXPECT_DOUBLE_EQ(report.prefill.max_ms, 10);
  EXPECT_EQ(report.peak_in_flight, 2);
  EXPECT_EQ(report.max_chunks_per_s, 6);
}

}  // namespace
}  // namespace kneepoint::sim
