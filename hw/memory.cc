// GPU memory as vLLM accounts for it at start (deployment.h, MemoryBudget).
//
//     requested  = total * gpu_memory_utilization
//     kv_cache   = requested - weights - activations - cuda_graphs - other
//     num_blocks = kv_cache / bytes of one block over the rank's layers
//
// and of all ranks the one with the fewest blocks decides. Tensor parallelism
// makes all ranks of a stage equal: it divides weights and KV heads, once, here,
// and never the capacity. Pipeline parallelism divides layers; its stages differ,
// for the first holds the embedding and the last the LM head, so each is sized.
//
// Weights and blocks follow from the architecture. What vLLM measures in a trial
// run (activations, context, NCCL, graphs) comes from hw/memory_terms.h.
//
// Example: Llama 2 7B in bf16 on an H100 of 79.19 GiB at 0.9: 71.27 GiB, less
// 12.55 of weights, 0.27 of activations at 2048 tokens and 0.17 of context, is
// 58.28 GiB; a block of 16 tokens takes 8 MiB (32 layers, 32 heads of 128, K and
// V, 2 byte): 7,459 blocks. vLLM 0.15.1 reported 7,463.
#include <fmt/format.h>

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "hw/deployment.h"
#include "hw/layer_parameters.h"
#include "hw/memory_terms.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

constexpr double kPlainBytes = 2;  // bf16.
constexpr double kGiB = 1073741824.0;
constexpr double kLeastGraphBytes = 1048576.0;  // vLLM counts a graph as 1 MiB at least.

double d(std::int64_t value) {
  return static_cast<double>(value);
}

double kv_value_bytes(const Deployment& dep) {
  return dep.kv_cache == Precision::kFp8 ? 1 : kPlainBytes;
}

double bytes_per_weight(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return kPlainBytes;
    case Precision::kFp8:
      return 1;
    // Groups of 128 weights of 4 bits share a 16-bit scale and a 4-bit zero point.
    case Precision::kInt4:
      return 0.5 + 2.5 / 128;
  }
  BOOST_ASSERT_MSG(false, "a precision without bytes");
  return kPlainBytes;
}

// A pipeline stage: a run of layers, and who holds the tables.
struct Stage {
  std::int64_t first_layer = 0;
  std::int64_t num_layers = 0;
  bool first = false;
  bool last = false;
};

// Layers that do not divide evenly go one each to the stages before the last,
// which has the LM head to carry.
std::vector<Stage> stages_of(const Deployment& dep) {
  const std::int64_t pp = dep.pipeline_parallel_size;
  const std::int64_t spare = dep.model.num_layers % pp;
  std::vector<Stage> stages;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < pp; ++i) {
    const bool takes_spare = i < pp - 1 && i >= pp - 1 - spare;
    const std::int64_t layers = dep.model.num_layers / pp + (takes_spare ? 1 : 0);
    stages.push_back({.first_layer = next, .num_layers = layers, .first = i == 0, .last = i == pp - 1});
    next += layers;
  }
  BOOST_ASSERT(next == dep.model.num_layers);
  return stages;
}

// How many layers of `group`, whose first is `begin`, lie in the stage.
std::int64_t layers_in_stage(const Stage& stage, std::int64_t begin, std::int64_t count) {
  const std::int64_t from = std::max(begin, stage.first_layer);
  const std::int64_t to = std::min(begin + count, stage.first_layer + stage.num_layers);
  return std::max<std::int64_t>(0, to - from);
}

// Share of a rank in the experts: whole ones with expert parallelism, else slices.
double expert_share(const Deployment& dep, const LayerGroup& group) {
  const std::int64_t tp = dep.tensor_parallel_size;
  if (!group.moe || !dep.enable_expert_parallel) {
    return 1 / d(tp);
  }
  return d((dep.model.num_experts + tp - 1) / tp) / d(dep.model.num_experts);
}

double layer_bytes(const Deployment& dep, const LayerGroup& group) {
  const ModelArch& m = dep.model;
  const double tp = d(dep.tensor_parallel_size);
  const LayerParameters p = layer_parameters(m, group, m.num_experts);
  const double kv_share = std::max(1 / tp, 1 / d(m.num_kv_heads));
  const double attention = p.attention_split / tp + p.attention_kv * kv_share + p.attention_whole;
  const double quantised = bytes_per_weight(dep.weights);
  return attention * (m.only_experts_quantised ? kPlainBytes : quantised) +
         p.mlp_split * expert_share(dep, group) * quantised + p.unquantised * kPlainBytes;
}

// A draft head is one more layer and a projection of two hidden states to one; a
// draft model is a whole model, split over the same ranks.
double drafter_bytes(const Deployment& dep) {
  if (dep.num_speculative_tokens == 0 || dep.drafter == Drafter::kLookUp) {
    return 0;
  }
  if (dep.drafter == Drafter::kModel && dep.draft_model) {
    return parameter_count(*dep.draft_model) / d(dep.tensor_parallel_size) * kPlainBytes;
  }
  const double projection = 2 * d(dep.model.hidden_size) * d(dep.model.hidden_size);
  return layer_bytes(dep, dep.model.layers.back()) + projection / d(dep.tensor_parallel_size) * kPlainBytes;
}

// Embedding, LM head and norms stay in bf16 whatever the linear layers are in.
double weight_bytes(const Deployment& dep, const Stage& stage) {
  const double table = embedding_parameters(dep.model) / d(dep.tensor_parallel_size) * kPlainBytes;
  const bool shares_table = dep.model.tied_embeddings && stage.first;
  double bytes = stage.first ? table : 0;
  if (stage.last) {
    bytes += (shares_table ? 0 : table) + d(dep.model.hidden_size) * kPlainBytes + drafter_bytes(dep);
  }
  std::int64_t begin = 0;
  for (const LayerGroup& group : dep.model.layers) {
    bytes += d(layers_in_stage(stage, begin, group.count)) * layer_bytes(dep, group);
    begin += group.count;
  }
  return bytes;
}

// A token's activations at the peak of one layer.
double forward_bytes_per_token(const Deployment& dep, const MemoryTerms& terms) {
  const ModelArch& m = dep.model;
  double widest = 0;
  for (const LayerGroup& group : m.layers) {
    double values = terms.intermediate_copies * d(m.intermediate_size) / d(dep.tensor_parallel_size);
    if (group.moe) {
      // The fused kernel keeps gate and up, later the output, of each chosen expert
      // in one buffer, their product in another.
      const double inner =
          d(m.moe_intermediate_size) / (dep.enable_expert_parallel ? 1 : d(dep.tensor_parallel_size));
      values = d(m.experts_per_token) * (std::max(2 * inner, d(m.hidden_size)) + inner);
    }
    widest = std::max(widest, values);
  }
  return (terms.hidden_copies * d(m.hidden_size) + widest) * kPlainBytes;
}

// Peak of a trial forward pass of max_num_batched_tokens, or of the trial sampler
// run after it.
double activation_bytes(const Deployment& dep, const Stage& stage, const MemoryTerms& terms) {
  const double forward = d(dep.max_num_batched_tokens) * forward_bytes_per_token(dep, terms);
  const double rows = d(std::min(dep.max_num_seqs, dep.max_num_batched_tokens));
  const double sampler = stage.last ? rows * d(dep.model.vocab_size) * terms.sampler_bytes_per_logit : 0;
  return std::max(forward, sampler);
}

// Each graph, and the pool they share: the activations of the largest.
double graph_bytes(const Deployment& dep, const Stage& stage, const MemoryTerms& terms) {
  const GraphSizes sizes(dep);
  if (!dep.subtract_cuda_graphs || sizes.num_graphs() == 0) {
    return 0;
  }
  const double one = std::max(kLeastGraphBytes, d(stage.num_layers) * terms.graph_layer_bytes);
  return d(sizes.num_graphs()) * one + d(sizes.largest()) * forward_bytes_per_token(dep, terms);
}

// KV values of one token in one layer of one rank. TP splits heads down to one;
// MLA's latent is whole on every rank.
std::int64_t kv_values_on_rank(const ModelArch& m, std::int64_t tp) {
  return m.is_mla() ? kv_values_per_token_and_layer(m)
                    : 2 * std::max<std::int64_t>(1, m.num_kv_heads / tp) * m.head_size;
}

std::int64_t block_bytes_of(const Deployment& dep, const Stage& stage) {
  const std::int64_t tp = dep.tensor_parallel_size;
  std::int64_t values = stage.num_layers * kv_values_on_rank(dep.model, tp);
  if (stage.last && dep.num_speculative_tokens > 0) {
    if (dep.drafter == Drafter::kModel && dep.draft_model) {
      values += dep.draft_model->num_layers * kv_values_on_rank(*dep.draft_model, tp);
    } else if (dep.drafter == Drafter::kHead) {
      values += kv_values_on_rank(dep.model, tp);
    }
  }
  return std::llround(d(dep.block_size * values) * kv_value_bytes(dep));
}

MemoryBudget size_stage(const Deployment& dep, const Stage& stage, const MemoryTerms& terms) {
  MemoryBudget memory;
  memory.total = d(dep.gpu.memory_bytes);
  memory.requested = std::ceil(memory.total * dep.gpu_memory_utilization);
  memory.weights = weight_bytes(dep, stage);
  memory.activations = activation_bytes(dep, stage, terms);
  memory.cuda_graphs = graph_bytes(dep, stage, terms);
  const bool has_peers = dep.tensor_parallel_size * dep.pipeline_parallel_size > 1;
  memory.other = terms.context_bytes + (has_peers ? terms.peers_bytes : 0);
  memory.block_bytes = block_bytes_of(dep, stage);
  const double rest = memory.weights + memory.activations + memory.cuda_graphs + memory.other;
  memory.kv_cache =
      dep.kv_cache_memory_bytes ? d(*dep.kv_cache_memory_bytes) : std::max(0.0, memory.requested - rest);
  memory.num_blocks = static_cast<std::int64_t>(memory.kv_cache / d(memory.block_bytes));
  return memory;
}

}  // namespace

void validate(const Deployment& dep) {
  const std::int64_t tp = dep.tensor_parallel_size;
  const std::int64_t pp = dep.pipeline_parallel_size;
  if (tp < 1 || dep.model.num_heads % tp != 0) {
    throw SpecError(
        fmt::format("--tensor-parallel-size {} does not divide the {} attention heads of {}; give a divisor",
                    tp, dep.model.num_heads, dep.model.name));
  }
  if (!dep.model.is_mla() && dep.model.num_kv_heads % tp != 0 && tp % dep.model.num_kv_heads != 0) {
    throw SpecError(
        fmt::format("--tensor-parallel-size {} neither divides nor is divided by the {} KV heads of {}", tp,
                    dep.model.num_kv_heads, dep.model.name));
  }
  if (pp < 1 || pp > dep.model.num_layers) {
    throw SpecError(fmt::format("--pipeline-parallel-size {} for the {} layers of {}; give 1 to {}", pp,
                                dep.model.num_layers, dep.model.name, dep.model.num_layers));
  }
  if (!(dep.gpu_memory_utilization > 0 && dep.gpu_memory_utilization <= 1)) {
    throw SpecError(
        fmt::format("--gpu-memory-utilization {} is no share of the memory; give a value above 0, at most 1",
                    dep.gpu_memory_utilization));
  }
  if (dep.num_gpu_blocks_override && *dep.num_gpu_blocks_override < 1) {
    throw SpecError(
        fmt::format("--num-gpu-blocks-override {}: give at least 1", *dep.num_gpu_blocks_override));
  }
  if (dep.kv_cache_memory_bytes && *dep.kv_cache_memory_bytes < 1) {
    throw SpecError(fmt::format("--kv-cache-memory-bytes {}: give at least 1", *dep.kv_cache_memory_bytes));
  }
  if (dep.draft_model && dep.draft_model->num_heads % tp != 0) {
    throw SpecError(
        fmt::format("--tensor-parallel-size {} does not divide the {} attention heads of the draft model {}",
                    tp, dep.draft_model->num_heads, dep.draft_model->name));
  }
  if (dep.kv_cache == Precision::kInt4) {
    throw SpecError("--kv-cache-dtype: 4-bit KV is not modelled; give auto, bfloat16 or fp8");
  }
}

MemoryBudget size_memory(const Deployment& dep) {
  const MemoryTerms terms = load_memory_terms();
  std::optional<MemoryBudget> fewest;
  for (const Stage& stage : stages_of(dep)) {
    const MemoryBudget sized = size_stage(dep, stage, terms);
    if (!fewest || sized.num_blocks < fewest->num_blocks) {
      fewest = sized;
    }
  }
  MemoryBudget memory = *fewest;
  std::string origin = fmt::format("vLLM's sizing: {:.2f} GiB for KV of {:.2f} GiB x {:.2f}",
                                   memory.kv_cache / kGiB, memory.total / kGiB, dep.gpu_memory_utilization);
  if (dep.kv_cache_memory_bytes) {
    origin = "from --kv-cache-memory-bytes";
  }
  if (dep.num_gpu_blocks_override) {
    memory.num_blocks = *dep.num_gpu_blocks_override;
    memory.kv_cache = d(memory.num_blocks) * d(memory.block_bytes);
    origin = "from --num-gpu-blocks-override";
  }
  const std::int64_t blocks_per_request = (dep.max_model_len + dep.block_size - 1) / dep.block_size;
  memory.max_concurrency = blocks_per_request > 0 ? d(memory.num_blocks) / d(blocks_per_request) : 0;
  memory.provenance = fmt::format("{} blocks of {} tokens: {}", memory.num_blocks, dep.block_size, origin);
  return memory;
}

std::int64_t largest_model_len(const MemoryBudget& memory, std::int64_t block_size) {
  return std::max<std::int64_t>(0, memory.num_blocks - 1) * block_size;
}

}  // namespace kneepoint::hw
