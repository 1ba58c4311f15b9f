// The table that people read, line by line for one small run.
#include "sim/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <string>

namespace kneepoint::sim {
namespace {

using testing::HasSubstr;
using testing::Not;

LatencyStats stats_of(double mean, double std, double p50, double p90, double p95, double p99, double max) {
  return {1, mean, p50, std, p50, p90, p95, p99, max};
}

struct SmallRun {
  RunConfig config;
  RunSummary summary;
  MetricsReport metrics;

  SmallRun() {
    metrics.completed = 19'000;
    metrics.failed = 366;
    metrics.ended[static_cast<std::size_t>(RequestEnd::kClientTimeout)] = 366;
    metrics.duration = std::chrono::milliseconds(3'500'250);
    metrics.total_input_tokens = 22'361'840;
    metrics.request_throughput = 5.4282;
    metrics.ttft = stats_of(105.28, 44.656, 98.8998, 160.126, 9'999.99, 12'345.678, 1'234'567.8);
    summary.num_blocks = 27'413;
    summary.peak_used_blocks = 13'706;
    summary.wait_causes = {{"token_budget", std::chrono::seconds(25)},
                           {"kv_blocks", std::chrono::seconds(75)}};
  }
  [[nodiscard]] std::string text() const {
    return report_table({.config = config,
                         .summary = summary,
                         .metrics = metrics,
                         .version = "0.1.0",
                         .configuration = "",
                         .inputs = {{"trace", "bursty.pb", std::string(64, 'a')}},
                         .provenance = {"KV cache: bfloat16, from --kv-cache-dtype auto and the model"}});
  }
};

TEST(Report, SaysWhatHappened) {
  const std::string text = SmallRun{}.text();
  EXPECT_THAT(text, HasSubstr("Successful requests:                        19,000\n"));
  EXPECT_THAT(text, HasSubstr("Failed requests:                            366 (1.9 %)\n"));
  EXPECT_THAT(text, HasSubstr("  client_timeout:                           366\n"));
  EXPECT_THAT(text, Not(HasSubstr("never_fits")));
  EXPECT_THAT(text, HasSubstr("Benchmark duration (s):                     3500.25\n"));
  EXPECT_THAT(text, HasSubstr("Total input tokens:                         22,361,840\n"));
  EXPECT_THAT(text, HasSubstr("Request throughput (req/s):                 5.43\n"));
  EXPECT_THAT(text,
              HasSubstr("Peak KV cache use:                          13,706 of 27,412 blocks (50.0 %)\n"));
  EXPECT_THAT(text, HasSubstr("KV cache: bfloat16, from --kv-cache-dtype auto and the model\n"));
}

TEST(Report, LatenciesStandInColumns) {
  const std::string text = SmallRun{}.text();
  EXPECT_THAT(
      text,
      HasSubstr("                                mean     std     p50     p90     p95     p99     max\n"));
  EXPECT_THAT(
      text,
      HasSubstr("Time to first token (TTFT)    105.28   44.66   98.90  160.13 9999.99 12345.7 1234568\n"));
  EXPECT_THAT(
      text,
      HasSubstr("Inter-token latency (ITL)        n/a     n/a     n/a     n/a     n/a     n/a     n/a\n"));
}

TEST(Report, LongestWaitFirst) {
  const std::string text = SmallRun{}.text();
  EXPECT_THAT(text,
              HasSubstr("KV blocks:                                   75.0 %  75.00 request-seconds\n"
                        "max_num_batched_tokens:                      25.0 %  25.00 request-seconds\n"));
  SmallRun idle;
  idle.summary.wait_causes.clear();
  EXPECT_THAT(idle.text(), HasSubstr("Nobody waited.\n"));
}

TEST(Report, BadNewsComesFirst) {
  SmallRun run;
  EXPECT_THAT(run.text(), Not(HasSubstr("OVERLOADED")));
  run.summary.overloaded = true;
  run.summary.overload_reason = "the queue grew";
  run.summary.hangs_from = SimTime(std::chrono::milliseconds(1500));
  run.summary.never_fit = 2;
  const std::string text = run.text();
  EXPECT_LT(text.find("OVERLOADED: the queue grew."), text.find("Successful requests"));
  EXPECT_THAT(text,
              HasSubstr("vLLM would hang from 1.500 s on: 2 requests need more KV blocks than there are.\n"));
}

TEST(Report, FitsAnEightyFourColumnTerminal) {
  std::istringstream lines(SmallRun{}.text());
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 84U) << line;
  }
}

}  // namespace
}  // namespace kneepoint::sim
