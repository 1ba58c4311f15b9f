// Errors, groups, knees; and a prediction worked from the step model itself.
#include "calibrate/serving_accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "calibrate/calibrate_error.h"
#include "hw/deployment.h"
#include "sim/simulation.h"

namespace kneepoint::calibrate {
namespace {

using testing::HasSubstr;

struct ReleaseCase {
  const char* text;
  std::int64_t major, minor;
};

TEST(PredictServing, ReadsReleases) {
  for (const ReleaseCase& c : {ReleaseCase{"0.15.1", 0, 15}, {"v0.9.0rc2", 0, 9}, {"0.12", 0, 12}, {"1.0.0", 1, 0}}) {
    EXPECT_EQ(parse_release(c.text), (VllmRelease{c.major, c.minor})) << c.text;
  }
  EXPECT_EQ(parse_release(""), kReleaseOfUnnamed);
  for (const char* wrong : {"latest", "0", "0.", ".15", "v"}) {
    EXPECT_THROW(static_cast<void>(parse_release(wrong)), CalibrateError) << wrong;
  }
}

ServingRow small_row(const std::string& release) {
  ServingRow row;
  row.setup.model = "llama-3.1-8b";
  row.setup.gpu = "h100";
  row.setup.vllm_version = release;
  row.setup.max_num_seqs = 4;
  row.setup.max_num_batched_tokens = 2048;
  row.setup.prefix_caching = false;
  row.closed_loop = ClosedLoopClient{.input_tokens = 600, .output_tokens = 3, .concurrency = 1, .requests = 2};
  row.group = "g";
  return row;
}

TEST(PredictServing, TheReleaseDecidesWhatARowLeavesOpen) {
  EXPECT_FALSE(run_config_of(small_row("0.13.0")).engine.async_scheduling);
  EXPECT_TRUE(run_config_of(small_row("0.14.0")).engine.async_scheduling);
  const sim::RunConfig before = run_config_of(small_row("0.20.1")), since = run_config_of(small_row("0.21.0"));
  EXPECT_FALSE(before.deployment.subtract_cuda_graphs);
  EXPECT_TRUE(since.deployment.subtract_cuda_graphs);
  EXPECT_FALSE(before.engine.scheduler_reserve_full_isl);
  EXPECT_TRUE(since.engine.scheduler_reserve_full_isl);
  EXPECT_DOUBLE_EQ(before.deployment.gpu_memory_utilization, 0.9);
  EXPECT_DOUBLE_EQ(since.deployment.gpu_memory_utilization, 0.92);
  ServingRow told = small_row("0.21.0");
  told.setup.gpu_memory_utilization = 0.8;
  told.setup.async_scheduling = false;
  EXPECT_DOUBLE_EQ(run_config_of(told).deployment.gpu_memory_utilization, 0.8);
  EXPECT_FALSE(run_config_of(told).engine.async_scheduling);
}

// One request at a time, synchronously: the client waits for the way in, one
// step of 600 tokens, and the way out; then two decodes, over 601 and 602 tokens
// of context, each after its host time.
TEST(PredictServing, AnUnloadedServerTakesItsSteps) {
  const ServingRow row = small_row("0.13.0");
  const sim::RunConfig config = run_config_of(row);
  const auto times = sim::make_step_times(config);
  const hw::GraphSizes graphs(config.deployment);
  const hw::Chunk prompt{600, 0};
  hw::StepShape prefill;
  prefill.chunks = {&prompt, 1};
  prefill.num_tokens = 600;
  prefill.num_sampled = 1;
  const hw::GraphChoice choice = graphs.choose(600, false);
  prefill.padded_tokens = choice.padded_tokens;
  prefill.graph_mode = choice.mode;
  const hw::StepTime first = times->step_time(prefill);
  std::chrono::nanoseconds decodes{0};
  for (const std::int64_t context : {601, 602}) {
    hw::StepShape decode;
    decode.decodes = {1, context, context, {}};
    decode.num_tokens = decode.num_sampled = decode.num_outputs_before = 1;
    decode.padded_tokens = graphs.choose(1, true).padded_tokens;
    decode.graph_mode = graphs.choose(1, true).mode;
    const hw::StepTime time = times->step_time(decode);
    decodes += time.host + time.device;
  }
  const auto ms = [](std::chrono::nanoseconds ns) { return 1e-6 * static_cast<double>(ns.count()); };
  const ServingPrediction predicted = predict_serving(row, 1);
  EXPECT_NEAR(*predicted.mean_ttft_ms,
              ms(times->front_end().arrival + first.host + first.device + times->front_end().output), 1e-3);
  EXPECT_NEAR(*predicted.mean_tpot_ms, ms(decodes) / 2, 1e-3);
  EXPECT_EQ(predicted.kv_wait_share, 0);
}

CheckedRow checked(std::int64_t concurrency, double measured_ttft, double predicted_ttft) {
  CheckedRow row{small_row(""), ServingPrediction{}};
  row.row.closed_loop->concurrency = concurrency;
  row.row.mean_ttft_ms = measured_ttft;
  row.predicted->mean_ttft_ms = predicted_ttft;
  return row;
}

TEST(ServingAccuracy, KneesAreJudgedByTheirRatios) {
  EXPECT_EQ(judge_knee(8, 4), KneeVerdict::kRight);
  EXPECT_EQ(judge_knee(8, 3.9), KneeVerdict::kWrong);
  EXPECT_EQ(judge_knee(7.9, 1), KneeVerdict::kUngraded);
  EXPECT_EQ(judge_knee(2.2, 100), KneeVerdict::kUngraded);
  EXPECT_EQ(judge_knee(2.1, 3.9), KneeVerdict::kRight);
  EXPECT_EQ(judge_knee(2.1, 4), KneeVerdict::kWrong);
}

TEST(ServingAccuracy, KneesAreBetweenNeighboursOfOneSeries) {
  std::vector<CheckedRow> rows{checked(32, 3000, 2000), checked(8, 100, 110), checked(16, 150, 140)};
  rows.push_back(checked(64, 1, 1));
  rows.back().row.closed_loop->output_tokens = 99;  // Another series.
  const auto knees = find_knees(rows);
  ASSERT_EQ(knees.size(), 2U);
  EXPECT_EQ(knees[0].from, 8);
  EXPECT_DOUBLE_EQ(knees[0].measured_ratio, 1.5);
  EXPECT_EQ(knees[1].to, 32);
  EXPECT_EQ(knees[1].verdict, KneeVerdict::kRight);
}

TEST(ServingAccuracy, GroupsKeepKvLimitedRowsAndRowsNotRunApart) {
  std::vector<CheckedRow> rows{checked(1, 100, 110), checked(2, 100, 95), checked(4, 100, 160), {small_row(""), std::nullopt}};
  rows[2].predicted->kv_wait_share = 0.5;
  rows[3].row.not_run = "GPU 'x' is not known";
  const auto groups = summarise_groups(rows);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].ttft.count, 2);
  EXPECT_NEAR(groups[0].ttft.worst, 0.10, 1e-12);
  EXPECT_EQ(groups[0].ttft_kv_limited.count, 1);
  EXPECT_NEAR(groups[0].ttft_kv_limited.worst, 0.6, 1e-12);
  EXPECT_EQ(groups[0].tpot.count, 0) << "not measured";
  const std::string table = serving_table(rows, 5);
  EXPECT_THAT(table, HasSubstr("1 of 4 rows not predicted"));
  EXPECT_THAT(table, HasSubstr("GPU 'x' is not known"));
  const auto json = nlohmann::json::parse(serving_json(rows, 5));
  EXPECT_EQ(json["rows"].size(), 4U);
  EXPECT_NEAR(json["rows"][0]["mean_ttft_ms"]["error"].get<double>(), 0.1, 1e-12);
  EXPECT_TRUE(json["rows"][2]["kv_limited"].get<bool>());
}

}  // namespace
}  // namespace kneepoint::calibrate
