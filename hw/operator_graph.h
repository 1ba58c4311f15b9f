// A transformer as a graph of operators: what one step runs on one GPU.
//
// A vertex is an operator of one layer, standing for all layers of its kind
// (`count`); an edge says that the second needs the first's result. So a model is
// a chain with the residual's short cuts:
//
//     embedding ─► norm ─► QKV ─► rope, KV write ─► attention ─► projection ─► all-reduce ─┐
//                   ▲ └──────────────────── residual ────────────────────────────────► norm ┘─► ...
//
// A GPU runs one step's operators one after another, as each of them fills it, so
// the step takes the longest path, each vertex weighted by count * time. Shapes
// are those of one rank: tensor parallelism divides heads, columns and experts;
// pipeline parallelism divides layers.
//
// A vertex knows how its size follows from a step (StepRows), not how fast it is:
// that is hw/operator_times.h. FLOPs and bytes are what no implementation can
// avoid: each input read once, each output written once.
//
// Units   FLOP, byte, token.
#pragma once

#include <boost/graph/adjacency_list.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "hw/deployment.h"
#include "hw/operator_times.h"
#include "hw/step_time_model.h"

namespace kneepoint::hw {

/// A request with few new tokens attends as a decode does: its keys and values
/// are read once for all of its queries. So drafts are verified. Longer chunks
/// run as prefills.
constexpr std::int64_t kLongestDecode = 16;
[[nodiscard]] constexpr bool is_prefill(const Chunk& chunk) {
  return chunk.num_tokens > kLongestDecode;
}

/// What an operator's size grows with.
enum class Rows : std::uint8_t {
  kTokens,        ///< Tokens of the step, padded to the CUDA graph.
  kSampled,       ///< Rows of logits.
  kDecodeTokens,  ///< Tokens of requests with at most kLongestDecode of them.
  kChunkContext,  ///< New and old tokens of the other requests.
};

struct StepRows {
  std::int64_t tokens = 0;
  std::int64_t sampled = 0;
  std::int64_t decode_tokens = 0;
  std::int64_t chunk_context = 0;

  [[nodiscard]] std::int64_t of(Rows rows) const;
};

[[nodiscard]] StepRows rows_of(const StepShape& step);

struct GemmOperator {
  GemmShape shape;  ///< m follows from the step.
  Rows rows = Rows::kTokens;
};

/// Attention heads of one rank, and how far they look.
struct AttentionHeads {
  Precision kv_precision = Precision::kBf16;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t window = 0;       ///< Tokens a query sees; 0: all.
  std::size_t window_index = 0;  ///< In StepTimeModel::attention_windows(), if window > 0.
};

/// The two halves of a layer's attention, which share `decode` and `prefill`.
struct AttentionPair {
  AttentionHeads decode;
  AttentionHeads prefill;
  [[nodiscard]] const AttentionHeads& heads_for(const Chunk& chunk) const {
    return is_prefill(chunk) ? prefill : decode;
  }
};

struct DecodeAttentionOperator {
  AttentionPair pair;
};

struct PrefillAttentionOperator {
  AttentionPair pair;
};

struct MoeOperator {
  MoeShape shape;  ///< num_tokens follows from the step.
};

struct CollectiveOperator {
  CollectiveShape shape;  ///< message_bytes of one row.
  Rows rows = Rows::kTokens;
};

struct ElementwiseOperator {
  std::int64_t bytes_per_row = 0;
  Rows rows = Rows::kTokens;
};

using OperatorForm = std::variant<GemmOperator, DecodeAttentionOperator, PrefillAttentionOperator,
                                  MoeOperator, CollectiveOperator, ElementwiseOperator>;

struct Operator {
  std::string name;  ///< "qkv", "attention (decode)".
  OperatorForm form;
  std::int64_t count = 1;        ///< In the whole model.
  std::int64_t stage_count = 1;  ///< In the slowest pipeline stage; equal to count without pipeline.
};

using OperatorGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Operator>;
using OperatorVertex = boost::graph_traits<OperatorGraph>::vertex_descriptor;

/// The graph of `deployment`, vertices in the order in which they run.
[[nodiscard]] OperatorGraph build_operator_graph(const Deployment& deployment);

/// The window lengths of `model`, ascending and each once; see StepTimeModel::attention_windows().
[[nodiscard]] std::vector<std::int64_t> attention_windows_of(const ModelArch& model);

/// Weight of the heaviest path; `weight` is never negative.
[[nodiscard]] double longest_path(const OperatorGraph& graph,
                                  const std::function<double(const Operator&)>& weight);

/// What one instance of an operator has to do in a step.
struct OperatorCost {
  double flops = 0;
  double bytes = 0;          ///< Device memory, read and written.
  double network_bytes = 0;  ///< Sent by this GPU.
};

[[nodiscard]] OperatorCost cost_of(const Operator& op, const StepShape& step);
[[nodiscard]] OperatorCost gemm_cost(const GemmShape& shape);
[[nodiscard]] OperatorCost moe_cost(const MoeShape& shape);
[[nodiscard]] OperatorCost collective_cost(const CollectiveShape& shape);
[[nodiscard]] OperatorCost decode_attention_cost(const DecodeAttentionShape& shape);
[[nodiscard]] OperatorCost chunk_attention_cost(const AttentionHeads& heads, const Chunk& chunk);

/// The least time that the GPU's data sheet allows for it.
[[nodiscard]] double floor_seconds(const OperatorCost& cost, Precision arithmetic, const GpuSpec& gpu);

/// The type in which an operator multiplies: fp8 for fp8 weights, else bf16.
[[nodiscard]] Precision arithmetic_of(const Operator& op);

/// Attention of single-token requests as this operator sees it: cut to its window.
[[nodiscard]] DecodeAttentionShape decode_shape(const AttentionHeads& heads, const Decodes& decodes);

/// A chunk as an attention operator sees it: `repeats` pieces, each of at most
/// the window's tokens, with as many old tokens as gives the same number of
/// query-key pairs. Without a window the chunk itself, once.
struct WindowedChunk {
  Chunk piece;
  double repeats = 1;
};
[[nodiscard]] WindowedChunk windowed(const AttentionHeads& heads, const Chunk& chunk);

/// A short chunk as a decode: its queries share one reading of the context.
[[nodiscard]] DecodeAttentionShape short_chunk_shape(const AttentionHeads& heads, const Chunk& chunk,
                                                     std::int64_t copies = 1);

[[nodiscard]] PrefillAttentionShape chunk_shape(const AttentionHeads& heads, const Chunk& chunk,
                                                std::int64_t copies = 1);

/// Bytes of one weight; INT4 with a bf16 scale for each group of 128.
[[nodiscard]] double weight_bytes(Precision precision);

}  // namespace kneepoint::hw
