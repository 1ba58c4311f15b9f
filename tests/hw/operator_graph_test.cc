// Shapes of a rank are compared with the model's published dimensions divided by
// hand; costs with the formulas of a matrix product and of attention.
#include "hw/operator_graph.h"

#include <gtest/gtest.h>

#include <boost/assert.hpp>

#include "hw/model_arch.h"
#include "tests/hw/round_times.h"

namespace kneepoint::hw {
namespace {

const Operator* find(const OperatorGraph& graph, const std::string& name) {
  const auto [first, last] = vertices(graph);
  for (auto vertex = first; vertex != last; ++vertex) {
    if (graph[*vertex].name == name) return &graph[*vertex];
  }
  return nullptr;
}

const GemmShape& gemm(const OperatorGraph& graph, const std::string& name) {
  const Operator* op = find(graph, name);
  BOOST_ASSERT_MSG(op != nullptr, name.c_str());
  return std::get<GemmOperator>(op->form).shape;
}

Deployment of(const std::string& model, std::int64_t tp) {
  Deployment deployment;
  deployment.model = load_model(model);
  deployment.gpu = boundless_gpu();
  deployment.tensor_parallel_size = tp;
  return deployment;
}

struct GemmCase {
  const char* model;
  std::int64_t tp;
  const char* name;
  std::int64_t n, k;
};

const GemmCase kGemms[] = {
    // 32 query and 8 KV heads of 128: (32 + 2 * 8) * 128 = 6144.
    {"llama-3.1-8b", 1, "QKV", 6144, 4096},
    {"llama-3.1-8b", 1, "output projection", 4096, 4096},
    {"llama-3.1-8b", 1, "gate, up", 2 * 14336, 4096},
    {"llama-3.1-8b", 1, "down", 4096, 14336},
    {"llama-3.1-8b", 1, "LM head", 128256, 4096},
    // 8 query heads and 2 KV heads a rank: (8 + 4) * 128 = 1536.
    {"llama-3.1-8b", 4, "QKV", 1536, 4096},
    {"llama-3.1-8b", 4, "output projection", 4096, 1024},
    {"llama-3.1-8b", 4, "down", 4096, 3584},
    {"llama-3.1-8b", 4, "LM head", 32064, 4096},
    // 28 query heads, 4 KV heads, 4 ranks: one KV head each, (7 + 2) * 128 = 1152.
    {"qwen2.5-7b", 4, "QKV", 1152, 3584},
    // DeepSeek-V3: q_lora 1536, kv_lora 512, rope 64, nope 128, v 128; 128 heads, 16 a rank.
    {"deepseek-v3", 8, "Q, KV down", 1536 + 512 + 64, 7168},
    {"deepseek-v3", 8, "Q up", 16 * 192, 1536},
    {"deepseek-v3", 8, "Q absorption (decode)", 16 * 512, 128},
    {"deepseek-v3", 8, "KV up (prefill)", 16 * 256, 512},
    {"deepseek-v3", 8, "V up (decode)", 16 * 128, 512},
    {"deepseek-v3", 8, "output projection", 7168, 16 * 128},
    {"deepseek-v3", 8, "router", 256, 7168},
};

TEST(OperatorGraphTest, TensorParallelismDividesHeadsAndColumns) {
  for (const GemmCase& c : kGemms) {
    const OperatorGraph graph = build_operator_graph(of(c.model, c.tp));
    EXPECT_EQ(gemm(graph, c.name).n, c.n) << c.model << " TP " << c.tp << " " << c.name;
    EXPECT_EQ(gemm(graph, c.name).k, c.k) << c.model << " TP " << c.tp << " " << c.name;
  }
}

TEST(OperatorGraphTest, MoreRanksThanKvHeadsReplicateThem) {
  // 8 KV heads on 16 ranks: each rank keeps one, (2 + 2 * 1) * 128 = 512.
  EXPECT_EQ(gemm(build_operator_graph(of("llama-3.1-8b", 16)), "QKV").n, 512);
}

TEST(OperatorGraphTest, OneGpuNeedsNoCollective) {
  const OperatorGraph one = build_operator_graph(of("llama-3.1-8b", 1));
  EXPECT_EQ(find(one, "all-reduce (attention)"), nullptr);
  const OperatorGraph two = build_operator_graph(of("llama-3.1-8b", 2));
  ASSERT_NE(find(two, "all-reduce (attention)"), nullptr);
  EXPECT_EQ(find(two, "all-reduce (attention)")->count, 32);
  // A hidden state of 4096 values of 2 bytes a token.
  const auto& shape = std::get<CollectiveOperator>(find(two, "all-reduce (MLP)")->form).shape;
  EXPECT_EQ(shape.message_bytes, 8192);
}

TEST(OperatorGraphTest, PipelineDividesLayersAndSends) {
  Deployment deployment = of("llama-3.1-8b", 1);
  deployment.pipeline_parallel_size = 3;
  const OperatorGraph graph = build_operator_graph(deployment);
  EXPECT_EQ(find(graph, "QKV")->count, 32);
  EXPECT_EQ(find(graph, "QKV")->stage_count, 11);  // ceil(32 / 3)
  EXPECT_EQ(find(graph, "pipeline send")->count, 2);
  EXPECT_EQ(find(graph, "pipeline send")->stage_count, 1);
}

TEST(OperatorGraphTest, ExpertParallelismDividesExpertsNotTheirColumns) {
  Deployment deployment = of("qwen3-30b-a3b", 4);
  const auto experts = [&] {
    const OperatorGraph graph = build_operator_graph(deployment);
    return std::get<MoeOperator>(find(graph, "experts")->form).shape;
  };
  EXPECT_EQ(experts().moe_tp, 4);
  EXPECT_EQ(experts().moe_ep, 1);
  deployment.enable_expert_parallel = true;
  EXPECT_EQ(experts().moe_tp, 1);
  EXPECT_EQ(experts().moe_ep, 4);
}

TEST(OperatorGraphTest, LatentAttentionReadsTheLatentOnce) {
  // DeepSeek-V3, one token of one sequence at a context of 1000 on one of 8 ranks:
  // 1000 latents of 512 + 64 values of 2 bytes; 16 heads each multiply 576 values
  // for the score and 512 for the result: 2 * 1000 * 16 * (576 + 512) FLOP.
  const OperatorGraph graph = build_operator_graph(of("deepseek-v3", 8));
  StepShape step;
  step.decodes = {1, 1000, 1000, {}};
  step.num_tokens = step.padded_tokens = 1;
  const OperatorCost cost = cost_of(*find(graph, "attention (decode)"), step);
  const double latents = 1000.0 * 576 * 2;
  const double queries = 16.0 * (576 + 512) * 2;
  // Heads are whole numbers of the latent's width, so up to one head more.
  EXPECT_NEAR(cost.bytes, latents + queries, 2 * 2 * 288);
  EXPECT_NEAR(cost.flops / (2.0 * 1000 * 16 * (576 + 512)), 1, 0.04);
  EXPECT_GE(cost.flops, 2.0 * 1000 * 16 * (576 + 512));
}

TEST(OperatorGraphTest, ResidualsPassAttentionBy) {
  const OperatorGraph graph = build_operator_graph(round_deployment());
  const auto [first, last] = vertices(graph);
  OperatorVertex before = 0, after = 0;
  for (auto vertex = first; vertex != last; ++vertex) {
    if (graph[*vertex].name == "norm (attention)") before = *vertex;
    if (graph[*vertex].name == "norm (MLP)") after = *vertex;
  }
  EXPECT_TRUE(edge(before, after, graph).second);
}

TEST(OperatorGraphTest, LongestPathOfADiamondTakesTheHeavierSide) {
  //      b (5)
  //  a <       > d      3 + 7 + 1 = 11
  //      c (7)
  OperatorGraph graph;
  const auto add = [&](const char* name) {
    return add_vertex(Operator{name, ElementwiseOperator{}, 1, 1}, graph);
  };
  const auto a = add("3"), b = add("5"), c = add("7"), d = add("1");
  add_edge(a, b, graph);
  add_edge(a, c, graph);
  add_edge(b, d, graph);
  add_edge(c, d, graph);
  EXPECT_DOUBLE_EQ(longest_path(graph, [](const Operator& op) { return std::stod(op.name); }), 11);
}

TEST(OperatorGraphTest, CostOfAMatrixProduct) {
  // 2 m n k FLOP; weights n k, inputs m k, outputs m n. FP8: one byte for the
  // first two. INT4: half a byte and two bytes for each 128 weights.
  const GemmShape bf16{Precision::kBf16, 3, 256, 128};
  EXPECT_DOUBLE_EQ(gemm_cost(bf16).flops, 2.0 * 3 * 256 * 128);
  EXPECT_DOUBLE_EQ(gemm_cost(bf16).bytes, 2.0 * (256 * 128 + 3 * 128 + 3 * 256));
  const GemmShape fp8{Precision::kFp8, 3, 256, 128};
  EXPECT_DOUBLE_EQ(gemm_cost(fp8).bytes, 256.0 * 128 + 3 * 128 + 2 * 3 * 256);
  const GemmShape int4{Precision::kInt4, 3, 256, 128};
  EXPECT_DOUBLE_EQ(gemm_cost(int4).bytes, 256 * 128 * 0.5 + 256 * 2.0 + 2.0 * (3 * 128 + 3 * 256));
}

struct PairsCase {
  const char* name;
  std::int64_t window, tokens, computed;
  double pairs;
};

const PairsCase kPairs[] = {
    {"fresh prompt: 1 + 2 + 3 + 4", 0, 4, 0, 10},
    {"over 10 old tokens: 11 + 12", 0, 2, 10, 23},
    {"window not reached", 8, 4, 0, 10},
    {"window cuts the later ones: 1 + 2 + 3 + 3 + 3", 3, 5, 0, 12},
    {"window cuts all: 3 * 3", 3, 3, 10, 9},
    {"window is reached on the way: 3 + 4 + 4", 4, 3, 2, 11},
};

TEST(OperatorGraphTest, WindowsLimitWhatAQuerySees) {
  for (const PairsCase& c : kPairs) {
    const AttentionHeads heads{.num_heads = 1, .num_kv_heads = 1, .head_size = 1, .window = c.window};
    EXPECT_DOUBLE_EQ(chunk_attention_cost(heads, {c.tokens, c.computed}).flops, 4 * c.pairs) << c.name;
    // The piece that stands for it has as many pairs, rounded up to whole old tokens.
    const WindowedChunk cut = windowed(heads, {c.tokens, c.computed});
    const double n = static_cast<double>(cut.piece.num_tokens),
                 p = static_cast<double>(cut.piece.num_computed_tokens);
    EXPECT_GE(cut.repeats * (n * p + n * (n + 1) / 2), c.pairs * (1 - 1e-12)) << c.name;
    EXPECT_LE(cut.repeats * (n * p + n * (n + 1) / 2), c.pairs + cut.repeats * n) << c.name;
  }
}

TEST(OperatorGraphTest, WindowedDecodesUseTheirOwnSums) {
  const std::int64_t sums[] = {30, 70};
  const Decodes decodes{2, 1000, 900, sums};
  const AttentionHeads heads{
      .num_heads = 4, .num_kv_heads = 2, .head_size = 8, .window = 64, .window_index = 1};
  EXPECT_EQ(decode_shape(heads, decodes).context_sum, 70);
  EXPECT_EQ(decode_shape(heads, decodes).context_max, 64);
}

TEST(OperatorGraphTest, WindowsOfAModelAreListedOnce) {
  ModelArch model = round_model();
  model.layers = {{.count = 1, .attention_window = 128},
                  {.count = 1},
                  {.count = 2, .attention_window = 128},
                  {.count = 1, .attention_window = 64}};
  EXPECT_EQ(attention_windows_of(model), (std::vector<std::int64_t>{64, 128}));
}

}  // namespace
}  // namespace kneepoint::hw
