// A pool of many durations that take few values: inter-token gaps.
//
// A million requests have hundreds of millions of gaps, but a step gives the
// same gap to everyone in it. So values are counted: one entry of 16 bytes for
// each distinct value, exact, up to a limit (64 MiB of entries). Beyond it the
// entries move into a logarithmic histogram, 1024 bins to each doubling:
//
//     bin width / value <= 1/1024,   so a bin's middle is within 0.05 % of its values
//
// A percentile, between two such middles, is within 0.05 % too. Mean, standard
// deviation and largest value stay exact: they come from 128-bit totals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/flat_map.h"
#include "sim/percentiles.h"

namespace kneepoint::sim {

class GapPool {
 public:
  static constexpr std::size_t kMaxDistinct = (std::size_t{64} << 20) / 16;

  explicit GapPool(std::size_t max_distinct = kMaxDistinct) : max_distinct_(max_distinct) {}

  /// `count` gaps of `gap_ns` >= 0.
  void add(std::int64_t gap_ns, std::int64_t count = 1);

  /// Whether percentiles are exact: no more than max_distinct values so far.
  [[nodiscard]] bool exact() const { return bins_.empty(); }
  [[nodiscard]] LatencyStats stats() const;

 private:
  struct Counted {
    std::int64_t value = 0;  // A gap, or the middle of a bin.
    std::int64_t count = 0;
  };
  struct Spread {
    std::uint64_t operator()(std::int64_t value) const {
      return engine::spread_bits(static_cast<std::uint64_t>(value));
    }
  };

  void to_histogram();
  [[nodiscard]] std::vector<Counted> sorted() const;

  std::size_t max_distinct_;
  engine::FlatMap<std::int64_t, std::uint32_t, Spread> place_of_;  // Into entries_.
  std::vector<Counted> entries_;
  std::vector<std::int64_t> bins_;  // Empty while exact.
  ExactTotals totals_;
  std::int64_t max_ = 0;
};

/// Bin of a value >= 0, and the middle of a bin: values below 2048 have a bin each.
[[nodiscard]] std::size_t gap_bin(std::int64_t value);
[[nodiscard]] std::int64_t gap_bin_middle(std::size_t bin);

}  // namespace kneepoint::sim
