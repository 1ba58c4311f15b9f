// `simulate matrix`: which cells are run, and what a closed loop must give.
#include "sim/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/matrix_command.h"
#include "sim/matrix_report.h"
#include "sim/usage_error.h"
#include "tests/sim/study_support.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::json;

pb::RunConfig asked_for_server(const char* model, const char* gpu) {
  pb::RunConfig asked;
  asked.set_model(model);
  asked.set_gpu(gpu);
  asked.set_quantization("fp8");
  return asked;
}

MatrixOptions few_requests(std::int64_t num_requests) {
  MatrixOptions options;
  options.num_requests = num_requests;
  options.output_tokens = 16;
  return options;
}

// The article's planner (tests/hw/capacity_test.cc): most sequences at 8K, 32K,
// 64K, 128K are 55, 13, 6, 3 and 40, 10, 5, 2; a cell fits up to these.
TEST(Matrix, RunsWhatFitsByThePlannerAndNothingElse) {
  const struct {
    const char* model;
    const char* gpu;
    std::map<std::int64_t, std::int64_t> most;
  } kCases[] = {
      {"llama-3.1-8b", "h100", {{8192, 55}, {32768, 13}, {65536, 6}, {131072, 3}}},
      {"qwen3-32b", "h200", {{8192, 40}, {32768, 10}, {65536, 5}, {131072, 2}}},
  };
  for (const auto& c : kCases) {
    const Matrix matrix = run_matrix(asked_for_server(c.model, c.gpu), few_requests(2));
    ASSERT_EQ(matrix.cells.size(), 24U);
    for (const MatrixCell& cell : matrix.cells) {
      EXPECT_EQ(cell.refused, "");
      EXPECT_EQ(cell.run.has_value(), cell.concurrency <= c.most.at(cell.context))
          << c.model << " " << cell.context << " x " << cell.concurrency;
    }
  }
}

TEST(Matrix, AnFp8CacheHoldsTwiceAsManySequences) {
  // 60.0 GB / (8192 x 64 KiB) = 111.7 sequences, so 100 fit where 55 did.
  pb::RunConfig asked = asked_for_server("llama-3.1-8b", "h100");
  MatrixOptions options = few_requests(2);
  options.contexts = {8192};
  options.concurrencies = {100};
  EXPECT_FALSE(run_matrix(asked, options).cells.front().run);
  asked.set_kv_cache_dtype("fp8");
  EXPECT_TRUE(run_matrix(asked, options).cells.front().run);
}

TEST(Matrix, OneClientIsAChainOfEqualRequests) {
  // With one slot the next request is sent in the moment the one before is over,
  // and its clock starts then: all requests take the same time E, and so
  //   duration = n E,   output throughput x E = tokens of an answer.
  // A clock that started when the task was made would give the last request n E.
  MatrixOptions options = few_requests(20);
  options.contexts = {8192};
  options.concurrencies = {1};
  const Matrix matrix = run_matrix(asked_for_server("llama-3.1-8b", "h100"), options);
  const MetricsReport& m = matrix.cells.front().run->metrics;
  EXPECT_EQ(m.completed, 20);
  EXPECT_EQ(m.total_input_tokens, 20 * (8192 - 16));
  EXPECT_EQ(m.total_output_tokens, 20 * 16);
  EXPECT_DOUBLE_EQ(m.e2el.p50_ms, m.e2el.max_ms);
  EXPECT_DOUBLE_EQ(m.ttft.p50_ms, m.ttft.max_ms);
  EXPECT_NEAR(*m.output_throughput * m.e2el.mean_ms * 1e-3, 16, 1e-9);
  // 15 gaps between 16 tokens.
  EXPECT_NEAR(m.e2el.mean_ms, m.ttft.mean_ms + 15 * m.tpot.mean_ms, 1e-5);
}

TEST(Matrix, ClientsAreAllUnderWayUntilTheEnd) {
  // Little's law: clients under way = throughput x time, less what is missing
  // while the last C requests run out: at most C of n requests' times.
  MatrixOptions options = few_requests(200);
  options.contexts = {8192};
  options.concurrencies = {10};
  const Matrix matrix = run_matrix(asked_for_server("llama-3.1-8b", "h100"), options);
  const MetricsReport& m = matrix.cells.front().run->metrics;
  EXPECT_EQ(m.peak_in_flight, 10);
  const double under_way = *m.request_throughput * m.e2el.mean_ms * 1e-3;
  EXPECT_LE(under_way, 10 + 1e-9);
  EXPECT_GE(under_way, 10 * (1 - 10.0 / 200));
}

TEST(Matrix, LengthsVaryWithinTheRatioAndSharedPrefixesHit) {
  MatrixOptions options = few_requests(50);
  options.contexts = {8192};
  options.concurrencies = {1};
  options.random_range_ratio = 0.25;
  options.prefix_tokens = 4096;
  const Matrix matrix = run_matrix(asked_for_server("llama-3.1-8b", "h100"), options);
  const MeasuredRun& run = *matrix.cells.front().run;
  EXPECT_EQ(run.metrics.completed, 50) << "the server has room for the longest";
  // Prompts of 4096 + 4080 +- 25 %: means within 4 standard errors, 4080 x 0.25 / sqrt(3 x 50) = 83.
  EXPECT_NEAR(static_cast<double>(run.metrics.total_input_tokens) / 50, 8176, 4 * 83);
  EXPECT_NE(run.metrics.total_input_tokens, 50 * 8176);
  EXPECT_EQ(run.run.summary.prefix_hit_tokens, 49 * 4096) << "all but the first find the prefix";
}

TEST(Matrix, AServerThatWouldNotStartIsSaidSo) {
  // The planner leaves 40.8 - 32.8 = 8.0 GB on an L40S for 8192 x 256 KiB = 2.1 GB a
  // sequence; a user who lets vLLM have half the memory cannot even load the weights.
  pb::RunConfig asked = asked_for_server("qwen3-32b", "l40s");
  asked.set_gpu_memory_utilization(0.5);
  MatrixOptions options = few_requests(2);
  options.contexts = {8192};
  options.concurrencies = {1, 5};
  const Matrix matrix = run_matrix(asked, options);
  EXPECT_THAT(matrix.cells[0].refused, testing::HasSubstr("does not fit"));
  EXPECT_FALSE(matrix.cells[0].run);
  EXPECT_EQ(matrix.cells[1].fit, hw::Fit::kKvExceeded);
  EXPECT_THAT(matrix_table(matrix), testing::HasSubstr("would not start"));
  EXPECT_EQ(Json::parse(matrix_json(matrix))["cells"][0]["status"], "server_would_not_start");
}

TEST(Matrix, TheSameBytesOnAnyNumberOfThreads) {
  MatrixOptions options = few_requests(20);
  options.random_range_ratio = 0.5;
  std::string first;
  for (const int threads : {1, 2, 8}) {
    options.threads = threads;
    const Matrix matrix = run_matrix(asked_for_server("llama-3.1-8b", "h100"), options);
    const std::string text = matrix_json(matrix) + matrix_csv(matrix) + matrix_table(matrix);
    first = first.empty() ? text : first;
    EXPECT_EQ(text, first) << threads;
  }
}

TEST(MatrixCommand, RecordsWhatTheRunWas) {
  const testing_support::OwnFolder folder;
  const std::vector<std::string> words = {"vllm",
                                          "serve",
                                          "llama-3.1-8b",
                                          "--kv-cache-dtype",
                                          "fp8",
                                          "--contexts",
                                          "8K",
                                          "--concurrencies",
                                          "1,5",
                                          "--num-prompts",
                                          "4",
                                          "--max-num-seqs",
                                          "64",
                                          "--no-enable-prefix-caching",
                                          "--out",
                                          (folder / "m").string(),
                                          "-sc.method",
                                          "ngram",
                                          "-sc.num_speculative_tokens",
                                          "2"};
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_matrix_command(words), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("speculative decoding on"));
  const Json json = Json::parse(testing_support::bytes_of(folder / "m/matrix.json"));
  const Json& server = json["servers"][0];
  EXPECT_EQ(server["prefix_caching"], false);
  EXPECT_EQ(server["fp8_kv"], true);
  EXPECT_EQ(server["speculative_tokens"], 2);
  EXPECT_EQ(server["max_model_len"], 8192);
  EXPECT_THAT(server["configuration"].get<std::string>(), testing::HasSubstr("max_num_seqs: 64"));
  EXPECT_EQ(json["cells"].size(), 2U);
  EXPECT_EQ(json["cells"][1]["error_rate"], 0);
  const std::string csv = testing_support::bytes_of(folder / "m/matrix.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_TRUE(std::filesystem::exists(folder / "m/checksums.sha256"));
}

TEST(MatrixCommand, EveryLineOfTheCsvHasAsManyFields) {
  const Matrix matrix = run_matrix(asked_for_server("llama-3.1-8b", "h100"), few_requests(2));
  std::istringstream lines(matrix_csv(matrix));
  std::string header;
  std::getline(lines, header);
  const auto commas = std::count(header.begin(), header.end(), ',');
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), commas) << line;
  }
  EXPECT_EQ(count, 24);
}

TEST(MatrixCommand, RefusesWhatHasNoPlaceInIt) {
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{"--trace", "t.pb"}, Words{"--max-concurrency", "3"}, Words{"--request-rate", "1"},
        Words{"--contexts", "8Q"}, Words{"--contexts", "8K,8192"}, Words{"--contexts", "100"},
        Words{"--concurrencies", "0"}, Words{"--num-prompts", "0"}, Words{"--random-range-ratio", "1"},
        Words{"--format", "xml"}, Words{"--modle", "x"}}) {
    EXPECT_THROW((void)run_matrix_command(words), UsageError) << words.front() << " " << words.back();
  }
}

}  // namespace
}  // namespace kneepoint::sim
