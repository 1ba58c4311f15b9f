#include "sim/metrics_gaps.h"

#include <algorithm>
#include <bit>
#include <boost/assert.hpp>

namespace kneepoint::sim {
namespace {

constexpr int kBinBits = 10;  // 1024 bins to a doubling.
constexpr std::int64_t kBins = std::int64_t{1} << kBinBits;
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

void GapPool::add(std::int64_t gap_ns, std::int64_t count) {
  BOOST_ASSERT_MSG(gap_ns >= 0, "CLOCK_FORWARD: a chunk before the one before");
  totals_.add(gap_ns, count);
  max_ = std::max(max_, gap_ns);
  if (exact()) {
    if (const std::uint32_t* place = place_of_.find(gap_ns)) {
      entries_[*place].count += count;
      return;
    }
    if (entries_.size() < max_distinct_) {
      place_of_.insert(gap_ns, static_cast<std::uint32_t>(entries_.size()));
      entries_.push_back({gap_ns, count});
      return;
    }
    to_histogram();
  }
  bins_[gap_bin(gap_ns)] += count;
}

void GapPool::to_histogram() {
  bins_.assign(gap_bin(INT64_MAX) + 1, 0);
  for (const Counted& entry : entries_) {
    bins_[gap_bin(entry.value)] += entry.count;
  }
  entries_ = {};
  place_of_ = {};
}

std::vector<GapPool::Counted> GapPool::sorted() const {
  if (!exact()) {
    std::vector<Counted> filled;
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
      if (bins_[bin] > 0) {
        filled.push_back({gap_bin_middle(bin), bins_[bin]});
      }
    }
    return filled;
  }
  std::vector<Counted> entries = entries_;
  std::sort(entries.begin(), entries.end(),
            [](const Counted& a, const Counted& b) { return a.value < b.value; });
  return entries;
}

LatencyStats GapPool::stats() const {
  LatencyStats stats;
  stats.count = totals_.count();
  if (stats.empty()) {
    return stats;
  }
  const std::vector<Counted> values = sorted();
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
  stats.mean_ms = totals_.mean() / kNsPerMs;
  stats.std_ms = totals_.population_std() / kNsPerMs;
  stats.p50_ms = value_of({50, 100});
  stats.p90_ms = value_of({90, 100});
  stats.p95_ms = value_of({95, 100});
  stats.p99_ms = value_of({99, 100});
  stats.max_ms = static_cast<double>(max_) / kNsPerMs;
  stats.median_ms = stats.p50_ms;
  return stats;
}

}  // namespace kneepoint::sim
