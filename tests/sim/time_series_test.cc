// A run over its time in a bounded number of buckets, by hand and against an
// obvious model that keeps everything.
#include "sim/time_series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/toy_run.h"

namespace kneepoint::sim {
namespace {

using namespace std::chrono_literals;

SimTime at(SimDuration time) {
  return SimTime(time);
}

engine::EngineLoad load(std::int64_t running, std::int64_t waiting, std::int64_t used) {
  return {running, waiting, 100 - used, 100};
}

// 4 buckets of 1 us. Adding at 0, 1 and 3 us fills three; 9 us needs a width of 4 us (2 is not enough: 9 / 2
// = 4). Then 0, 1 and 3 are in bucket 0 and 9 in bucket 2.
TEST(TimeBuckets, DoubleUntilTheTimeFits) {
  struct Count {
    int n = 0;
    void merge(const Count& later) { n += later.n; }
  };
  TimeBuckets<Count> buckets(4);
  for (const SimDuration time : {0us, 1us, 3us}) {
    ++buckets.at(at(time)).n;
  }
  EXPECT_EQ(buckets.used(), 4U);
  ++buckets.at(at(9us)).n;
  EXPECT_EQ(buckets.width(), 4us);
  EXPECT_EQ(buckets.used(), 3U);
  EXPECT_EQ(buckets[0].n, 3);
  EXPECT_EQ(buckets[1].n, 0);
  EXPECT_EQ(buckets[2].n, 1);
  EXPECT_EQ(buckets.end_of(at(9us)), at(12us));
}

// Waiting: 2 from 0, 6 from 3 us, 1 until the end at 4 us + 100 ns. What holds for no time (50 at 3 us)
// counts nowhere.
TEST(TimeSeriesTest, LevelsAreMeansOverTimeWithTheirExtremes) {
  TimeSeries series;
  series.on_load(at(0us), load(1, 2, 10));
  series.on_load(at(3us), load(9, 50, 20));
  series.on_load(at(3us), load(3, 6, 40));
  series.on_load(at(4us), load(0, 1, 0));
  series.on_load(at(4us + 100ns), load(0, 0, 0));
  const std::vector<LevelRow> rows = series.levels();
  ASSERT_EQ(rows.size(), 5U);  // 1 us wide, the last cut where the run ends.
  EXPECT_EQ(rows[4].end, at(4us + 100ns));
  EXPECT_EQ(rows[2].waiting.mean, 2);
  EXPECT_EQ(rows[3].waiting.mean, 6);
  EXPECT_EQ(rows[3].waiting.highest, 6);
  EXPECT_EQ(rows[4].waiting.mean, 1);
  EXPECT_EQ(rows[3].used_blocks.mean, 40);
  EXPECT_EQ(rows[0].running.lowest, 1);
}

// The same in one bucket: 512 buckets reach 4096 us only at a width of 8 us or more; 4096 / 512 = 8 needs 16.
// In [0, 16): 2 for 3 us, 6 for 1 us, 1 for 12 us: (6 + 6 + 12) / 16 = 1.5.
TEST(TimeSeriesTest, LevelsMerge) {
  TimeSeries series;
  series.on_load(at(0us), load(0, 2, 0));
  series.on_load(at(3us), load(0, 6, 0));
  series.on_load(at(4us), load(0, 1, 0));
  series.on_load(at(4096us + 1ns), load(0, 0, 0));
  const LevelRow row = series.levels().front();
  EXPECT_EQ(row.end, at(16us));
  EXPECT_EQ(row.waiting.mean, 1.5);
  EXPECT_EQ(row.waiting.lowest, 1);
  EXPECT_EQ(row.waiting.highest, 6);
}

// Against a model that looks at each nanosecond-exact piece. Times grow by steps of very different sizes, so
// that some holds lie within a bucket and others span many.
TEST(TimeSeriesTest, LevelsAgreeWithTheObviousModel) {
  std::mt19937_64 random(3);
  for (int run = 0; run < 20; ++run) {
    struct Piece {
      std::int64_t from, to, value;
    };
    std::vector<Piece> pieces;
    TimeSeries series;
    std::int64_t now = 0, value = 0;
    for (int i = 0; i < 400; ++i) {
      const std::int64_t step = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 24)));
      if (step > 0) {
        pieces.push_back({now, now + step, value});
      }
      now += step;
      value = static_cast<std::int64_t>(random() % 10);
      series.on_load(SimTime(SimDuration(now)), load(0, value, 0));
    }
    const std::vector<LevelRow> rows = series.levels();
    ASSERT_LE(rows.size(), TimeSeries::kLevelBuckets);
    ASSERT_EQ(rows.back().end.time_since_epoch().count(), now);
    for (const LevelRow& row : rows) {
      const std::int64_t from = row.begin.time_since_epoch().count(), to = row.end.time_since_epoch().count();
      std::int64_t integral = 0, lowest = 100, highest = -1;
      for (const Piece& piece : pieces) {
        const std::int64_t overlap = std::min(to, piece.to) - std::max(from, piece.from);
        if (overlap > 0) {
          integral += overlap * piece.value;
          lowest = std::min(lowest, piece.value);
          highest = std::max(highest, piece.value);
        }
      }
      ASSERT_EQ(row.waiting.lowest, lowest);
      ASSERT_EQ(row.waiting.highest, highest);
      ASSERT_DOUBLE_EQ(row.waiting.mean, static_cast<double>(integral) / static_cast<double>(to - from));
    }
  }
}

// 16 bins to a doubling: the bin of a value v >= 16 is at most v / 16 wide, its middle at most v / 32 away.
TEST(LogHistogramTest, QuantilesAreNearestRankWithinAThirtySecond) {
  std::mt19937_64 random(5);
  LogHistogram histogram, first, second;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 5000; ++i) {
    const auto value = static_cast<std::int64_t>(random() >> (random() % 60 + 2));
    values.push_back(value);
    histogram.add(value);
    (i % 3 == 0 ? first : second).add(value);
  }
  first.merge(second);
  std::sort(values.begin(), values.end());
  for (const std::int64_t percent : {0, 1, 50, 90, 99, 100}) {
    const auto rank = std::max<std::int64_t>(1, (5000 * percent + 99) / 100);
    const auto exact = static_cast<double>(values[static_cast<std::size_t>(rank - 1)]);
    EXPECT_NEAR(histogram.quantile({percent, 100}), exact, exact / 32) << percent;
    EXPECT_EQ(first.quantile({percent, 100}), histogram.quantile({percent, 100}));
  }
  EXPECT_EQ(histogram.lowest(), values.front());
  EXPECT_EQ(histogram.highest(), values.back());
  EXPECT_EQ(first.count(), 5000);
}

// Steps that are taken many at once (engine.walk_decodes off) tell the same as steps walked one by one: blocks are
// taken in between, and a long answer with nobody else about is all between.
TEST(TimeSeriesTest, FastStepsTellTheSame) {
  testing_support::ToyStepTimes times;
  times.fixed = 10us;
  times.per_context_token = 3ns;
  std::string told[2];
  for (const bool walk : {false, true}) {
    RunConfig config = testing_support::toy_config();
    config.engine.walk_decodes = walk;
    TimeSeries series;
    (void)testing_support::run_toy(config, times,
                                   {testing_support::request_at(0us, 40, 2000), testing_support::request_at(900us, 30, 700),
                                    testing_support::request_at(90ms, 20, 9)},
                                   {&series});
    told[walk ? 1 : 0] = levels_csv(series) + latencies_csv(series);
  }
  EXPECT_EQ(told[0], told[1]);
}

// Two requests sent at 0 and one at 10 s, which fails. TTFT 30 and 50 ms; TPOT of the first (130 - 30) / 10 =
// 10 ms, the second has one token and so none. Width after 10 s in 128 buckets: 2^17 us = 0.131072 s (2^16 us
// reach 8.4 s).
TEST(TimeSeriesTest, LatenciesGoByWhenRequestsWereSent) {
  TimeSeries series;
  const auto request = [&](SimDuration sent, SimDuration first, SimDuration last, std::int64_t tokens,
                           RequestEnd end) {
    RequestRecord record;
    record.sent = at(sent);
    record.first_token = at(first);
    record.last_token = at(last);
    record.output_tokens = tokens;
    record.end = end;
    series.on_send(record);
    series.on_request_end(record);
  };
  request(0ms, 30ms, 130ms, 11, RequestEnd::kLength);
  request(0ms, 50ms, 50ms, 1, RequestEnd::kStop);
  request(10s, 11s, 12s, 5, RequestEnd::kClientTimeout);
  const std::vector<LatencyRow> rows = series.latencies();
  ASSERT_EQ(rows.size(), 77U);  // 10 s / 0.131072 s = 76.3.
  EXPECT_EQ(rows[0].end, at(131072us));
  EXPECT_EQ(rows[0].sent, 2);
  EXPECT_EQ(rows[0].ttft->count(), 2);
  EXPECT_EQ(rows[0].ttft->mean(), 40e6);
  EXPECT_EQ(rows[0].ttft->highest(), 50'000'000);
  EXPECT_EQ(rows[0].tpot->count(), 1);
  EXPECT_EQ(rows[0].tpot->lowest(), 10'000'000);
  EXPECT_EQ(rows[76].failed, 1);
  EXPECT_EQ(rows[76].ttft->count(), 0);
}

}  // namespace
}  // namespace kneepoint::sim
