// vLLM's memory accounting: worked by hand, held against recorded servers, and
// bounded by the device for every combination of what is bundled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "hw/deployment.h"
#include "hw/memory_terms.h"
#include "hw/spec_error.h"
#include "tests/support/shared_data.h"

namespace kneepoint::hw {
namespace {

constexpr double kGiB = 1073741824.0;

Deployment served(const std::string& model, const std::string& gpu, std::int64_t tp = 1,
                  std::int64_t pp = 1) {
  Deployment d;
  d.model = load_model(model);
  d.gpu = load_gpu(gpu);
  d.tensor_parallel_size = tp;
  d.pipeline_parallel_size = pp;
  d.max_model_len = 4096;
  d.max_num_seqs = 128;
  d.max_num_batched_tokens = 2048;
  return d;
}

// Block bytes: 16 tokens x layers x (K and V) x heads on the rank x head size x bytes.
struct BlockCase {
  const char* why;
  const char* model;
  std::int64_t tp, pp;
  Precision kv;
  std::int64_t block_bytes;
};

const BlockCase kBlocks[] = {
    {"32 layers, 8 heads of 128, bf16: 32 x 65,536", "llama-3.1-8b", 1, 1, Precision::kBf16, 2097152},
    {"fp8 takes half", "llama-3.1-8b", 1, 1, Precision::kFp8, 1048576},
    {"tp 8: one head a rank", "llama-3.1-8b", 8, 1, Precision::kBf16, 262144},
    {"tp 16: still one head, replicated", "llama-3.1-8b", 16, 1, Precision::kBf16, 262144},
    {"pp 2: 16 layers", "llama-3.1-8b", 1, 2, Precision::kBf16, 1048576},
    {"tp 2 and pp 4 divide once each", "llama-3.1-8b", 2, 4, Precision::kBf16, 262144},
    {"MLA: 16 x 61 x 576 x 2", "deepseek-v3", 1, 1, Precision::kBf16, 1124352},
    {"MLA's latent is whole on every rank", "deepseek-v3", 8, 1, Precision::kBf16, 1124352},
};

TEST(Blocks, TakeTheBytesWorkedByHand) {
  for (const BlockCase& c : kBlocks) {
    SCOPED_TRACE(c.why);
    Deployment d = served(c.model, "h200", c.tp, c.pp);
    d.kv_cache = c.kv;
    EXPECT_EQ(size_memory(d).block_bytes, c.block_bytes);
  }
}

// Llama 3.1 8B by hand: a layer's linear weights are 4096 x 6144 + 4096 x 4096 + 3 x 4096
// x 14,336 = 218,103,808; both tables 2 x 128,256 x 4096 = 1,050,673,152; norms 65 x
// 4096 = 266,240, on every rank.
TEST(Weights, KeepTablesAndNormsIn16Bits) {
  const double linear = 32 * 218103808.0;
  const double tables = 1050673152.0;
  const double norms = 266240.0;
  Deployment d = served("llama-3.1-8b", "h100");
  EXPECT_DOUBLE_EQ(size_memory(d).weights, 2 * (linear + tables + norms));
  d.weights = Precision::kFp8;
  EXPECT_DOUBLE_EQ(size_memory(d).weights, linear + 2 * (tables + norms));
  d.weights = Precision::kInt4;  // 64 byte, a scale of 2 and a zero point of 1/2 for 128 weights.
  EXPECT_DOUBLE_EQ(size_memory(d).weights, linear * 66.5 / 128 + 2 * (tables + norms));
  d.tensor_parallel_size = 4;
  EXPECT_DOUBLE_EQ(size_memory(d).weights, linear * 66.5 / 128 / 4 + 2 * (tables / 4 + norms));
}

TEST(Weights, ReplicateKvHeadsBeyondTheirNumber) {
  // At tp 16 a rank holds 1/16 of all but K and V, of whose 8 heads it holds one.
  const double kv = 2 * 4096.0 * 1024;
  const double others = 218103808.0 - kv;
  const MemoryBudget memory = size_memory(served("llama-3.1-8b", "h100", 16));
  EXPECT_DOUBLE_EQ(memory.weights, 2 * (32 * (others / 16 + kv / 8) + 1050673152.0 / 16 + 266240));
}

TEST(Weights, OfTheLargestStageDecide) {
  // Qwen2.5 7B, pp 2: 14 layers each; the last stage has the LM head and the last
  // norm, the first the embedding. Equal blocks of bytes but for that norm.
  const MemoryBudget whole = size_memory(served("qwen2.5-7b", "h100"));
  const MemoryBudget half = size_memory(served("qwen2.5-7b", "h100", 1, 2));
  EXPECT_NEAR(half.weights, whole.weights / 2, 1e5);
  EXPECT_EQ(half.block_bytes, whole.block_bytes / 2);
}

TEST(Weights, OfADrafterAndItsKvAreCounted) {
  Deployment d = served("llama-3.3-70b", "h200", 2);
  const MemoryBudget plain = size_memory(d);
  d.num_speculative_tokens = 3;
  d.drafter = Drafter::kModel;
  d.draft_model = load_model("llama-3.1-8b");
  const MemoryBudget drafted = size_memory(d);
  EXPECT_NEAR(drafted.weights - plain.weights, 8030261248.0, 1);  // 8.03 B x 2 byte over 2 ranks.
  EXPECT_EQ(drafted.block_bytes - plain.block_bytes, 1048576);    // 2 MiB over 2 ranks.
  d.drafter = Drafter::kHead;                                     // One layer more: 1/80 of the blocks.
  EXPECT_EQ(size_memory(d).block_bytes, plain.block_bytes / 80 * 81);
  d.drafter = Drafter::kLookUp;
  EXPECT_EQ(size_memory(d).block_bytes, plain.block_bytes);
}

TEST(Sizing, AddsUp) {
  const MemoryBudget m = size_memory(served("llama-3.1-8b", "h100"));
  EXPECT_DOUBLE_EQ(m.requested, std::ceil(m.total * 0.92));
  EXPECT_DOUBLE_EQ(m.kv_cache, m.requested - m.weights - m.activations - m.cuda_graphs - m.other);
  EXPECT_EQ(m.num_blocks, static_cast<std::int64_t>(m.kv_cache / static_cast<double>(m.block_bytes)));
  EXPECT_GT(m.cuda_graphs, 0);
  Deployment eager = served("llama-3.1-8b", "h100");
  eager.enforce_eager = true;
  EXPECT_EQ(size_memory(eager).cuda_graphs, 0);
}

TEST(Sizing, TakesOverridesAsGiven) {
  Deployment d = served("llama-3.1-8b", "h100");
  d.kv_cache_memory_bytes = 10 * 2097152 + 1;
  EXPECT_EQ(size_memory(d).num_blocks, 10);
  d.num_gpu_blocks_override = 700;
  EXPECT_EQ(size_memory(d).num_blocks, 700);
  EXPECT_THAT(size_memory(d).provenance, testing::HasSubstr("--num-gpu-blocks-override"));
}

// As real servers logged it: 600 and 100 blocks of 32 tokens, 2,048 tokens a request,
// "9.38x" and "1.56x".
TEST(Sizing, ConcurrencyIsWhatVllmPrints) {
  Deployment d = served("llama-3.1-8b", "h100");
  d.block_size = 32;
  d.max_model_len = 2048;
  d.num_gpu_blocks_override = 600;
  EXPECT_DOUBLE_EQ(size_memory(d).max_concurrency, 9.375);
  d.num_gpu_blocks_override = 100;
  EXPECT_DOUBLE_EQ(size_memory(d).max_concurrency, 1.5625);
}

TEST(Sizing, LongestRequestLeavesTheNullBlock) {
  MemoryBudget memory;
  memory.num_blocks = 11;
  EXPECT_EQ(largest_model_len(memory, 16), 160);
  memory.num_blocks = 0;
  EXPECT_EQ(largest_model_len(memory, 16), 0);
}

TEST(Sizing, AModelThatIsTooLargeHasNoBlocks) {
  const MemoryBudget memory = size_memory(served("llama-3.3-70b", "h100"));
  EXPECT_EQ(memory.num_blocks, 0);
  EXPECT_GT(memory.weights, memory.requested);
}

// Rows of kv_cache_blocks.csv: what vLLM chose. The four terms that stand for its trial
// run were set on these rows, so leave-one-out is what says something: the rows' own
// rest (requested - KV - weights - activations) must agree between rows.
struct RecordedRow {
  Deployment deployment;
  std::int64_t num_blocks = 0;
};

std::vector<RecordedRow> recorded_rows(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  std::vector<RecordedRow> rows;
  while (std::getline(in, line)) {
    std::vector<std::string> cells;
    std::stringstream text(line);
    for (std::string cell; std::getline(text, cell, ',');) {
      cells.push_back(cell);
    }
    // model,gpu,tp,weights,kv,gmu,max_model_len,max_num_seqs,max_num_batched_tokens,block_size,vllm,blocks
    EXPECT_EQ(cells.size(), 12U) << line;
    EXPECT_EQ(cells[1], "H100-SXM5-80GB");
    RecordedRow row{served(cells[0], "h100", std::stoll(cells[2])), std::stoll(cells[11])};
    row.deployment.gpu_memory_utilization = std::stod(cells[5]);
    row.deployment.max_model_len = std::stoll(cells[6]);
    row.deployment.max_num_seqs = std::stoll(cells[7]);
    row.deployment.max_num_batched_tokens = std::stoll(cells[8]);
    row.deployment.subtract_cuda_graphs = false;  // vLLM 0.15.1 captured graphs on top.
    rows.push_back(row);
  }
  return rows;
}

TEST(RecordedServers, ChoseTheseBlocks) {
  KNEEPOINT_SHARED_OR_SKIP(path, "data/serving/kv_cache_blocks.csv");
  const std::vector<RecordedRow> rows = recorded_rows(path);
  ASSERT_GE(rows.size(), 4U);
  for (const RecordedRow& row : rows) {
    const std::int64_t blocks = size_memory(row.deployment).num_blocks;
    EXPECT_NEAR(static_cast<double>(blocks), static_cast<double>(row.num_blocks),
                0.01 * static_cast<double>(row.num_blocks))
        << row.deployment.model.name;
  }
}

TEST(RecordedServers, PredictEachOther) {
  KNEEPOINT_SHARED_OR_SKIP(path, "data/serving/kv_cache_blocks.csv");
  const std::vector<RecordedRow> rows = recorded_rows(path);
  // What a server kept beside weights and modelled activations, by whether it has peers.
  const auto kept = [](const RecordedRow& row) {
    const MemoryBudget m = size_memory(row.deployment);
    return m.requested - m.weights - m.activations - static_cast<double>(row.num_blocks * m.block_bytes);
  };
  for (std::size_t out = 0; out < rows.size(); ++out) {
    if (rows[out].deployment.tensor_parallel_size == 1) {
      continue;  // The only one without peers has none to learn from.
    }
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i != out && rows[i].deployment.tensor_parallel_size > 1) {
        sum += kept(rows[i]);
        count += 1;
      }
    }
    const MemoryBudget m = size_memory(rows[out].deployment);
    const double blocks =
        (m.requested - m.weights - m.activations - sum / count) / static_cast<double>(m.block_bytes);
    const auto recorded = static_cast<double>(rows[out].num_blocks);
    EXPECT_NEAR(blocks, recorded, 0.01 * recorded) << rows[out].deployment.model.name;
  }
}

// Inferred from the knees of a measured server: about 222k tokens of bf16 KV.
TEST(RecordedServers, HeldAbout222kTokensOf70bInFp8) {
  Deployment d = served("llama-3.1-70b", "h100", 2);
  d.weights = Precision::kFp8;
  d.gpu_memory_utilization = 0.9;
  d.max_num_batched_tokens = 8192;
  d.max_num_seqs = 64;
  EXPECT_NEAR(static_cast<double>(size_memory(d).num_blocks * 16), 222e3, 0.04 * 222e3);
}

// BLOCKS_FIT: whatever is served how, blocks, weights and the rest fit the device. The
// bytes of weights and blocks are worked out anew here, from the architecture.
double least_weight_bytes(const Deployment& d) {
  const double bytes = d.weights == Precision::kBf16 ? 2 : d.weights == Precision::kFp8 ? 1 : 0.5;
  const auto gpus = static_cast<double>(d.tensor_parallel_size * d.pipeline_parallel_size);
  return parameter_count(d.model) * bytes / gpus;  // Of the average rank.
}

std::int64_t kv_bytes_of_a_block(const Deployment& d) {
  const ModelArch& m = d.model;
  const std::int64_t layers = (m.num_layers + d.pipeline_parallel_size - 1) / d.pipeline_parallel_size;
  const std::int64_t tp = d.tensor_parallel_size;
  const std::int64_t heads = tp > m.num_kv_heads ? 1 : m.num_kv_heads / tp;
  const std::int64_t values = m.is_mla() ? 576 : heads * m.head_size * 2;
  return d.block_size * values * layers * (d.kv_cache == Precision::kFp8 ? 1 : 2);
}

class EveryModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryModel, FitsEveryGpuHoweverItIsSplit) {
  int served_somewhere = 0;
  for (const std::string& gpu : gpu_names()) {
    const Deployment whole = served(GetParam(), gpu);
    for (const std::int64_t tp : {1, 2, 4, 8, 16}) {
      for (const std::int64_t pp : {1, 2, 3, 4, 8}) {
        for (const Precision weights : {Precision::kBf16, Precision::kFp8, Precision::kInt4}) {
          for (const Precision kv : {Precision::kBf16, Precision::kFp8}) {
            Deployment d = whole;
            d.tensor_parallel_size = tp;
            d.pipeline_parallel_size = pp;
            if (d.model.num_heads % tp != 0 ||
                (!d.model.is_mla() && tp % d.model.num_kv_heads != 0 && d.model.num_kv_heads % tp != 0)) {
              EXPECT_THROW(validate(d), SpecError);
              continue;
            }
            d.weights = weights;
            d.kv_cache = kv;
            validate(d);
            const MemoryBudget m = size_memory(d);
            const double used = static_cast<double>(m.num_blocks) * static_cast<double>(m.block_bytes);
            const double rest = m.activations + m.cuda_graphs + m.other;
            if (m.num_blocks > 0) {
              served_somewhere += 1;
              ASSERT_LE(used + m.weights + rest, static_cast<double>(d.gpu.memory_bytes));
            }
            // The stage that decides is not smaller than an even share of layers.
            ASSERT_LE(m.block_bytes, kv_bytes_of_a_block(d));
            ASSERT_GE(m.block_bytes * pp, kv_bytes_of_a_block(d) * pp * (d.model.num_layers / pp) /
                                              ((d.model.num_layers + pp - 1) / pp));
            if (pp == 1) {
              ASSERT_EQ(m.block_bytes, kv_bytes_of_a_block(d));
              ASSERT_GE(m.weights, least_weight_bytes(d));
            }
          }
        }
      }
    }
  }
  EXPECT_GT(served_somewhere, 100);
}

INSTANTIATE_TEST_SUITE_P(, EveryModel, testing::ValuesIn(model_names()), [](const auto& row) {
  std::string name = row.param;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

TEST(Parallelism, TpScalesCapacityOnce) {
  // Two ranks of half the heads each hold as many tokens as two GPUs' KV memory allows,
  // not twice that.
  const Deployment one = served("llama-3.1-8b", "h100");
  const Deployment two = served("llama-3.1-8b", "h100", 2);
  const double kv_of_both = 2 * size_memory(two).kv_cache;
  const double bytes_per_block_of_model = static_cast<double>(size_memory(one).block_bytes);
  EXPECT_LE(static_cast<double>(size_memory(two).num_blocks), kv_of_both / bytes_per_block_of_model);
  EXPECT_GE(static_cast<double>(size_memory(two).num_blocks), kv_of_both / bytes_per_block_of_model - 2);
}

TEST(Parallelism, MoreMemoryOrFewerBytesNeverMeanFewerBlocks) {
  const std::int64_t base = size_memory(served("llama-3.1-8b", "h100")).num_blocks;
  EXPECT_GT(size_memory(served("llama-3.1-8b", "h200")).num_blocks, base);
  EXPECT_LT(size_memory(served("llama-3.1-8b", "l40s")).num_blocks, base);
  EXPECT_GT(size_memory(served("llama-3.1-8b", "h100", 2)).num_blocks, 2 * base);  // Weights are shared too.
  EXPECT_GT(size_memory(served("llama-3.1-8b", "h100", 1, 2)).num_blocks, 2 * base);
  Deployment more_tokens = served("llama-3.1-8b", "h100");
  more_tokens.max_num_batched_tokens = 16384;
  EXPECT_LT(size_memory(more_tokens).num_blocks, base);
}

TEST(Terms, LieWithinTheirBounds) {
  const MemoryTerms terms = load_memory_terms();
  EXPECT_GT(terms.context_bytes, 0.05 * kGiB);
  EXPECT_LT(terms.peers_bytes, 2 * kGiB);
  EXPECT_EQ(memory_term_parameters().size(), 6U);
}

TEST(Validate, NamesTheOption) {
  struct Case {
    void (*spoil)(Deployment&);
    const char* said;
  };
  const Case cases[] = {
      {[](Deployment& d) { d.tensor_parallel_size = 3; }, "--tensor-parallel-size 3 does not divide the 32"},
      {[](Deployment& d) { d.tensor_parallel_size = 0; }, "--tensor-parallel-size 0"},
      {[](Deployment& d) { d.pipeline_parallel_size = 33; }, "--pipeline-parallel-size 33 for the 32 layers"},
      {[](Deployment& d) { d.gpu_memory_utilization = 1.01; }, "--gpu-memory-utilization 1.01"},
      {[](Deployment& d) { d.gpu_memory_utilization = std::nan(""); }, "--gpu-memory-utilization nan"},
      {[](Deployment& d) { d.kv_cache = Precision::kInt4; }, "--kv-cache-dtype"},
      {[](Deployment& d) { d.num_gpu_blocks_override = 0; }, "--num-gpu-blocks-override 0"},
      {[](Deployment& d) { d.kv_cache_memory_bytes = -1; }, "--kv-cache-memory-bytes -1"},
  };
  for (const Case& c : cases) {
    Deployment d = served("llama-3.1-8b", "h100");
    c.spoil(d);
    try {
      validate(d);
      ADD_FAILURE() << c.said;
    } catch (const SpecError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(c.said));
    }
  }
}

}  // namespace
}  // namespace kneepoint::hw
