#include "hw/operator_graph.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <boost/graph/topological_sort.hpp>
#include <cmath>
#include <iterator>

namespace kneepoint::hw {

namespace {

constexpr double kActivationBytes = 2;  // bf16.

double as_double(std::int64_t value) {
  return static_cast<double>(value);
}

double kv_bytes(Precision precision) {
  return precision == Precision::kFp8 ? 1 : 2;
}

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

void add(OperatorCost& sum, const OperatorCost& part) {
  sum.flops += part.flops;
  sum.bytes += part.bytes;
  sum.network_bytes += part.network_bytes;
}

// Sum over the chunk's queries of the keys that each sees.
double visible_pairs(const AttentionHeads& heads, const Chunk& chunk) {
  const double n = as_double(chunk.num_tokens);
  const double p = as_double(chunk.num_computed_tokens);
  const double w = as_double(heads.window);
  if (heads.window == 0 || p + n <= w) return n * p + n * (n + 1) / 2;
  const double growing = std::max(0.0, w - p);  // Queries that still see everything.
  return growing * p + growing * (growing + 1) / 2 + (n - growing) * w;
}

std::int64_t visible_keys(const AttentionHeads& heads, const Chunk& chunk) {
  const std::int64_t all = chunk.num_tokens + chunk.num_computed_tokens;
  return heads.window == 0 ? all : std::min(all, heads.window + chunk.num_tokens - 1);
}

}  // namespace

double weight_bytes(Precision precision) {
  constexpr double kInt4Group = 128;
  switch (precision) {
    case Precision::kBf16:
      return 2;
    case Precision::kFp8:
      return 1;
    case Precision::kInt4:
      return 0.5 + 2 / kInt4Group;
  }
  BOOST_ASSERT_MSG(false, "unknown precision");
  return 2;
}

// Sizes

std::int64_t StepRows::of(Rows rows) const {
  switch (rows) {
    case Rows::kTokens:
      return tokens;
    case Rows::kSampled:
      return sampled;
    case Rows::kDecodeTokens:
      return decode_tokens;
    case Rows::kChunkContext:
      return chunk_context;
  }
  BOOST_ASSERT_MSG(false, "unknown rows");
  return 0;
}

StepRows rows_of(const StepShape& step) {
  StepRows rows{.tokens = std::max(step.padded_tokens, step.num_tokens),
                .sampled = step.num_sampled,
                .decode_tokens = step.decodes.count};
  for (const Chunk& chunk : step.chunks) {
    if (is_prefill(chunk)) {
      rows.chunk_context += chunk.num_tokens + chunk.num_computed_tokens;
    } else {
      rows.decode_tokens += chunk.num_tokens;
    }
  }
  return rows;
}

DecodeAttentionShape decode_shape(const AttentionHeads& heads, const Decodes& decodes) {
  DecodeAttentionShape shape{.kv_precision = heads.kv_precision,
                             .count = decodes.count,
                             .context_sum = decodes.context_sum,
                             .context_max = decodes.context_max,
                             .num_heads = heads.num_heads,
                             .num_kv_heads = heads.num_kv_heads,
                             .head_size = heads.head_size};
  if (heads.window > 0 && decodes.count > 0) {
    // Who is not told the windowed sums (explain, a toy) means equal contexts.
    shape.context_max = std::min(decodes.context_max, heads.window);
    shape.context_sum = heads.window_index < decodes.window_context_sums.size()
                            ? decodes.window_context_sums[heads.window_index]
                            : std::min(decodes.context_sum, decodes.count * heads.window);
  }
  return shape;
}

WindowedChunk windowed(const AttentionHeads& heads, const Chunk& chunk) {
  if (heads.window == 0 || chunk.num_tokens + chunk.num_computed_tokens <= heads.window) return {chunk, 1};
  const std::int64_t tokens = std::min(chunk.num_tokens, heads.window);
  const double seen = visible_pairs(heads, chunk) / as_double(chunk.num_tokens);
  const double old = std::max(0.0, std::ceil(seen - (as_double(tokens) + 1) / 2));
  return {{tokens, static_cast<std::int64_t>(old)}, as_double(chunk.num_tokens) / as_double(tokens)};
}

DecodeAttentionShape short_chunk_shape(const AttentionHeads& heads, const Chunk& chunk, std::int64_t copies) {
  const std::int64_t context = visible_keys(heads, chunk);
  return {.kv_precision = heads.kv_precision,
          .count = copies,
          .context_sum = copies * context,
          .context_max = context,
          .num_heads = heads.num_heads * chunk.num_tokens,
          .num_kv_heads = heads.num_kv_heads,
          .head_size = heads.head_size};
}

PrefillAttentionShape chunk_shape(const AttentionHeads& heads, const Chunk& chunk, std::int64_t copies) {
  return {.kv_precision = heads.kv_precision,
          .batch = copies,
          .num_tokens = chunk.num_tokens,
          .num_computed_tokens = chunk.num_computed_tokens,
          .num_heads = heads.num_heads,
          .num_kv_heads = heads.num_kv_heads,
          .head_size = heads.head_size};
}

// Costs

OperatorCost gemm_cost(const GemmShape& s) {
  if (s.m == 0) return {};
  const double m = as_double(s.m), n = as_double(s.n), k = as_double(s.k);
  const double input = s.precision == Precision::kFp8 ? 1 : kActivationBytes;
  return {.flops = 2 * m * n * k,
          .bytes = weight_bytes(s.precision) * n * k + input * m * k + kActivationBytes * m * n};
}

OperatorCost decode_attention_cost(const DecodeAttentionShape& s) {
  const double d = as_double(s.head_size);
  return {.flops = 4 * d * as_double(s.num_heads) * as_double(s.context_sum),
          .bytes = 2 * d * as_double(s.num_kv_heads) * as_double(s.context_sum) * kv_bytes(s.kv_precision) +
                   2 * kActivationBytes * d * as_double(s.num_heads) * as_double(s.count)};
}

OperatorCost chunk_attention_cost(const AttentionHeads& heads, const Chunk& chunk) {
  const double d = as_double(heads.head_size);
  return {.flops = 4 * d * as_double(heads.num_heads) * visible_pairs(heads, chunk),
          .bytes = 2 * d * as_double(heads.num_kv_heads) * as_double(visible_keys(heads, chunk)) *
                       kv_bytes(heads.kv_precision) +
                   2 * kActivationBytes * d * as_double(heads.num_heads) * as_double(chunk.num_tokens)};
}

// Only what is certain: the experts that one token touches are read, the further
// ones depend on the router. A rank that holds a share of the experts may be asked
// for none of them.
OperatorCost moe_cost(const MoeShape& s) {
  if (s.num_tokens == 0) return {};
  const double tokens = as_double(s.num_tokens), hidden = as_double(s.hidden_size);
  const double per_expert = 3 * hidden * as_double(s.intermediate_size) / as_double(s.moe_tp);
  const double share = 1 / as_double(s.moe_ep);
  const double surely_read = s.moe_ep > 1 ? 0 : as_double(s.top_k);
  return {
      .flops = 2 * per_expert * tokens * as_double(s.top_k) * share,
      .bytes = weight_bytes(s.precision) * per_expert * surely_read + 2 * kActivationBytes * tokens * hidden};
}

// What must cross a GPU's link in one direction. Of gathered, scattered or exchanged
// data a GPU has its own share already. Of an all-reduced message it lacks, for every
// element, the sum over the others: all of the message comes in, even where a switch
// adds up on the way.
OperatorCost collective_cost(const CollectiveShape& s) {
  if (s.num_gpus < 2) return {};
  const bool whole = s.op == Collective::kSend || s.op == Collective::kAllReduce;
  const double share = whole ? 1 : as_double(s.num_gpus - 1) / as_double(s.num_gpus);
  return {.network_bytes = share * as_double(s.message_bytes)};
}

OperatorCost cost_of(const Operator& op, const StepShape& step) {
  const StepRows rows = rows_of(step);
  OperatorCost cost;
  std::visit(Overloaded{
                 [&](const GemmOperator& gemm) {
                   GemmShape shape = gemm.shape;
                   shape.m = rows.of(gemm.rows);
                   cost = gemm_cost(shape);
                 },
                 [&](const DecodeAttentionOperator& attention) {
                   if (step.decodes.count > 0)
                     cost = decode_attention_cost(decode_shape(attention.pair.decode, step.decodes));
                   for (const Chunk& chunk : step.chunks) {
                     if (!is_prefill(chunk)) add(cost, chunk_attention_cost(attention.pair.decode, chunk));
                   }
                 },
                 [&](const PrefillAttentionOperator& attention) {
                   for (const Chunk& chunk : step.chunks) {
                     if (is_prefill(chunk)) add(cost, chunk_attention_cost(attention.pair.prefill, chunk));
                   }
                 },
                 [&](const MoeOperator& moe) {
                   MoeShape shape = moe.shape;
                   shape.num_tokens = rows.tokens;
                   cost = moe_cost(shape);
                 },
                 [&](const CollectiveOperator& collective) {
                   CollectiveShape shape = collective.shape;
                   shape.message_bytes *= rows.of(collective.rows);
                   cost = collective_cost(shape);
                 },
                 [&](const ElementwiseOperator& elementwise) {
                   cost.bytes = as_double(elementwise.bytes_per_row) * as_double(rows.of(elementwise.rows));
                 },
             },
             op.form);
  return cost;
}

double floor_seconds(const OperatorCost& cost, Precision arithmetic, const GpuSpec& gpu) {
  const double peak = arithmetic == Precision::kFp8 ? gpu.fp8_flops_per_s : gpu.bf16_flops_per_s;
  double seconds = std::max(cost.flops / peak, cost.bytes / gpu.bandwidth_bytes_per_s);
  if (cost.network_bytes > 0) seconds = std::max(seconds, cost.network_bytes / gpu.link_bytes_per_s);
  return seconds;
}

Precision arithmetic_of(const Operator& op) {
  Precision precision = Precision::kBf16;
  if (const auto* gemm = std::get_if<GemmOperator>(&op.form)) precision = gemm->shape.precision;
  if (const auto* moe = std::get_if<MoeOperator>(&op.form)) precision = moe->shape.precision;
  return precision == Precision::kFp8 ? Precision::kFp8 : Precision::kBf16;
}

// Path

double longest_path(const OperatorGraph& graph, const std::function<double(const Operator&)>& weight) {
  std::vector<OperatorVertex> order;
  order.reserve(num_vertices(graph));
  boost::topological_sort(graph, std::back_inserter(order));
  std::vector<double> path(num_vertices(graph), 0);
  double heaviest = 0;
  for (auto vertex = order.rbegin(); vertex != order.rend(); ++vertex) {
    double before = 0;
    const auto [first, last] = in_edges(*vertex, graph);
    for (auto edge = first; edge != last; ++edge) before = std::max(before, path[source(*edge, graph)]);
    path[*vertex] = before + weight(graph[*vertex]);
    heaviest = std::max(heaviest, path[*vertex]);
  }
  return heaviest;
}

}  // namespace kneepoint::hw
