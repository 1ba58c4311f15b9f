#include "sim/metrics_gaps.h"

#include <algorithm>
#include <bit>
#include <boost/assert.hpp>
#include <iterator>
#include <utility>

#include "engine/flat_map.h"

namespace kneepoint::sim {
namespace {

constexpr int kBinBits = 10;  // 1024 bins to a doubling.
constexpr std::int64_t kBins = std::int64_t{1} << kBinBits;
constexpr std::size_t kFirstSlots = 1024;
constexpr double kNsPerMs = 1e6;  // Divided by, as 1e-6 is no exact double.

}  // namespace

// A value's leading one and the ten bits behind it, read as one number that
// grows by 1 from bin to bin, over the edges of the doublings, too.
std::size_t gap_bin(std::int64_t value) {
  BOOST_ASSERT(value >= 0);
  const auto bits = static_cast<std::uint64_t>(value);
  const int shift = std::max(0, static_cast<int>(std::bit_width(bits)) - 1 - kBinBits);
  return static_cast<std::size_t>((bits >> shift) + static_cast<std::uint64_t>(shift) * kBins);
}

std::int64_t gap_bin_middle(std::size_t bin) {
  const auto index = static_cast<std::int64_t>(bin);
  const std::int64_t shift = std::max<std::int64_t>(0, index / kBins - 1);
  const std::int64_t first = (index - shift * kBins) << shift;
  return first + ((std::int64_t{1} << shift) - 1) / 2;
}

GapPool::GapPool(std::size_t max_distinct) : max_distinct_(max_distinct), slots_(kFirstSlots) {}

// Where `value` is, or would go.
std::size_t GapPool::slot_of(std::int64_t value) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = engine::spread_bits(static_cast<std::uint64_t>(value)) & mask;
  while (slots_[at].value != value && slots_[at].value >= 0) {
    at = (at + 1) & mask;
  }
  return at;
}

void GapPool::empty_queue() {
  if (bins_.empty()) {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = 0; i < num_queued_; ++i) {
      __builtin_prefetch(&slots_[engine::spread_bits(static_cast<std::uint64_t>(queue_[i].value)) & mask], 1);
    }
  }
  for (std::size_t i = 0; i < num_queued_; ++i) {
    add_to_table(queue_[i].value, queue_[i].count);
  }
  num_queued_ = 0;
}

bool GapPool::exact() {
  empty_queue();
  return bins_.empty();
}

void GapPool::add_to_table(std::int64_t gap_ns, std::int64_t count) {
  BOOST_ASSERT_MSG(gap_ns >= 0, "CLOCK_FORWARD: a chunk before the one before");
  if (bins_.empty()) {
    Counted& slot = slots_[slot_of(gap_ns)];
    if (slot.value == gap_ns) {
      slot.count += count;
      return;
    }
    if (distinct_ < max_distinct_) {
      slot = {gap_ns, count};
      ++distinct_;
      if (4 * distinct_ > 3 * slots_.size()) {
        grow();
      }
      return;
    }
    to_histogram();
  }
  bins_[gap_bin(gap_ns)] += count;
  bin_totals_.add(gap_ns, count);
}

void GapPool::remove(std::int64_t gap_ns) {
  if (exact()) {
    Counted& slot = slots_[slot_of(gap_ns)];
    BOOST_ASSERT_MSG(slot.value == gap_ns && slot.count > 0,
                     "GAP_POOL: a gap is taken out that is not there");
    --slot.count;
  } else {
    --bins_[gap_bin(gap_ns)];
    bin_totals_.add(gap_ns, -1);
  }
}

void GapPool::grow() {
  const std::vector<Counted> old = std::exchange(slots_, std::vector<Counted>(2 * slots_.size()));
  for (const Counted& slot : old) {
    if (slot.value >= 0) {
      slots_[slot_of(slot.value)] = slot;
    }
  }
}

void GapPool::to_histogram() {
  bins_.assign(gap_bin(INT64_MAX) + 1, 0);
  for (const Counted& slot : slots_) {
    if (slot.count > 0) {
      bins_[gap_bin(slot.value)] += slot.count;
      bin_totals_.add(slot.value, slot.count);
    }
  }
  slots_ = {};
}

std::vector<GapPool::Counted> GapPool::sorted() const {
  std::vector<Counted> values;
  if (bins_.empty()) {
    std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(values),
                 [](const Counted& slot) { return slot.count > 0; });
    std::sort(values.begin(), values.end(),
              [](const Counted& a, const Counted& b) { return a.value < b.value; });
    return values;
  }
  for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
    if (bins_[bin] > 0) {
      values.push_back({gap_bin_middle(bin), bins_[bin]});
    }
  }
  return values;
}

LatencyStats GapPool::stats() {
  empty_queue();
  const std::vector<Counted> values = sorted();
  ExactTotals totals = bin_totals_;
  if (bins_.empty()) {
    for (const Counted& value : values) {
      totals.add(value.value, value.count);
    }
  }
  LatencyStats stats;
  stats.count = totals.count();
  if (stats.empty()) {
    return stats;
  }
  // Quantiles in rising order: one walk over the values for all of them.
  std::size_t at = 0;
  std::int64_t before = 0;  // Gaps in front of values[at].
  const auto value_of = [&](Quantile q) {
    const QuantilePosition position = quantile_position(stats.count, q);
    while (before + values[at].count <= position.below) {
      before += values[at++].count;
    }
    const bool next_is_equal = position.below + 1 < before + values[at].count;
    const std::int64_t above =
        position.fraction == 0 || next_is_equal ? values[at].value : values[at + 1].value;
    return interpolate(values[at].value, above, position.fraction) / kNsPerMs;
  };
  stats.mean_ms = totals.mean() / kNsPerMs;
  stats.std_ms = totals.population_std() / kNsPerMs;
  stats.p50_ms = value_of({50, 100});
  stats.p90_ms = value_of({90, 100});
  stats.p95_ms = value_of({95, 100});
  stats.p99_ms = value_of({99, 100});
  stats.max_ms = value_of({1, 1});
  stats.median_ms = stats.p50_ms;
  return stats;
}

}  // namespace kneepoint::sim
