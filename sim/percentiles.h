// Exact statistics of whole nanoseconds.
//
// A percentile is np.percentile's (linear interpolation, type 7 of Hyndman and
// Fan): of n sorted values a[0..n), percentile p lies at position
//
//     h = (n - 1) p / 100,    a[floor h] + (h - floor h) (a[floor h + 1] - a[floor h])
//
// The position is kept as a fraction of whole numbers, so nothing is rounded
// before the interpolation. Means and standard deviations come from 128-bit
// totals: exact, and the same whatever the order of the values.
//
// No values: no statistics, which a report shows as n/a. Never 0, never NaN.
//
// Source  R. Hyndman, Y. Fan, "Sample quantiles in statistical packages",
//         The American Statistician 50(4), 1996.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/sim_time.h"

namespace kneepoint::sim {

__extension__ using Int128 = __int128;

/// A share of a sample, `numerator` / `denominator` in [0, 1]: {99, 100} is the 99th percentile.
struct Quantile {
  std::int64_t numerator = 0;
  std::int64_t denominator = 1;
};

/// Where a quantile lies among n sorted values.
struct QuantilePosition {
  std::int64_t below = 0;  ///< Index of the value at or below it.
  double fraction = 0;     ///< Of the way to the next value; 0 if `below` is it.
};

/// Before  n > 0.
[[nodiscard]] QuantilePosition quantile_position(std::int64_t n, Quantile q);
[[nodiscard]] double interpolate(std::int64_t below, std::int64_t above, double fraction);

/// Count, sum and sum of squares of a sample, exactly.
class ExactTotals {
 public:
  /// `count` times the value; nanoseconds.
  void add(std::int64_t value, std::int64_t count = 1);

  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Before  count() > 0. Nanoseconds.
  [[nodiscard]] double mean() const;
  [[nodiscard]] double population_std() const;

 private:
  std::int64_t count_ = 0;
  Int128 sum_ = 0;
  Int128 sum_of_squares_ = 0;
};

/// A latency as reports show it, in milliseconds. Meaningless if count is 0.
struct LatencyStats {
  std::int64_t count = 0;
  double mean_ms = 0;
  double median_ms = 0;
  double std_ms = 0;  ///< Of the population, as np.std.
  double p50_ms = 0;
  double p90_ms = 0;
  double p95_ms = 0;
  double p99_ms = 0;
  double max_ms = 0;
  [[nodiscard]] bool empty() const { return count == 0; }
};

/// A sample that is kept whole: 8 bytes a value.
class LatencySample {
 public:
  void add(SimDuration value) {
    values_.push_back(value.count());
    totals_.add(value.count());
  }
  /// Reorders the values, nothing else.
  [[nodiscard]] LatencyStats stats();
  /// The quantiles 0, 1/parts, ..., 1 in nanoseconds; empty without values. Sorts.
  [[nodiscard]] std::vector<double> quantiles_ns(std::int64_t parts);

 private:
  std::vector<std::int64_t> values_;
  ExactTotals totals_;
};

}  // namespace kneepoint::sim
