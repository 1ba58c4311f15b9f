#include "hw/compiled_step.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>

namespace kneepoint::hw {

namespace {

constexpr int kSumBits = 5;
constexpr int kLongestBits = 6;
constexpr int kFactorBits = 12;
constexpr double kTicksPerSecond = 1e9 * (std::int64_t{1} << CompiledTerms::kTickBits);
constexpr std::int64_t kTick = std::int64_t{1} << CompiledTerms::kTickBits;
constexpr std::size_t kLargestTable = std::size_t{1} << 18;

std::int64_t ticks(double seconds) {
  return std::llround(seconds * kTicksPerSecond);
}

std::chrono::nanoseconds whole(std::int64_t some_ticks) {
  return std::chrono::nanoseconds((some_ticks + kTick - 1) >> CompiledTerms::kTickBits);
}

std::int64_t at(const LatticeCell& cell, std::int64_t base, std::int64_t slope, std::int64_t value) {
  return base + slope * (value - cell.begin);
}

bool is_short(const Chunk& chunk) {
  return chunk.num_tokens <= kLongestDecode;
}

}  // namespace

std::int64_t floor_sum(std::int64_t n, std::int64_t m, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  while (n > 0) {
    // Whole parts of a and b, then the lattice points under the rest's line, counted along the other axis.
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const std::int64_t top = a * n + b;
    n = top / m;
    b = top % m;
    std::swap(a, m);
  }
  return sum;
}

CompiledTerms::CompiledTerms(const StepTerms& terms, const ServerCosts& costs)
    : terms_(terms),
      kernel_launches_(terms.num_kernels() * ticks(costs.host_kernel_s)),
      layers_(ticks(terms.num_layers() * costs.device_layer_s)),
      step_(ticks(costs.device_step_s)),
      sequence_(ticks(costs.device_sequence_s)),
      unrecorded_(ticks(costs.unrecorded_step_s)),
      mixed_(std::llround(costs.mixed_attention * static_cast<double>(std::int64_t{1} << kFactorBits))),
      decodes_(terms.num_attentions()),
      last_decode_(terms.num_attentions()),
      chunks_(terms.num_attentions()) {}

std::int64_t CompiledTerms::rows_ticks(Rows rows, std::int64_t size) const {
  if (size == 0) return 0;
  std::vector<std::int64_t>& table = by_rows_[static_cast<std::size_t>(rows)];
  const auto index = static_cast<std::size_t>(size);
  if (index >= kLargestTable) return ticks(terms_.by_rows(rows, size));
  constexpr std::int64_t kUnknown = -1;
  if (index >= table.size()) table.resize(std::max(index + 1, 2 * table.size()), kUnknown);
  if (table[index] == kUnknown) table[index] = ticks(terms_.by_rows(rows, size));
  return table[index];
}

// `longest` counts as the largest value of its cell: by at most 1/64 too long.
CompiledTerms::Line CompiledTerms::decode_line(std::size_t attention, std::int64_t count,
                                               std::int64_t longest, const LatticeCell& sum) const {
  const LatticeCell cell = lattice_cell(longest, kLongestBits);
  const std::uint64_t key = (static_cast<std::uint64_t>(count) << 32) |
                            (static_cast<std::uint64_t>(cell.index) << 16) |
                            static_cast<std::uint64_t>(sum.index);
  LastCell& last = last_decode_[attention];
  if (last.key == key) return last.line;
  const auto [found, is_new] = decodes_[attention].try_emplace(key);
  if (is_new) {
    const auto seconds = [&](std::int64_t context_sum) {
      // One sequence: the longest is the sum.
      const std::int64_t most = count == 1 ? context_sum : cell.begin + cell.width - 1;
      return terms_.decodes(attention, count, context_sum, most);
    };
    const std::int64_t base = ticks(seconds(sum.begin));
    const std::int64_t end = ticks(seconds(sum.begin + sum.width));
    found->second = {base, std::max<std::int64_t>(0, (end - base) / sum.width)};
  }
  last = {key, found->second};
  return found->second;
}

std::int64_t CompiledTerms::decode_ticks(std::size_t attention, const DecodeAttentionShape& shape) const {
  const LatticeCell sum = lattice_cell(shape.context_sum, kSumBits);
  const std::int64_t longest = shape.count == 1 ? 0 : shape.context_max;
  const Line line = decode_line(attention, shape.count, longest, sum);
  return at(sum, line.base, line.slope, shape.context_sum);
}

const CompiledTerms::ChunkLines& CompiledTerms::chunk_lines(std::size_t attention, std::int64_t num_tokens,
                                                            const LatticeCell& computed) const {
  const std::uint64_t key =
      (static_cast<std::uint64_t>(num_tokens) << 16) | static_cast<std::uint64_t>(computed.index);
  const auto [found, is_new] = chunks_[attention].try_emplace(key);
  if (is_new) {
    const Chunk begin{num_tokens, computed.begin}, end{num_tokens, computed.begin + computed.width};
    const auto line = [&](double from_s, double to_s) {
      const std::int64_t base = ticks(from_s);
      return Line{base, std::max<std::int64_t>(0, (ticks(to_s) - base) / computed.width)};
    };
    found->second = {line(terms_.chunk_alone(attention, begin), terms_.chunk_alone(attention, end)),
                     line(terms_.chunk_shared(attention, begin), terms_.chunk_shared(attention, end))};
  }
  return found->second;
}

std::int64_t CompiledTerms::chunk_ticks(std::size_t attention, const StepShape& step, bool are_short) const {
  std::int64_t sum = 0;
  std::int64_t gain = 0;
  for (const Chunk& chunk : step.chunks) {
    if (is_short(chunk) != are_short) continue;
    const LatticeCell cell = lattice_cell(chunk.num_computed_tokens, kSumBits);
    const ChunkLines& lines = chunk_lines(attention, chunk.num_tokens, cell);
    const std::int64_t shared = at(cell, lines.shared.base, lines.shared.slope, chunk.num_computed_tokens);
    const std::int64_t alone = at(cell, lines.alone.base, lines.alone.slope, chunk.num_computed_tokens);
    sum += shared;
    gain = std::max(gain, alone - shared);
  }
  return sum + gain;
}

std::int64_t CompiledTerms::attention_ticks(const StepShape& step) const {
  const bool prefills = !std::ranges::all_of(step.chunks, is_short);
  std::int64_t sum = 0;
  for (std::size_t a = 0; a < terms_.num_attentions(); ++a) {
    std::int64_t decodes = 0;
    if (step.decodes.count > 0) decodes = decode_ticks(a, decode_shape(terms_.decode_heads(a), step.decodes));
    if (step.chunks.empty()) {
      sum += decodes;
      continue;
    }
    decodes += chunk_ticks(a, step, true);
    sum += prefills ? (decodes * mixed_) >> kFactorBits : decodes;
    sum += chunk_ticks(a, step, false);
  }
  return sum;
}

// All but attention, and but what comes on top of both.
std::int64_t CompiledTerms::other_ticks(const StepShape& step) const {
  const StepRows rows = rows_of(step);
  return rows_ticks(Rows::kTokens, rows.tokens) + rows_ticks(Rows::kSampled, rows.sampled) +
         rows_ticks(Rows::kDecodeTokens, rows.decode_tokens) +
         rows_ticks(Rows::kChunkContext, rows.chunk_context) + layers_;
}

std::chrono::nanoseconds CompiledTerms::device_time(const StepShape& step) const {
  std::int64_t sum = other_ticks(step) + attention_ticks(step);
  if (step.graph_mode != GraphMode::kFull) sum = std::max(sum, kernel_launches_) + unrecorded_;
  return whole(sum + step_ + sequence_ * step.num_requests());
}

std::chrono::nanoseconds CompiledTerms::decode_run_time(const StepShape& first,
                                                        std::int64_t num_steps) const {
  BOOST_ASSERT_MSG(first.chunks.empty() && first.decodes.count > 0, "a run consists of decodes alone");
  const std::int64_t count = first.decodes.count;
  const bool recorded = first.graph_mode == GraphMode::kFull;
  const std::int64_t others = other_ticks(first);
  const std::int64_t on_top = step_ + sequence_ * count + (recorded ? 0 : unrecorded_) + kTick - 1;
  std::int64_t sum = first.decodes.context_sum;
  std::int64_t longest = first.decodes.context_max;
  std::int64_t total = 0;
  while (num_steps > 0) {
    const LatticeCell cell = lattice_cell(sum, kSumBits);
    const LatticeCell longest_cell = lattice_cell(longest, kLongestBits);
    std::int64_t steps = std::min(num_steps, (cell.begin + cell.width - 1 - sum) / count + 1);
    if (count > 1) steps = std::min(steps, longest_cell.begin + longest_cell.width - longest);
    std::int64_t base = others, slope = 0;
    for (std::size_t a = 0; a < terms_.num_attentions(); ++a) {
      BOOST_ASSERT_MSG(terms_.decode_heads(a).window == 0, "a run is summed without windows");
      const Line line = decode_line(a, count, count == 1 ? 0 : longest, cell);
      base += at(cell, line.base, line.slope, sum);
      slope += line.slope * count;
    }
    // While launching takes longer than the kernels do, all steps take as long as launching.
    std::int64_t bound = 0;
    if (!recorded && base < kernel_launches_) {
      bound = slope == 0 ? steps : std::min(steps, (kernel_launches_ - base + slope - 1) / slope);
      total += bound * ((kernel_launches_ + on_top) >> kTickBits);
    }
    total += floor_sum(steps - bound, kTick, slope, base + slope * bound + on_top);
    sum += steps * count;
    longest += steps;
    num_steps -= steps;
  }
  return std::chrono::nanoseconds(total);
}

}  // namespace kneepoint::hw
