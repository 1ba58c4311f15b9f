// `simulate capacity` against the tables of the article whose planner it is: every
// cell as printed there.
#include "sim/capacity_command.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kneepoint::sim {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string printed(const Words& words) {
  testing::internal::CaptureStdout();
  const int status = run_capacity(words);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0);
  return text;
}

Json as_json(Words words) {
  words.insert(words.end(), {"--format", "json"});
  return Json::parse(printed(words));
}

// "to 25": of 1, 5, 10, 25, 50, 100 those up to 25.
std::int64_t most_that_fits(const Json& context) {
  std::int64_t most = 0;
  for (const auto& [concurrency, mark] : context["fits"].items()) {
    EXPECT_TRUE(mark == "✓" || mark == "—") << mark;
    if (mark == "✓") {
      most = std::max<std::int64_t>(most, std::stoll(concurrency));
    }
  }
  return most;
}

struct Scenario {
  std::size_t index;
  const char* budget_gb;
  std::vector<std::int64_t> most_sequences;  // At 8K, 16K, 32K, 64K, 128K.
  std::vector<std::int64_t> fits_to;         // From 16K on.
};

TEST(CapacityCommand, TheScenarioMatrixIsTheArticles) {
  const Json json = as_json({});
  ASSERT_EQ(json["scenarios"].size(), 2U);
  for (const Scenario& s : {Scenario{0, "60.0", {55, 27, 13, 6, 3}, {25, 10, 5, 1}},
                            Scenario{1, "87.0", {40, 20, 10, 5, 2}, {10, 10, 5, 1}}}) {
    const Json& planner = json["scenarios"][s.index]["planner"];
    EXPECT_EQ(planner["kv_budget_gb"], s.budget_gb);
    ASSERT_EQ(planner["contexts"].size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) {
      const Json& context = planner["contexts"][i];
      EXPECT_EQ(context["context"], 8192 << i);
      EXPECT_EQ(context["most_sequences"], s.most_sequences[i]);
      EXPECT_EQ(context["fits"].size(), 6U);
      if (i > 0) {
        EXPECT_EQ(most_that_fits(context), s.fits_to[i - 1]) << i;
      }
    }
  }
  // 8K: "all but 100" and "to 25".
  EXPECT_EQ(most_that_fits(json["scenarios"][0]["planner"]["contexts"][0]), 50);
  EXPECT_EQ(most_that_fits(json["scenarios"][1]["planner"]["contexts"][0]), 25);
  const std::string table = printed({});
  for (const char* cell : {"KV 60.0 GB", "KV 87.0 GB", "all but 100", "to 25", "to 10", "to 5"}) {
    EXPECT_THAT(table, HasSubstr(cell));
  }
}

struct MemoryRow {
  const char* model;
  const char* kind;
  const char* parameters;
  std::vector<std::string> weights_gb;  // BF16, FP8, INT4.
  std::int64_t kib_per_token;
  const char* gb_at_32k;
  std::vector<std::int64_t> fewest;  // H100, H200, L40S.
};

TEST(CapacityCommand, TheMemoryTableIsTheArticles) {
  const Json json = as_json({});
  const std::vector<MemoryRow> rows = {
      {"llama-3.1-8b", "dense, GQA", "8", {"16", "8", "4"}, 128, "4.3", {1, 1, 1}},
      {"llama-3.3-70b", "dense, GQA", "70.6", {"141", "71", "35"}, 320, "10.7", {2, 1, 2}},
      {"qwen2.5-7b", "dense, GQA", "7.6", {"15", "8", "4"}, 56, "1.9", {1, 1, 1}},
      {"qwen3-32b", "dense, GQA", "32.8", {"66", "33", "16"}, 256, "8.6", {1, 1, 1}},
      {"qwen3-30b-a3b", "MoE, 3.3B active, GQA", "30.5", {"61", "31", "15"}, 96, "3.2", {1, 1, 1}},
  };
  ASSERT_EQ(json["memory"].size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i].model);
    const Json& row = json["memory"][i];
    EXPECT_EQ(row["model"], rows[i].model);
    EXPECT_EQ(row["kind"], rows[i].kind);
    EXPECT_EQ(row["parameters_b"], rows[i].parameters);
    EXPECT_EQ(row["weights_gb"]["bf16"], rows[i].weights_gb[0]);
    EXPECT_EQ(row["weights_gb"]["fp8"], rows[i].weights_gb[1]);
    EXPECT_EQ(row["weights_gb"]["int4"], rows[i].weights_gb[2]);
    EXPECT_EQ(row["kv_kib_per_token"], rows[i].kib_per_token);
    EXPECT_EQ(row["kv_gb_at_32k"], rows[i].gb_at_32k);
    EXPECT_EQ(row["fewest_gpus"]["h100"], rows[i].fewest[0]);
    EXPECT_EQ(row["fewest_gpus"]["h200"], rows[i].fewest[1]);
    EXPECT_EQ(row["fewest_gpus"]["l40s"], rows[i].fewest[2]);
  }
}

TEST(CapacityCommand, OneRowCanBeAskedFor) {
  const Json json = as_json({"--model", "qwen3-32b", "--gpu", "h200", "--quantization", "fp8"});
  ASSERT_EQ(json["scenarios"].size(), 1U);
  EXPECT_EQ(json["scenarios"][0]["planner"]["kv_budget_gb"], "87.0");
  ASSERT_EQ(json["memory"].size(), 1U);
  // 8 GB more of weights in bf16: 68 - 16 = 52.0 GB.
  EXPECT_EQ(as_json({"--model", "llama-3.1-8b", "--quantization",
                     "none"})["scenarios"][0]["planner"]["kv_budget_gb"],
            "52.0");
}

TEST(CapacityCommand, WhatCannotRunIsMarkedNotFailed) {
  // 70.6 GB of weights beside 68 GB of usable memory.
  EXPECT_THAT(printed({"--model", "llama-3.3-70b", "--gpu", "h100"}), HasSubstr("✕"));
  // Llama 2 has 4096 positions.
  EXPECT_THAT(printed({"--model", "llama-2-7b", "--gpu", "h100"}), HasSubstr("n/a"));
}

// Each cell in which vLLM's sizing and the planner differ carries a mark in both tables.
TEST(CapacityCommand, DisagreementsWithVllmAreMarked) {
  std::size_t differing_in_all = 0;
  for (const char* gpu : {"h100", "h200", "l40s"}) {
    for (const char* model : {"llama-3.1-8b", "qwen3-32b", "llama-3.3-70b", "qwen2.5-7b"}) {
      const Words words = {"--model", model, "--gpu", gpu, "--memory-model", "vllm"};
      const Json scenario = as_json(words)["scenarios"][0];
      std::size_t differing = 0;
      for (std::size_t i = 0; i < 5; ++i) {
        const Json& planner = scenario["planner"]["contexts"][i]["fits"];
        for (const auto& [concurrency, mark] : planner.items()) {
          differing += scenario["vllm"]["contexts"][i]["fits"][concurrency] != mark ? 1 : 0;
        }
      }
      const std::string table = printed(words);
      std::size_t marks = 0;
      for (const char* mark : {"✓!", "—!", "✕!", "n/a!"}) {
        for (std::size_t at = table.find(mark); at != std::string::npos; at = table.find(mark, at + 1)) {
          ++marks;
        }
      }
      EXPECT_EQ(marks, 2 * differing) << model << " on " << gpu;
      differing_in_all += differing;
    }
  }
  EXPECT_GT(differing_in_all, 0U) << "nothing was tested";
}

TEST(CapacityCommand, WrongUseIsOneLine) {
  for (const Words& words :
       {Words{"--model", "llama-3.1-8"}, Words{"--gpu", "h10"}, Words{"--quantization", "fp7"},
        Words{"--memory-model", "none"}, Words{"--formt", "json"}, Words{"extra"}}) {
    try {
      (void)run_capacity(words);
      ADD_FAILURE() << words.front() << " was taken";
    } catch (const std::exception& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace kneepoint::sim
