// The planner's two tables, cell by cell, as its source prints them.
//
// Worked once by hand, Llama 3.1 8B in FP8 on one H100 of 80 GB:
//     usable    0.85 x 80e9 = 68e9;  weights 80 x 0.1e9 x 1 byte = 8e9;  KV 60e9
//     a token   2 x 32 layers x 8 heads x 128 x 2 byte = 131,072 byte
//     8K        60e9 / (8192 x 131,072) = 55.9 -> 55 sequences; 16K 27.9, 32K 13.97,
//               64K 6.98, 128K 3.49
#include "hw/capacity.h"

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

namespace kneepoint::hw {
namespace {

struct MatrixCase {
  const char* name;
  const char* model;
  const char* gpu;
  const char* budget_gb;
  std::vector<std::int64_t> most;
  std::vector<std::string> fitting;
};

const MatrixCase kMatrixCases[] = {
    {"Llama8bOnH100",
     "llama-3.1-8b",
     "h100",
     "60.0",
     {55, 27, 13, 6, 3},
     {"all but 100", "to 25", "to 10", "to 5", "1"}},
    // 0.85 x 141e9 - 32.8e9 = 87.05e9, shown cut; a token 2 x 64 x 8 x 128 x 2 = 262,144
    // byte: 40.5, 20.3, 10.1, 5.07, 2.5.
    {"Qwen32bOnH200",
     "qwen3-32b",
     "h200",
     "87.0",
     {40, 20, 10, 5, 2},
     {"to 25", "to 10", "to 10", "to 5", "1"}},
};

class Matrix : public testing::TestWithParam<MatrixCase> {};

TEST_P(Matrix, HasTheSourcesCells) {
  const MatrixCase& c = GetParam();
  const ScenarioMatrix matrix = scenario_matrix(load_model(c.model), load_gpu(c.gpu), Precision::kFp8);
  EXPECT_EQ(budget_gb_text(matrix.kv_budget_bytes), c.budget_gb);
  for (std::size_t i = 0; i < matrix.rows.size(); ++i) {
    SCOPED_TRACE(matrix.rows[i].context);
    EXPECT_EQ(matrix.rows[i].context, std::int64_t{8192} << i);
    EXPECT_EQ(matrix.rows[i].most_sequences, c.most[i]);
    EXPECT_EQ(fitting_text(matrix.rows[i]), c.fitting[i]);
    for (std::size_t j = 0; j < kPlannerConcurrencies.size(); ++j) {
      EXPECT_EQ(matrix.rows[i].cells[j],
                kPlannerConcurrencies[j] <= c.most[i] ? Fit::kFits : Fit::kKvExceeded);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Matrix, testing::ValuesIn(kMatrixCases),
                         [](const auto& row) { return std::string(row.param.name); });

struct MemoryCase {
  const char* model;
  const char* kind;
  const char* parameters;
  const char* weights_gb[3];  // BF16, FP8, INT4.
  std::int64_t kv_kib;
  const char* kv_at_32k_gb;
  std::int64_t fewest[3];  // H100, H200, L40S.
};

// Rounding half up matters once: 30.5 in FP8 is 31. Fewest L40S for the 70B:
// 1 x 40.8 < 70.6; 2 x 40.8 - 70.6 = 11.0 is at least 2 x 4.
const MemoryCase kMemoryCases[] = {
    {"llama-3.1-8b", "dense, GQA", "8", {"16", "8", "4"}, 128, "4.3", {1, 1, 1}},
    {"llama-3.3-70b", "dense, GQA", "70.6", {"141", "71", "35"}, 320, "10.7", {2, 1, 2}},
    {"qwen2.5-7b", "dense, GQA", "7.6", {"15", "8", "4"}, 56, "1.9", {1, 1, 1}},
    {"qwen3-32b", "dense, GQA", "32.8", {"66", "33", "16"}, 256, "8.6", {1, 1, 1}},
    {"qwen3-30b-a3b", "MoE, 3.3B active, GQA", "30.5", {"61", "31", "15"}, 96, "3.2", {1, 1, 1}},
};

class Memory : public testing::TestWithParam<MemoryCase> {};

TEST_P(Memory, HasTheSourcesRow) {
  const MemoryCase& c = GetParam();
  const ModelArch model = load_model(c.model);
  const MemoryRow row = memory_row(model);
  EXPECT_EQ(row.kind, c.kind);
  EXPECT_EQ(parameters_text(row.parameter_tenths), c.parameters);
  EXPECT_EQ(weights_gb_text(row.bf16_bytes), c.weights_gb[0]);
  EXPECT_EQ(weights_gb_text(row.fp8_bytes), c.weights_gb[1]);
  EXPECT_EQ(weights_gb_text(row.int4_bytes), c.weights_gb[2]);
  EXPECT_EQ(row.kv_bytes_per_token, c.kv_kib * 1024);
  EXPECT_EQ(kv_gb_text(row.kv_bytes_at_32k), c.kv_at_32k_gb);
  const char* const gpus[] = {"h100", "h200", "l40s"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(fewest_gpus(model, load_gpu(gpus[i])), c.fewest[i]) << gpus[i];
  }
}

INSTANTIATE_TEST_SUITE_P(, Memory, testing::ValuesIn(kMemoryCases), [](const auto& row) {
  std::string name = row.param.model;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

TEST(Planner, KnowsWhichContextsAModelHas) {
  // Qwen2.5 7B ends at 32K by its config.json: 60.4e9 / (32,768 x 57,344) = 32.1.
  const ScenarioMatrix qwen = scenario_matrix(load_model("qwen2.5-7b"), load_gpu("h100"), Precision::kFp8);
  EXPECT_EQ(qwen.rows[2].most_sequences, 32);
  EXPECT_EQ(fitting_text(qwen.rows[2]), "to 25");
  EXPECT_EQ(fitting_text(qwen.rows[3]), "n/a");
  EXPECT_EQ(fitting_text(qwen.rows[4]), "n/a");
  // Qwen3 32B counts with YaRN; Qwen3 14B, whose config.json says the same, does not.
  EXPECT_EQ(planner_context(load_model("qwen3-32b")), 131072);
  EXPECT_EQ(planner_context(load_model("qwen3-14b")), 40960);
}

TEST(Planner, MarksWeightsThatDoNotFit) {
  // 141.2 GB of bf16 on one H100.
  const ScenarioMatrix matrix =
      scenario_matrix(load_model("llama-3.3-70b"), load_gpu("h100"), Precision::kBf16);
  EXPECT_LT(matrix.kv_budget_bytes, 0);
  for (const ScenarioRow& row : matrix.rows) {
    EXPECT_EQ(fitting_text(row), "✕");
    EXPECT_FALSE(row.most_sequences.has_value());
  }
}

TEST(Planner, AddsUpTheMemoryOfSeveralGpus) {
  // 2 x 68e9 - 141.2e9 = -5.2e9; 3 x 68e9 - 141.2e9 = 62.8e9.
  const ModelArch model = load_model("llama-3.3-70b");
  EXPECT_EQ(budget_gb_text(scenario_matrix(model, load_gpu("h100"), Precision::kBf16, 2).kv_budget_bytes),
            "-5.2");
  EXPECT_EQ(budget_gb_text(scenario_matrix(model, load_gpu("h100"), Precision::kBf16, 3).kv_budget_bytes),
            "62.8");
}

TEST(Planner, CutsBudgetsAndRoundsWeights) {
  EXPECT_EQ(budget_gb_text(59'999'999'999), "59.9");
  EXPECT_EQ(weights_gb_text(30'499'999'999), "30");
  EXPECT_EQ(weights_gb_text(30'500'000'000), "31");
  EXPECT_EQ(kv_gb_text(4'250'000'000), "4.3");
  EXPECT_EQ(parameters_text(80), "8");
}

TEST(Planner, AgreesWithVllmsSizingWhereBothHaveRoom) {
  // vLLM's sizing has the null block set apart and its own idea of the rest; the
  // table's shape is the same and what fits falls as contexts double.
  Deployment d;
  d.model = load_model("llama-3.1-8b");
  d.gpu = load_gpu("h100");
  d.weights = Precision::kFp8;
  d.max_num_seqs = 256;
  d.max_num_batched_tokens = 8192;
  d.max_model_len = 131072;
  const ScenarioMatrix matrix = scenario_matrix_by_vllm(d);
  const MemoryBudget memory = size_memory(d);
  for (const ScenarioRow& row : matrix.rows) {
    EXPECT_EQ(row.most_sequences, (memory.num_blocks - 1) / (row.context / 16)) << row.context;
  }
}

}  // namespace
}  // namespace kneepoint::hw
