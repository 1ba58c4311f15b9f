#include "hw/compiled_step.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>

namespace kneepoint::hw {

namespace {

constexpr int kCellBits = 8;  // Cells of 1/256 octave.
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

// Up to a multiple of `quantum`, a power of two.
std::int64_t round_up(std::int64_t value, std::int64_t quantum) {
  return (value + quantum - 1) & ~(quantum - 1);
}

}  // namespace

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

CompiledTerms::Place CompiledTerms::place_of(std::int64_t count, std::int64_t sum, std::int64_t longest) {
  Place place{.sum = lattice_cell(sum, kCellBits), .longest = {}, .right = 0, .up = 0};
  place.right = sum - place.sum.begin;
  if (count == 1) return place;  // The longest is the sum: a line, not a plane.
  place.longest = lattice_cell(longest, kCellBits);
  place.up = longest - place.longest.begin;
  return place;
}

CompiledTerms::DecodeCell CompiledTerms::make_decode_cell(std::size_t attention, std::int64_t count,
                                                          const Place& place) const {
  const LatticeCell& sum = place.sum;
  const LatticeCell& longest = place.longest;
  const std::int64_t quantum = std::max(sum.width, longest.width);
  const auto corner = [&](std::int64_t at_sum, std::int64_t at_longest) {
    return round_up(ticks(terms_.decodes(attention, count, at_sum, count == 1 ? at_sum : at_longest)),
                    quantum);
  };
  const std::int64_t right = sum.begin + sum.width, above = longest.begin + longest.width;
  const std::int64_t t00 = corner(sum.begin, longest.begin), t10 = corner(right, longest.begin);
  const std::int64_t t01 = corner(sum.begin, above), t11 = corner(right, above);
  DecodeCell cell;
  cell.lower = {t00, (t10 - t00) / sum.width, (t01 - t00) / longest.width};
  cell.upper = {t10 + t01 - t11, (t11 - t01) / sum.width, (t11 - t10) / longest.width};
  BOOST_ASSERT_MSG(t10 >= t00 && t01 >= t00 && t11 >= t01 && t11 >= t10, "attention grows with its contexts");
  return cell;
}

const CompiledTerms::Plane& CompiledTerms::decode_plane(std::size_t attention, std::int64_t count,
                                                        const Place& place) const {
  const std::uint64_t key = (static_cast<std::uint64_t>(count) << 32) |
                            (static_cast<std::uint64_t>(place.longest.index) << 16) |
                            static_cast<std::uint64_t>(place.sum.index);
  LastCell& last = last_decode_[attention];
  if (last.key != key) {
    last = {key, decodes_[attention].get(key, [&] { return make_decode_cell(attention, count, place); })};
  }
  return place.is_lower() ? last.cell.lower : last.cell.upper;
}

std::int64_t CompiledTerms::decode_ticks(std::size_t attention, const DecodeAttentionShape& shape) const {
  const Place place = place_of(shape.count, shape.context_sum, shape.context_max);
  const Plane& plane = decode_plane(attention, shape.count, place);
  return plane.base + plane.sum_slope * place.right + plane.longest_slope * place.up;
}

const CompiledTerms::ChunkCell& CompiledTerms::chunk_cell(std::size_t attention, std::int64_t num_tokens,
                                                          const LatticeCell& computed) const {
  const std::uint64_t key =
      (static_cast<std::uint64_t>(num_tokens) << 16) | static_cast<std::uint64_t>(computed.index);
  return chunks_[attention].get(key, [&] {
    const Chunk begin{num_tokens, computed.begin}, end{num_tokens, computed.begin + computed.width};
    const auto line = [&](double from_s, double to_s) {
      const std::int64_t from = round_up(ticks(from_s), computed.width);
      return Line{from, (round_up(ticks(to_s), computed.width) - from) / computed.width};
    };
    return ChunkCell{line(terms_.chunk_alone(attention, begin), terms_.chunk_alone(attention, end)),
                     line(terms_.chunk_shared(attention, begin), terms_.chunk_shared(attention, end))};
  });
}

std::int64_t CompiledTerms::chunk_ticks(std::size_t attention, std::span<const Chunk> chunks) const {
  std::int64_t shared = 0;
  std::int64_t gain = 0;  // What the one that profits least from company takes more alone.
  for (const Chunk& chunk : chunks) {
    const LatticeCell computed = lattice_cell(chunk.num_computed_tokens, kCellBits);
    const ChunkCell& cell = chunk_cell(attention, chunk.num_tokens, computed);
    const std::int64_t right = chunk.num_computed_tokens - computed.begin;
    const std::int64_t its_share = cell.shared.base + cell.shared.slope * right;
    shared += its_share;
    gain = std::max(gain, cell.alone.base + cell.alone.slope * right - its_share);
  }
  return shared + gain;
}

std::int64_t CompiledTerms::attention_ticks(const StepShape& step) const {
  const bool prefills = std::ranges::any_of(step.chunks, is_prefill);
  std::int64_t sum = 0;
  for (std::size_t a = 0; a < terms_.num_attentions(); ++a) {
    if (step.decodes.count > 0) {
      const std::int64_t decodes = decode_ticks(a, decode_shape(terms_.decode_heads(a), step.decodes));
      sum += prefills ? (decodes * mixed_) >> kFactorBits : decodes;
    }
    if (!step.chunks.empty()) sum += chunk_ticks(a, step.chunks);
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

// How many steps of a run, the one at `place` included, lie in its triangle.
std::int64_t CompiledTerms::steps_inside(const Place& place, std::int64_t count) {
  const std::int64_t width = place.sum.width, height = place.longest.width;
  std::int64_t steps = (width - 1 - place.right) / count + 1;
  if (count == 1) return steps;
  steps = std::min(steps, height - place.up);
  if (place.is_lower()) {
    const std::int64_t left = width * height - place.right * height - place.up * width;
    steps = std::min(steps, left / (count * height + width) + 1);
  }
  return steps;
}

void CompiledTerms::decode_run(const StepShape& first, std::span<StepTime> times) const {
  BOOST_ASSERT_MSG(first.chunks.empty() && first.decodes.count > 0, "a run consists of decodes alone");
  const std::int64_t count = first.decodes.count;
  const bool recorded = first.graph_mode == GraphMode::kFull;
  const std::int64_t others = other_ticks(first);
  const std::int64_t on_top = step_ + sequence_ * count + (recorded ? 0 : unrecorded_);
  std::int64_t sum = first.decodes.context_sum;
  std::int64_t longest = first.decodes.context_max;
  for (std::size_t done = 0; done < times.size();) {
    const Place place = place_of(count, sum, longest);
    const std::int64_t steps = std::min(static_cast<std::int64_t>(times.size() - done), steps_inside(place, count));
    std::int64_t kernels = others, slope = 0;
    for (std::size_t a = 0; a < terms_.num_attentions(); ++a) {
      BOOST_ASSERT_MSG(terms_.decode_heads(a).window == 0, "a run is taken without windows");
      const Plane& plane = decode_plane(a, count, place);
      kernels += plane.base + plane.sum_slope * place.right + plane.longest_slope * place.up;
      slope += plane.sum_slope * count + (count > 1 ? plane.longest_slope : 0);
    }
    for (std::int64_t step = 0; step < steps; ++step, ++done, kernels += slope) {
      // While launching takes longer than the kernels do, a step takes as long as launching.
      times[done].device = whole((recorded ? kernels : std::max(kernels, kernel_launches_)) + on_top);
    }
    sum += steps * count;
    longest += steps;
  }
}

}  // namespace kneepoint::hw
