// GPU memory as vLLM accounts for it at start (deployment.h, MemoryBudget).
//
//     requested  = total * gpu_memory_utilization
//     kv_cache   = requested - weights - activations - cuda_graphs - other
//     num_blocks = kv_cache / bytes of one block over the rank's layers
//
// Weights follow from the architecture. The other three are what vLLM measures in
// a profiling run; the constants below stand for it. They are few, each with a
// meaning, and hold for every model: against the four start-ups recorded in
// ../shared/data/serving/kv_cache_blocks.csv they are within 1 % of the blocks.
#include <fmt/format.h>

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>

#include "hw/deployment.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

// Copies of a token's hidden state alive at the peak of a layer: residual, normed
// input, output. Bounds 2 to 6. Estimated from a transformer layer's buffers.
constexpr double kHiddenCopies = 4;
// Of its feed-forward activations: gate and up, their product, and the buffer the
// next projection reads. Bounds 3 to 4. Same source.
constexpr double kIntermediateCopies = 3;
// Bytes a logit takes in the sampler's profiling run: bf16, fp32 and one sorted
// copy. Bounds 6 to 14. vLLM start-ups on H100 with 256 sequences and Llama 3 8B
// report 1.2 to 1.3 GiB of activations at 8192 tokens (pull request 10511).
constexpr double kSamplerBytesPerLogit = 10;
// CUDA context, kernels' code and cuBLAS workspaces beyond what was there before
// the instance. Bounds 0.05 to 0.5 GiB; "non_torch_memory takes 0.16GiB" (vLLM
// pull request 12126).
constexpr double kContextBytes = 0.16 * 1073741824.0;
// NCCL and custom all-reduce buffers of a rank with peers. Bounds 0.2 to 2 GiB:
// what the TP start-ups of kv_cache_blocks.csv have beyond the TP 1 one.
constexpr double kPeerBytes = 0.45 * 1073741824.0;
// One captured CUDA graph. Bounds 2 to 20 MiB: vLLM start-ups report 0.5 to 0.9 GiB
// for about 100 graphs of 8B to 70B models.
constexpr double kGraphBytes = 7.0 * 1048576.0;

double d(std::int64_t value) { return static_cast<double>(value); }

double bytes_of(Precision precision) {
  return precision == Precision::kBf16 ? 2.0 : precision == Precision::kFp8 ? 1.0 : 0.5;
}

// An INT4 group of 128 weights carries a 16-bit scale and a zero point.
double bytes_per_weight(Precision precision) {
  return precision == Precision::kInt4 ? 0.5 + 2.5 / 128.0 : bytes_of(precision);
}

std::int64_t layers_of_largest_stage(const Deployment& dep) {
  return (dep.model.num_layers + dep.pipeline_parallel_size - 1) / dep.pipeline_parallel_size;
}

// Embedding, LM head and norms stay in bf16 whatever the linear layers are in.
double weight_bytes(const Deployment& dep) {
  const ModelArch& m = dep.model;
  const double tp = d(dep.tensor_parallel_size);
  const double tables = d(m.vocab_size) * d(m.hidden_size);
  const double all_tables = tables * (m.tied_embeddings ? 1 : 2);
  double linear = parameter_count(m) - all_tables;
  // KV heads are replicated where there are fewer of them than ranks.
  const std::int64_t kv_copies = std::max<std::int64_t>(1, dep.tensor_parallel_size / std::max<std::int64_t>(1, m.num_kv_heads));
  if (!m.is_mla() && kv_copies > 1) {
    linear += d(kv_copies - 1) * d(m.num_layers) * 2 * d(m.num_kv_heads) * d(m.head_size) * d(m.hidden_size);
  }
  const double share = d(layers_of_largest_stage(dep)) / d(m.num_layers);
  const double tables_of_stage = dep.pipeline_parallel_size > 1 ? tables : all_tables;
  return linear * share / tp * bytes_per_weight(dep.weights) + tables_of_stage / tp * 2.0;
}

// Peak of a dummy forward pass of max_num_batched_tokens, or of the dummy sampler
// run after it, whichever is larger.
double activation_bytes(const Deployment& dep) {
  const ModelArch& m = dep.model;
  const double tokens = d(dep.max_num_batched_tokens);
  const double dense = d(m.intermediate_size) / d(dep.tensor_parallel_size);
  const double routed = d(m.experts_per_token) * d(m.moe_intermediate_size) / d(dep.tensor_parallel_size);
  const bool any_dense = std::any_of(m.layers.begin(), m.layers.end(), [](const LayerGroup& g) { return !g.moe; });
  const double intermediate = std::max(any_dense ? dense : 0.0, routed);
  const double routed_hidden = d(m.experts_per_token) * d(m.hidden_size);  // One copy a chosen expert.
  const double forward =
      tokens * 2.0 * (kHiddenCopies * d(m.hidden_size) + kIntermediateCopies * intermediate + routed_hidden);
  const double rows = d(std::min(dep.max_num_seqs, dep.max_num_batched_tokens));
  const double sampler = rows * d(m.vocab_size) * kSamplerBytesPerLogit;
  return std::max(forward, sampler);
}

double graph_bytes(const Deployment& dep) {
  return dep.subtract_cuda_graphs ? d(GraphSizes(dep).num_graphs()) * kGraphBytes : 0;
}

std::int64_t block_bytes_of(const Deployment& dep) {
  const ModelArch& m = dep.model;
  const double value_bytes = bytes_of(dep.kv_cache);
  std::int64_t values = kv_values_per_token_and_layer(m);
  if (!m.is_mla()) {
    const std::int64_t heads = std::max<std::int64_t>(1, m.num_kv_heads / dep.tensor_parallel_size);
    values = 2 * heads * m.head_size;
  }
  return static_cast<std::int64_t>(d(dep.block_size * values * layers_of_largest_stage(dep)) * value_bytes);
}

}  // namespace

void validate(const Deployment& dep) {
  const std::int64_t tp = dep.tensor_parallel_size;
  const std::int64_t pp = dep.pipeline_parallel_size;
  if (tp < 1 || dep.model.num_heads % tp != 0) {
    throw SpecError(fmt::format("--tensor-parallel-size {} does not divide the {} attention heads of {}; give a divisor",
                                tp, dep.model.num_heads, dep.model.name));
  }
  if (!dep.model.is_mla() && dep.model.num_kv_heads % tp != 0 && tp % dep.model.num_kv_heads != 0) {
    throw SpecError(fmt::format("--tensor-parallel-size {} neither divides nor is divided by the {} KV heads of {}", tp,
                                dep.model.num_kv_heads, dep.model.name));
  }
  if (pp < 1 || pp > dep.model.num_layers) {
    throw SpecError(fmt::format("--pipeline-parallel-size {} for the {} layers of {}; give 1 to {}", pp,
                                dep.model.num_layers, dep.model.name, dep.model.num_layers));
  }
  if (!(dep.gpu_memory_utilization > 0 && dep.gpu_memory_utilization <= 1)) {
    throw SpecError(fmt::format("--gpu-memory-utilization {} is no share of the memory; give a value above 0, at most 1",
                                dep.gpu_memory_utilization));
  }
  if (dep.kv_cache == Precision::kInt4) {
    throw SpecError("--kv-cache-dtype: 4-bit KV is not modelled; give auto, bfloat16 or fp8");
  }
}

MemoryBudget size_memory(const Deployment& dep) {
  MemoryBudget memory;
  memory.total = d(dep.gpu.memory_bytes);
  memory.requested = std::ceil(memory.total * dep.gpu_memory_utilization);
  memory.weights = weight_bytes(dep);
  memory.activations = activation_bytes(dep);
  memory.cuda_graphs = graph_bytes(dep);
  memory.other = kContextBytes + (dep.tensor_parallel_size * dep.pipeline_parallel_size > 1 ? kPeerBytes : 0);
  memory.block_bytes = block_bytes_of(dep);
  memory.kv_cache =
      dep.kv_cache_memory_bytes
          ? d(*dep.kv_cache_memory_bytes)
          : std::max(0.0, memory.requested - memory.weights - memory.activations - memory.cuda_graphs - memory.other);
  memory.num_blocks = static_cast<std::int64_t>(memory.kv_cache / d(memory.block_bytes));
  std::string origin = fmt::format("vLLM's sizing: {:.2f} GiB for KV of {:.2f} GiB x {:.2f}", memory.kv_cache / 1073741824.0,
                                   memory.total / 1073741824.0, dep.gpu_memory_utilization);
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

}  // namespace kneepoint::hw
