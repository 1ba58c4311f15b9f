// Explanations add up, name the bound that arithmetic names, and their graph is
// readable by others.
#include "hw/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/hw/round_times.h"

namespace kneepoint::hw {
namespace {

using testing::HasSubstr;

RooflineStep round_step(const ServerCosts& costs = {}) {
  return RooflineStep(round_deployment(), std::make_unique<RoundTimes>(), costs);
}

StepShape one_decode() {
  StepShape step;
  step.decodes = {1, 1000, 1000, {}};
  step.num_tokens = step.padded_tokens = step.num_sampled = 1;
  return step;
}

const ExplainedOperator* find(const Explanation& explanation, const std::string& name) {
  for (const ExplainedOperator& op : explanation.operators) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

TEST(ExplainTest, OperatorsAndServerAddUpToTheStep) {
  // 143 us of operators (tests/hw/roofline_step_test.cc), 100 of the server's.
  const Explanation explanation = explain(round_step({.device_step_s = 100e-6}), one_decode());
  double operators = 0;
  for (const ExplainedOperator& op : explanation.operators) operators += op.seconds;
  EXPECT_NEAR(operators, 143e-6, 1e-9);
  EXPECT_NEAR(explanation.server_seconds, 100e-6, 1e-9);
  EXPECT_NEAR(explanation.device_seconds, 243e-6, 1e-9);
  EXPECT_NEAR(find(explanation, "attention (decode)")->share, 42.0 / 243, 1e-6);
  EXPECT_EQ(find(explanation, "attention (prefill)"), nullptr) << "has nothing to do";
}

TEST(ExplainTest, BoundIsWhatTheRidgeSays) {
  // H100: 989e12 FLOP/s over 3.35e12 byte/s, 295 FLOP a byte. A bf16 product of m
  // tokens does about m FLOP a byte of weights: memory at 1, compute at 4096.
  Deployment deployment;
  deployment.model = load_model("llama-3.1-8b");
  deployment.gpu = load_gpu("h100");
  deployment.max_num_batched_tokens = 8192;
  deployment.max_num_seqs = 256;
  deployment.max_model_len = 8192;
  const Explanation decode = explain(deployment, {.batch = 1, .context = 1000});
  EXPECT_EQ(find(decode, "gate, up")->bound, Bound::kMemory);
  // 28672 * 4096 weights of 2 bytes and a token in and out, 32 times.
  EXPECT_NEAR(find(decode, "gate, up")->bytes, 32 * 2.0 * (28672.0 * 4096 + 4096 + 28672), 1);
  EXPECT_EQ(find(decode, "norm (MLP)")->bound, Bound::kLaunch);
  const Explanation prefill = explain(deployment, {.batch = 0, .prompts = 1, .prompt_tokens = 4096});
  EXPECT_EQ(find(prefill, "gate, up")->bound, Bound::kCompute);
  EXPECT_NEAR(find(prefill, "gate, up")->flops, 32 * 2.0 * 4096 * 28672 * 4096, 1e6);
  deployment.tensor_parallel_size = 2;
  EXPECT_EQ(
      find(explain(deployment, {.batch = 0, .prompts = 1, .prompt_tokens = 4096}), "all-reduce (MLP)")->bound,
      Bound::kNetwork);
}

TEST(ExplainTest, NothingIsUnderItsFloor) {
  Deployment deployment;
  deployment.gpu = load_gpu("l40s");
  deployment.max_num_batched_tokens = 8192;
  deployment.max_num_seqs = 256;
  for (const std::string& name : model_names()) {
    deployment.model = load_model(name);
    for (const ExplainedOperator& op :
         explain(deployment, {.batch = 16, .context = 3000, .prompts = 2, .prompt_tokens = 700}).operators) {
      EXPECT_GE(op.seconds, op.floor_seconds) << name << " " << op.name;
    }
  }
}

TEST(ExplainTest, DraftsAreVerifiedByTheRow) {
  Deployment deployment = round_deployment();
  deployment.num_speculative_tokens = 3;
  deployment.max_num_batched_tokens = 8192;
  deployment.max_num_seqs = 256;
  OwnedStepShape owned;
  fill_step_shape(deployment, {.batch = 5, .context = 100}, owned);
  EXPECT_EQ(owned.shape.num_tokens, 20);
  EXPECT_EQ(owned.shape.num_sampled, 20);
  ASSERT_EQ(owned.chunks.size(), 5U);
  EXPECT_EQ(owned.chunks[0].num_computed_tokens, 99);
}

TEST(ExplainTest, TextDotAndJsonTellTheSameStep) {
  const RooflineStep model(round_deployment(), std::make_unique<RoundTimes>(), {.device_step_s = 100e-6});
  const std::string text = explain_text(explain(model, one_decode()));
  EXPECT_THAT(text, HasSubstr("attention (decode)"));
  EXPECT_THAT(text, HasSubstr("243.0"));
  const std::string dot = explain_dot(model, one_decode());
  EXPECT_THAT(dot, HasSubstr("digraph"));
  EXPECT_THAT(dot, HasSubstr("QKV\\n2 x 10.0 us"));

  const nlohmann::json json = nlohmann::json::parse(explain_json(model, one_decode()));
  EXPECT_EQ(json["operators"].size(), num_vertices(model.graph()));
  EXPECT_EQ(json["edges"].size(), num_edges(model.graph()));
  EXPECT_DOUBLE_EQ(json["step"]["device_s"], 243e-6);
  double seconds = json["step"]["server_s"];
  for (const auto& op : json["operators"]) seconds += op["seconds"].get<double>();
  EXPECT_NEAR(seconds, 243e-6, 1e-9);
}

}  // namespace
}  // namespace kneepoint::hw
