// Results that `vllm bench serve` itself computed, computed again from the time
// stamps it recorded. Those are kept to a microsecond; the figures agree to that.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/metrics.h"
#include "tests/support/shared_data.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::json;

// Whole microseconds from seconds with six digits.
SimDuration micros(const Json& seconds) {
  return std::chrono::microseconds(std::llround(seconds.get<double>() * 1e6));
}

MetricsReport recomputed(const Json& run) {
  const std::size_t n = run["start_times"].size();
  std::vector<SimDuration> starts(n);
  SimDuration last_end{0};
  for (std::size_t i = 0; i < n; ++i) {
    starts[i] = micros(run["start_times"][i]);
    last_end = std::max(last_end, starts[i] + micros(run["latencies"][i]));
  }
  // The run's clock is such that its last request ends when its duration is over.
  const SimDuration origin = last_end - to_sim_duration(run["duration"].get<double>());
  std::vector<std::size_t> by_start(n);
  for (std::size_t i = 0; i < n; ++i) {
    by_start[i] = i;
  }
  std::sort(by_start.begin(), by_start.end(),
            [&](std::size_t a, std::size_t b) { return starts[a] < starts[b]; });

  Metrics metrics{RunConfig{}};
  for (const std::size_t i : by_start) {
    RequestRecord record;
    record.index = i;
    record.arrival = record.sent = record.queued = record.scheduled = SimTime(starts[i] - origin);
    record.prompt_tokens = run["input_lens"][i];
    record.output_tokens = run["output_lens"][i];
    record.first_token = record.sent + micros(run["ttfts"][i]);
    record.last_token = record.sent + micros(run["latencies"][i]);
    metrics.on_send(record);
    SimTime previous = record.first_token;
    metrics.on_tokens(record, kNever, previous, 1);
    for (const Json& gap : run["itls"][i]) {
      metrics.on_tokens(record, previous, previous + micros(gap), 1);
      previous += micros(gap);
    }
    metrics.on_request_end(record);
  }
  return metrics.finish(RunSummary{});
}

class RecordedResult : public testing::TestWithParam<const char*> {};

TEST_P(RecordedResult, ComesOutAgain) {
  KNEEPOINT_SHARED_OR_SKIP(path, std::string("data/runs/vllm_cpu/") + GetParam() + ".json");
  std::ifstream in(path);
  const Json run = Json::parse(in);
  const MetricsReport report = recomputed(run);

  EXPECT_EQ(report.completed, run["completed"]);
  EXPECT_EQ(report.total_input_tokens, run["total_input_tokens"]);
  EXPECT_EQ(report.total_output_tokens, run["total_output_tokens"]);
  EXPECT_NEAR(report.request_throughput.value(), run["request_throughput"], 1e-6);
  EXPECT_NEAR(report.output_throughput.value(), run["output_throughput"], 1e-4);
  EXPECT_NEAR(report.total_token_throughput.value(), run["total_token_throughput"], 1e-4);
  EXPECT_EQ(static_cast<double>(report.max_chunks_per_s), run["max_output_tokens_per_s"]);
  EXPECT_EQ(report.max_concurrent_requests, run["max_concurrent_requests"]);

  const std::pair<std::string, LatencyStats> kMetrics[] = {
      {"ttft", report.ttft}, {"tpot", report.tpot}, {"itl", report.itl}, {"e2el", report.e2el}};
  for (const auto& metric : kMetrics) {
    const std::string& name = metric.first;
    const LatencyStats& stats = metric.second;
    const auto expect = [&](const std::string& statistic, double value) {
      EXPECT_NEAR(value, run[statistic + "_" + name + "_ms"], 1.1e-3) << statistic << " " << name;
    };
    expect("mean", stats.mean_ms);
    expect("median", stats.median_ms);
    expect("std", stats.std_ms);
    expect("p50", stats.p50_ms);
    expect("p90", stats.p90_ms);
    expect("p95", stats.p95_ms);
    expect("p99", stats.p99_ms);
  }
}

INSTANTIATE_TEST_SUITE_P(, RecordedResult,
                         testing::Values("A_rate4", "A_rate8", "A_conc16", "B_rate3", "B_conc16", "C_rate4",
                                         "D_azure_conv"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace kneepoint::sim
