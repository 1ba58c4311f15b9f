// What a vLLM server keeps on a GPU beside weights and KV cache.
//
// vLLM measures it at start, in a trial run; these few numbers stand for that
// measurement, the same for every model and GPU. hw/server/memory.textproto holds
// them, each with its source, read as strictly as server costs are.
//
// Units   byte, or a pure number.
#pragma once

#include <span>

#include "hw/parameter.h"

namespace kneepoint::hw {

struct MemoryTerms {
  double hidden_copies = 0;        ///< Of a token's hidden state, at the peak of the trial forward pass.
  double intermediate_copies = 0;  ///< Of its feed-forward activations.
  double sampler_bytes_per_logit = 0;
  double context_bytes = 0;      ///< CUDA context, kernel code, workspaces.
  double peers_bytes = 0;        ///< NCCL and all-reduce buffers of a rank that has peers.
  double graph_layer_bytes = 0;  ///< One layer in one captured CUDA graph.
};

[[nodiscard]] std::span<const ParameterSpec<MemoryTerms>> memory_term_parameters();

/// The bundled set. Throws SpecError for a term that is missing, out of its
/// bounds, in another unit or without a source.
[[nodiscard]] MemoryTerms load_memory_terms();

}  // namespace kneepoint::hw
