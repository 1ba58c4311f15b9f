// Percentiles and totals worked by hand.
//
// Of n sorted values the percentile p lies at position h = (n - 1) p / 100, with
// linear interpolation between the neighbours, as np.percentile does by default.
#include "sim/percentiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sim/metrics_gaps.h"
#include "traces/random_stream.h"

namespace kneepoint::sim {
namespace {

constexpr std::int64_t kMs = 1'000'000;

struct Case {
  const char* name;
  std::vector<std::int64_t> values_ms;
  double mean, std, p50, p90, p95, p99, max;
};

const Case kCases[] = {
    {"OneValueIsEveryPercentile", {7}, 7, 0, 7, 7, 7, 7, 7},
    // h = p/100: 10 + 0.5 * 10, 10 + 0.9 * 10, ...; std = half the distance.
    {"TwoValues", {20, 10}, 15, 5, 15, 19, 19.5, 19.9, 20},
    // Mean 5, deviations 9+1+1+1+0+0+4+16 = 32, std sqrt(32/8) = 2. Sorted 2 4 4 4 5 5 7 9.
    // h(50) = 3.5: between 4 and 5; h(90) = 6.3: 7 + .3 * 2; h(95) = 6.65; h(99) = 6.93.
    {"TextbookDeviationOfTwo", {9, 4, 7, 4, 5, 5, 2, 4}, 5, 2, 4.5, 7.6, 8.3, 8.86, 9},
    // 11 values 0..100: h = p/10, so the percentile is p itself. Var = 100 (11^2 - 1) / 12 = 1000.
    {"PercentileIsItsOwnName",
     {100, 0, 50, 10, 90, 20, 80, 30, 70, 40, 60},
     50,
     31.622776601683793,
     50,
     90,
     95,
     99,
     100},
    // h(50) = 2 hits the third value itself; h(99) = 3.96.
    {"TiesAndAnOutlier", {3, 3, 3, 3, 1003}, 203, 400, 3, 603, 803, 963, 1003},
};

class Percentiles : public testing::TestWithParam<Case> {};

void expect_stats(const LatencyStats& stats, const Case& c) {
  EXPECT_EQ(stats.count, static_cast<std::int64_t>(c.values_ms.size()));
  EXPECT_DOUBLE_EQ(stats.mean_ms, c.mean);
  EXPECT_DOUBLE_EQ(stats.std_ms, c.std);
  EXPECT_DOUBLE_EQ(stats.p50_ms, c.p50);
  EXPECT_DOUBLE_EQ(stats.median_ms, c.p50);
  EXPECT_DOUBLE_EQ(stats.p90_ms, c.p90);
  EXPECT_DOUBLE_EQ(stats.p95_ms, c.p95);
  EXPECT_DOUBLE_EQ(stats.p99_ms, c.p99);
  EXPECT_DOUBLE_EQ(stats.max_ms, c.max);
}

TEST_P(Percentiles, OfAWholeSample) {
  LatencySample sample;
  for (const std::int64_t value : GetParam().values_ms) {
    sample.add(SimDuration(value * kMs));
  }
  expect_stats(sample.stats(), GetParam());
  expect_stats(sample.stats(), GetParam());  // Asking reorders the sample but must not change it.
}

TEST_P(Percentiles, OfAPool) {
  GapPool pool;
  for (const std::int64_t value : GetParam().values_ms) {
    pool.add(value * kMs);
  }
  EXPECT_TRUE(pool.exact());
  expect_stats(pool.stats(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(, Percentiles, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(NoValues, HaveNoStatistics) {
  EXPECT_TRUE(LatencySample().stats().empty());
  EXPECT_TRUE(LatencySample().quantiles_ns(10).empty());
  EXPECT_TRUE(GapPool().stats().empty());
}

// Ten billion nanoseconds and one more: as doubles, sum of squares less square of
// sum has no digit left of the variance 2/9.
TEST(ExactTotals, SmallDeviationsOfLargeValues) {
  ExactTotals totals;
  for (const std::int64_t value : {0, 0, 1}) {
    totals.add(10'000'000'000 + value);
  }
  EXPECT_DOUBLE_EQ(totals.mean(), 10'000'000'000 + 1.0 / 3);
  EXPECT_DOUBLE_EQ(totals.population_std(), std::sqrt(2.0) / 3);
}

TEST(ExactTotals, AWeightIsARepetition) {
  ExactTotals weighted;
  weighted.add(3, 4);
  weighted.add(1003);
  EXPECT_EQ(weighted.count(), 5);
  EXPECT_DOUBLE_EQ(weighted.mean(), 203);
  EXPECT_DOUBLE_EQ(weighted.population_std(), 400);
}

TEST(LatencySample, QuantilesRunFromSmallestToLargest) {
  LatencySample sample;
  for (const std::int64_t value : {40, 10, 20}) {
    sample.add(SimDuration(value));
  }
  // Positions 0, 0.5, 1, 1.5, 2 of 10 20 40.
  EXPECT_EQ(sample.quantiles_ns(4), (std::vector<double>{10, 15, 20, 30, 40}));
}

// ---- the pool

TEST(GapPool, BinsFollowEachOtherWithoutHoleOrOverlap) {
  std::int64_t last_value = -1;
  for (std::int64_t value = 0; value < 20'000; ++value) {
    const std::size_t bin = gap_bin(value);
    const std::size_t before = last_value < 0 ? 0 : gap_bin(last_value);
    ASSERT_TRUE(bin == before || bin == before + 1) << value;
    last_value = value;
  }
}

TEST(GapPool, ABinsMiddleIsWithinATwentiethOfAPercent) {
  traces::RandomStream random(1, "values");
  for (int i = 0; i < 100'000; ++i) {
    const auto value = static_cast<std::int64_t>(std::exp2(62.9 * random.uniform()));
    const std::int64_t middle = gap_bin_middle(gap_bin(value));
    ASSERT_EQ(gap_bin(middle), gap_bin(value));
    ASSERT_LE(std::abs(static_cast<double>(middle - value)), static_cast<double>(value) / 2048) << value;
  }
  EXPECT_EQ(gap_bin_middle(gap_bin(0)), 0);
  EXPECT_EQ(gap_bin_middle(gap_bin(2047)), 2047);  // The last value with a bin of its own.
}

// Weighted, pooled beyond its limit, and whole: the same values three ways.
TEST(GapPool, BeyondItsLimitItIsWithinATenthOfAPercentAndSaysSo) {
  traces::RandomStream random(2, "gaps");
  LatencySample whole;
  GapPool exact;
  GapPool small(/*max_distinct=*/500);
  for (int i = 0; i < 5'000; ++i) {
    const auto gap = static_cast<std::int64_t>(5e6 + 1e6 * random.exponential());
    const std::int64_t count = 1 + i % 4;
    exact.add(gap, count);
    small.add(gap, count);
    for (std::int64_t n = 0; n < count; ++n) {
      whole.add(SimDuration(gap));
    }
  }
  const LatencyStats expected = whole.stats();
  const LatencyStats pooled = exact.stats();
  EXPECT_TRUE(exact.exact());
  EXPECT_EQ(pooled.count, expected.count);
  EXPECT_EQ(pooled.p50_ms, expected.p50_ms);
  EXPECT_EQ(pooled.p90_ms, expected.p90_ms);
  EXPECT_EQ(pooled.p95_ms, expected.p95_ms);
  EXPECT_EQ(pooled.p99_ms, expected.p99_ms);

  const LatencyStats binned = small.stats();
  EXPECT_FALSE(small.exact());
  EXPECT_EQ(binned.count, expected.count);
  EXPECT_EQ(binned.mean_ms, expected.mean_ms);
  EXPECT_EQ(binned.std_ms, expected.std_ms);
  EXPECT_NEAR(binned.max_ms, expected.max_ms, 1e-3 * expected.max_ms);
  EXPECT_NE(binned.p50_ms, expected.p50_ms);
  EXPECT_NEAR(binned.p50_ms, expected.p50_ms, 1e-3 * expected.p50_ms);
  EXPECT_NEAR(binned.p90_ms, expected.p90_ms, 1e-3 * expected.p90_ms);
  EXPECT_NEAR(binned.p95_ms, expected.p95_ms, 1e-3 * expected.p95_ms);
  EXPECT_NEAR(binned.p99_ms, expected.p99_ms, 1e-3 * expected.p99_ms);
}

// What is taken out leaves no trace, before the limit and after.
TEST(GapPool, ForgetsWhatIsTakenOut) {
  for (const std::size_t max_distinct : {std::size_t{1000}, std::size_t{3}}) {
    GapPool pool(max_distinct);
    GapPool without(max_distinct);
    for (std::int64_t i = 0; i < 100; ++i) {
      pool.add(1000 + i);
      without.add(1000 + i);
      pool.add(2'000'000 + i);
    }
    for (std::int64_t i = 0; i < 100; ++i) {
      pool.remove(2'000'000 + i);
    }
    EXPECT_EQ(pool.exact(), max_distinct == 1000);
    const LatencyStats left = pool.stats();
    const LatencyStats expected = without.stats();
    EXPECT_EQ(left.count, 100);
    EXPECT_EQ(left.mean_ms, expected.mean_ms);
    EXPECT_EQ(left.std_ms, expected.std_ms);
    EXPECT_EQ(left.p50_ms, expected.p50_ms);
    EXPECT_EQ(left.max_ms, expected.max_ms);
  }
}

// Slots are 16 bytes and a power of two in number, at most three quarters in use:
// 3 * 2^20 values need 2^22 slots, 64 MiB, and one more would need twice as many.
TEST(GapPool, LimitIsAFullTableOfSixtyFourMebibytes) {
  EXPECT_EQ(GapPool::kMaxDistinct, std::size_t{3} << 20);
}

}  // namespace
}  // namespace kneepoint::sim
