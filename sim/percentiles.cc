#include "sim/percentiles.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>

namespace kneepoint::sim {
namespace {

constexpr double kNsPerMs = 1e6;  // Divided by, as 1e-6 is no exact double.

// The q-th value of `values`, whose first `done` ones are the smallest, in order
// enough that only the rest needs a look.
double select(std::vector<std::int64_t>& values, std::int64_t& done, Quantile q) {
  const QuantilePosition at = quantile_position(static_cast<std::int64_t>(values.size()), q);
  const auto wanted = values.begin() + at.below;
  if (at.below >= done) {
    std::nth_element(values.begin() + done, wanted, values.end());
    done = at.below;  // Not + 1: the next quantile may lie at the same place.
  }
  if (at.fraction == 0) {
    return static_cast<double>(*wanted);
  }
  return interpolate(*wanted, *std::min_element(wanted + 1, values.end()), at.fraction);
}

}  // namespace

QuantilePosition quantile_position(std::int64_t n, Quantile q) {
  BOOST_ASSERT(n > 0 && q.denominator > 0 && 0 <= q.numerator && q.numerator <= q.denominator);
  const std::int64_t steps = (n - 1) * q.numerator;
  return {steps / q.denominator,
          static_cast<double>(steps % q.denominator) / static_cast<double>(q.denominator)};
}

double interpolate(std::int64_t below, std::int64_t above, double fraction) {
  return static_cast<double>(below) + static_cast<double>(above - below) * fraction;
}

void ExactTotals::add(std::int64_t value, std::int64_t count) {
  count_ += count;
  const Int128 sum = Int128{value} * count;
  sum_ += sum;
  Int128 squares = 0;
  const bool overflow = __builtin_mul_overflow(sum, Int128{value}, &squares) ||
                        __builtin_add_overflow(sum_of_squares_, squares, &sum_of_squares_);
  BOOST_ASSERT_MSG(!overflow, "METRICS_RANGE: squares of durations exceed 128 bits");
  static_cast<void>(overflow);
}

double ExactTotals::mean() const {
  BOOST_ASSERT(count_ > 0);
  // Whole part and rest apart: a quotient of two large doubles would lose the nanoseconds.
  return static_cast<double>(sum_ / count_) +
         static_cast<double>(sum_ % count_) / static_cast<double>(count_);
}

// With m the mean cut to a whole number and r = sum - n m its rest,
//     n var = sum (x - m)^2 - r^2 / n,   sum (x - m)^2 = sum x^2 - 2 m sum x + n m^2,
// where the second is whole and exact: no two large doubles are subtracted.
double ExactTotals::population_std() const {
  BOOST_ASSERT(count_ > 0);
  const Int128 m = sum_ / count_;
  const double rest = static_cast<double>(sum_ % count_) / static_cast<double>(count_);
  const Int128 squared_deviations = sum_of_squares_ - m * (sum_ + sum_ % count_);
  const double variance = static_cast<double>(squared_deviations) / static_cast<double>(count_) - rest * rest;
  return std::sqrt(std::max(variance, 0.0));
}

LatencyStats LatencySample::stats() {
  LatencyStats stats;
  stats.count = totals_.count();
  if (stats.empty()) {
    return stats;
  }
  stats.mean_ms = totals_.mean() / kNsPerMs;
  stats.std_ms = totals_.population_std() / kNsPerMs;
  std::int64_t done = 0;
  stats.p50_ms = select(values_, done, {50, 100}) / kNsPerMs;
  stats.p90_ms = select(values_, done, {90, 100}) / kNsPerMs;
  stats.p95_ms = select(values_, done, {95, 100}) / kNsPerMs;
  stats.p99_ms = select(values_, done, {99, 100}) / kNsPerMs;
  stats.max_ms = select(values_, done, {1, 1}) / kNsPerMs;
  stats.median_ms = stats.p50_ms;
  return stats;
}

std::vector<double> LatencySample::quantiles_ns(std::int64_t parts) {
  std::vector<double> quantiles;
  if (values_.empty()) {
    return quantiles;
  }
  std::sort(values_.begin(), values_.end());
  for (std::int64_t i = 0; i <= parts; ++i) {
    const QuantilePosition at = quantile_position(static_cast<std::int64_t>(values_.size()), {i, parts});
    const auto below = static_cast<std::size_t>(at.below);
    const std::size_t above = at.fraction == 0 ? below : below + 1;
    quantiles.push_back(interpolate(values_[below], values_[above], at.fraction));
  }
  return quantiles;
}

}  // namespace kneepoint::sim
