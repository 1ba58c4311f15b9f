#include "hw/step_terms.h"

#include <algorithm>

namespace kneepoint::hw {

namespace {

constexpr std::int64_t kManyCopies = 32;  // Enough to fill any GPU.

double as_double(std::int64_t value) {
  return static_cast<double>(value);
}

OperatorTime at_least(OperatorTime time, const OperatorCost& cost, Precision arithmetic, const GpuSpec& gpu) {
  time.seconds = std::max(time.seconds, floor_seconds(cost, arithmetic, gpu));
  return time;
}

// Attention of one operator, per instance. A chunk's time and floor for `copies`
// of it at once.
OperatorTime chunk_time(const AttentionHeads& heads, const Chunk& chunk, std::int64_t copies,
                        const OperatorTimes& times, const GpuSpec& gpu) {
  OperatorTime time;
  if (!is_prefill(chunk)) {
    time = times.decode_attention(short_chunk_shape(heads, chunk, copies), CacheState::kCold);
  } else {
    const WindowedChunk cut = windowed(heads, chunk);
    time = times.prefill_attention(chunk_shape(heads, cut.piece, copies));
    // Two kernels meet at kLongestDecode; a token more never takes less.
    const Chunk shorter{kLongestDecode, chunk.num_computed_tokens};
    const OperatorTime least =
        times.decode_attention(short_chunk_shape(heads, shorter, copies), CacheState::kCold);
    time.seconds = std::max(time.seconds * cut.repeats, least.seconds);
  }
  OperatorCost cost = chunk_attention_cost(heads, chunk);
  cost.flops *= as_double(copies);
  cost.bytes *= as_double(copies);
  return at_least(time, cost, Precision::kBf16, gpu);
}

OperatorTime worse(OperatorTime a, const OperatorTime& b) {
  a.confidence = std::max(a.confidence, b.confidence);
  return a;
}

// The chunks of one half of attention: what all of them take in company, and what
// the one that profits least from it takes more alone.
struct ChunksTime {
  OperatorTime shared{0, Confidence::kMeasured};
  double gain_s = 0;
};

ChunksTime chunks_time(const AttentionPair& pair, const StepShape& step, bool prefills,
                       const OperatorTimes& times, const GpuSpec& gpu) {
  ChunksTime sum;
  for (const Chunk& chunk : step.chunks) {
    if (is_prefill(chunk) != prefills) continue;
    const AttentionHeads& heads = pair.heads_for(chunk);
    const OperatorTime alone = chunk_time(heads, chunk, 1, times, gpu);
    const double shared = chunk_time(heads, chunk, kManyCopies, times, gpu).seconds / as_double(kManyCopies);
    sum.shared = worse(sum.shared, alone);
    sum.shared.seconds += shared;
    sum.gain_s = std::max(sum.gain_s, alone.seconds - shared);
  }
  return sum;
}

struct TimeVisitor {
  const StepShape& step;
  const OperatorTimes& times;
  const GpuSpec& gpu;
  double mixed_attention;
  StepRows rows;

  OperatorTime operator()(const GemmOperator& gemm) const {
    GemmShape shape = gemm.shape;
    shape.m = rows.of(gemm.rows);
    if (shape.m == 0) return {0, Confidence::kMeasured};
    const Precision arithmetic = shape.precision == Precision::kFp8 ? Precision::kFp8 : Precision::kBf16;
    return at_least(times.gemm(shape, CacheState::kCold), gemm_cost(shape), arithmetic, gpu);
  }

  // Short chunks launch with the long ones, if there are any that gain less.
  OperatorTime operator()(const DecodeAttentionOperator& attention) const {
    const ChunksTime chunks = chunks_time(attention.pair, step, false, times, gpu);
    OperatorTime time = chunks.shared;
    if (chunks.gain_s > 0) {
      time.seconds +=
          std::max(0.0, chunks.gain_s - chunks_time(attention.pair, step, true, times, gpu).gain_s);
    }
    if (step.decodes.count == 0) return time;
    const DecodeAttentionShape shape = decode_shape(attention.pair.decode, step.decodes);
    const OperatorTime decodes = at_least(times.decode_attention(shape, CacheState::kCold),
                                          decode_attention_cost(shape), Precision::kBf16, gpu);
    const bool beside = std::ranges::any_of(step.chunks, is_prefill);
    time.seconds += decodes.seconds * (beside ? mixed_attention : 1);
    return worse(time, decodes);
  }

  OperatorTime operator()(const PrefillAttentionOperator& attention) const {
    ChunksTime chunks = chunks_time(attention.pair, step, true, times, gpu);
    chunks.shared.seconds += chunks.gain_s;
    return chunks.shared;
  }

  OperatorTime operator()(const MoeOperator& moe) const {
    MoeShape shape = moe.shape;
    shape.num_tokens = rows.tokens;
    if (shape.num_tokens == 0) return {0, Confidence::kMeasured};
    const Precision arithmetic = shape.precision == Precision::kFp8 ? Precision::kFp8 : Precision::kBf16;
    return at_least(times.moe(shape, CacheState::kCold), moe_cost(shape), arithmetic, gpu);
  }

  OperatorTime operator()(const CollectiveOperator& collective) const {
    CollectiveShape shape = collective.shape;
    shape.message_bytes *= rows.of(collective.rows);
    if (shape.message_bytes == 0) return {0, Confidence::kMeasured};
    return at_least(times.collective(shape), collective_cost(shape), Precision::kBf16, gpu);
  }

  OperatorTime operator()(const ElementwiseOperator& elementwise) const {
    const ElementwiseShape shape{elementwise.bytes_per_row * rows.of(elementwise.rows)};
    if (shape.bytes == 0) return {0, Confidence::kMeasured};
    return at_least(times.elementwise(shape), {.bytes = as_double(shape.bytes)}, Precision::kBf16, gpu);
  }
};

Rows rows_kind(const Operator& op) {
  if (const auto* gemm = std::get_if<GemmOperator>(&op.form)) return gemm->rows;
  if (const auto* collective = std::get_if<CollectiveOperator>(&op.form)) return collective->rows;
  if (const auto* elementwise = std::get_if<ElementwiseOperator>(&op.form)) return elementwise->rows;
  return Rows::kTokens;  // Experts.
}

}  // namespace

OperatorTime time_of(const Operator& op, const StepShape& step, const OperatorTimes& times, const GpuSpec& gpu,
                     double mixed_attention) {
  return std::visit(TimeVisitor{step, times, gpu, mixed_attention, rows_of(step)}, op.form);
}

StepTerms::StepTerms(const OperatorGraph& graph, const OperatorTimes& times, const GpuSpec& gpu,
                     const ServerCosts& costs, Stages stages)
    : graph_(graph), times_(times), gpu_(gpu), costs_(costs), stages_(stages) {
  const auto [first, last] = vertices(graph);
  for (auto vertex = first; vertex != last; ++vertex) {
    const Operator& op = graph[*vertex];
    num_kernels_ += static_cast<std::int64_t>(weight_of(op));
    if (std::holds_alternative<DecodeAttentionOperator>(op.form)) {
      attentions_.push_back({&op, weight_of(op)});
      num_layers_ += weight_of(op);
    } else if (!std::holds_alternative<PrefillAttentionOperator>(op.form)) {
      others_.push_back(&op);
    }
  }
}

double StepTerms::weight_of(const Operator& op) const {
  return as_double(stages_ == Stages::kSlowest ? op.stage_count : op.count);
}

const AttentionPair& StepTerms::attention_pair(std::size_t attention) const {
  return std::get<DecodeAttentionOperator>(attentions_[attention].decode->form).pair;
}

const AttentionHeads& StepTerms::decode_heads(std::size_t attention) const {
  return attention_pair(attention).decode;
}

double StepTerms::by_rows(Rows rows, std::int64_t size) const {
  StepRows only;
  (rows == Rows::kTokens         ? only.tokens
   : rows == Rows::kSampled      ? only.sampled
   : rows == Rows::kDecodeTokens ? only.decode_tokens
                                 : only.chunk_context) = size;
  const StepShape none;
  const TimeVisitor visitor{none, times_, gpu_, 1, only};
  double seconds = 0;
  for (const Operator* op : others_) {
    if (rows_kind(*op) == rows) seconds += weight_of(*op) * std::visit(visitor, op->form).seconds;
  }
  return seconds;
}

double StepTerms::decodes(std::size_t attention, std::int64_t count, std::int64_t context_sum,
                          std::int64_t context_max) const {
  const AttentionTerm& term = attentions_[attention];
  const AttentionHeads& heads = decode_heads(attention);
  const DecodeAttentionShape shape{.kv_precision = heads.kv_precision,
                                   .count = count,
                                   .context_sum = context_sum,
                                   .context_max = context_max,
                                   .num_heads = heads.num_heads,
                                   .num_kv_heads = heads.num_kv_heads,
                                   .head_size = heads.head_size};
  return term.weight * at_least(times_.decode_attention(shape, CacheState::kCold),
                                decode_attention_cost(shape), Precision::kBf16, gpu_)
                           .seconds;
}

double StepTerms::chunk_alone(std::size_t attention, const Chunk& chunk) const {
  const AttentionHeads& heads = attention_pair(attention).heads_for(chunk);
  return attentions_[attention].weight * chunk_time(heads, chunk, 1, times_, gpu_).seconds;
}

double StepTerms::chunk_shared(std::size_t attention, const Chunk& chunk) const {
  const AttentionHeads& heads = attention_pair(attention).heads_for(chunk);
  return attentions_[attention].weight * chunk_time(heads, chunk, kManyCopies, times_, gpu_).seconds /
         as_double(kManyCopies);
}

double StepTerms::device_seconds(const StepShape& step) const {
  const double kernels = longest_path(graph_, [&](const Operator& op) {
    return weight_of(op) * time_of(op, step, times_, gpu_, costs_.mixed_attention).seconds;
  });
  const bool recorded = step.graph_mode == GraphMode::kFull;
  const double launches = recorded ? 0 : as_double(num_kernels_) * costs_.host_kernel_s;
  return std::max(kernels + num_layers_ * costs_.device_layer_s, launches) + costs_.device_step_s +
         costs_.device_sequence_s * as_double(step.num_requests()) +
         (recorded ? 0 : costs_.unrecorded_step_s);
}

}  // namespace kneepoint::hw
