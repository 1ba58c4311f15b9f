// Queues whose load is known: one server, constant service (M/D/1 with Poisson
// arrivals). Below 1 the queue has a steady state, at 0.95 a long one; above 1 it
// grows by (1 - 1/load) of the arrivals.
#include "sim/overload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "traces/random_stream.h"

namespace kneepoint::sim {
namespace {

constexpr int kSeeds = 100;
constexpr double kServiceS = 0.05;

// `requests` with the intervals given (in seconds), served one after the other.
OverloadVerdict queue_of(int requests, const std::function<double(int)>& interval_s) {
  OverloadDetector detector;
  SimTime arrival{};
  SimTime server_free{};
  for (int i = 0; i < requests; ++i) {
    arrival += to_sim_duration(interval_s(i));
    RequestRecord record;
    record.index = static_cast<std::uint64_t>(i);
    record.arrival = record.sent = record.queued = arrival;
    record.scheduled = std::max(arrival, server_free);
    server_free = record.scheduled + to_sim_duration(kServiceS);
    record.first_token = record.last_token = server_free;
    detector.on_send(record);
    detector.on_request_end(record);
  }
  return detector.verdict();
}

// In how many of 100 seeds a queue with gamma intervals is called overloaded.
int overloaded_seeds(double load, double burstiness, int requests) {
  int overloaded = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    traces::RandomStream random(static_cast<std::uint64_t>(seed), "intervals");
    const double mean_s = kServiceS / load;
    overloaded +=
        queue_of(requests, [&](int) { return random.gamma(burstiness) * mean_s / burstiness; }).overloaded
            ? 1
            : 0;
  }
  return overloaded;
}

struct Case {
  const char* name;
  double load;
  double burstiness;  // 1 is Poisson; 0.1 has a squared coefficient of variation of 10.
  int requests;
  int at_least, at_most;  // Of 100 seeds.
};

// At a load of exactly 1 the test errs once in a hundred, and more rarely below.
// Above, arrivals in a given time have the variance requests / burstiness, so the
// drift, measured in its standard error, is
//
//     d = (1 - 1 / load) sqrt(requests burstiness)
//
// and a t-test with v = 19 degrees of freedom at c = 2.539 sees it with about
// the probability Phi((d - c (1 - 1 / 4v)) / sqrt(1 + c^2 / 2v)) (Johnson, Welch,
// Biometrika 31, 1940): d = 2.87, 3.87, 4.71, 4.76, 5.27 give 63, 90, 98, 98 and
// 99 of a hundred. The bounds are four binomial standard deviations away.
const Case kCases[] = {
    {"QuarterLoad", 0.25, 1, 1000, 0, 0},
    {"SeventyPercent", 0.7, 1, 1000, 0, 0},
    {"NinetyFivePercent", 0.95, 1, 1000, 0, 2},
    {"NinetyFivePercentLong", 0.95, 1, 10'000, 0, 1},
    {"BurstySeventyPercent", 0.7, 0.1, 1000, 0, 1},
    {"BurstyNinetyPercentLong", 0.9, 0.1, 10'000, 0, 1},
    {"ExactlyOne", 1.0, 1, 1000, 0, 5},
    {"TenPercentOverAShortTime", 1.1, 1, 1000, 44, 82},
    {"FivePercentOverALongTime", 1.05, 1, 10'000, 92, 100},
    {"TwentyPercentOver", 1.2, 1, 1000, 95, 100},
    {"TwiceTheLoadOfFewRequests", 2.0, 1, 60, 78, 100},
    {"BurstyFiftyPercentOver", 1.5, 0.1, 2000, 92, 100},
};

class Overload : public testing::TestWithParam<Case> {};

TEST_P(Overload, IsSeenWhereItIs) {
  const Case& c = GetParam();
  const int seen = overloaded_seeds(c.load, c.burstiness, c.requests);
  EXPECT_GE(seen, c.at_least);
  EXPECT_LE(seen, c.at_most);
}

INSTANTIATE_TEST_SUITE_P(, Overload, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

// 600 requests at 10 a second, half the capacity, and 400 within the last second.
TEST(OverloadOfShape, ABurstAtTheEndIsNoTrend) {
  const OverloadVerdict verdict = queue_of(1000, [](int i) { return i < 600 ? 0.1 : 0.0025; });
  EXPECT_FALSE(verdict.overloaded);
  EXPECT_GT(verdict.queue_at_last_arrival, 350);
  EXPECT_NEAR(verdict.t, 1, 0.1);
}

// A rush hour of 1.5 times the capacity in the middle, over before the end.
TEST(OverloadOfShape, AQueueThatCameAndWentIsNone) {
  const OverloadVerdict verdict =
      queue_of(3000, [](int i) { return 1000 <= i && i < 2000 ? kServiceS / 1.5 : kServiceS / 0.5; });
  EXPECT_FALSE(verdict.overloaded);
  EXPECT_LE(verdict.queue_at_last_arrival, 1);
}

// Without chance every block grows alike.
TEST(OverloadOfShape, ClockworkOverload) {
  // 1000 arrivals at 1.25 times the capacity: a fifth still waits.
  const OverloadVerdict verdict = queue_of(1000, [](int) { return kServiceS / 1.25; });
  EXPECT_TRUE(verdict.overloaded);
  EXPECT_NEAR(static_cast<double>(verdict.queue_at_last_arrival), 200, 2);
  EXPECT_NE(verdict.reason.find("of 1000 requests had not begun when the last one came, after 40 s"),
            std::string::npos)
      << verdict.reason;
}

// 1000 requests in a tenth of a second need 50 s: the arrivals are one counter wide by then.
TEST(OverloadOfShape, ArrivalsTooShortToTestAreJudgedByTheirQueue) {
  EXPECT_TRUE(queue_of(1000, [](int) { return 0.0001; }).overloaded);
}

TEST(OverloadOfShape, AllAtOneInstantHaveNoTrend) {
  EXPECT_FALSE(queue_of(1000, [](int) { return 0.0; }).overloaded);
}

TEST(OverloadOfShape, TooFewToTell) {
  EXPECT_FALSE(queue_of(39, [](int) { return kServiceS / 4; }).overloaded);
  EXPECT_TRUE(queue_of(40, [](int) { return kServiceS / 4; }).overloaded);
}

// The same trace at a thousandth of the pace: counters of other widths, the same verdict.
TEST(OverloadOfShape, DoesNotDependOnTheUnitOfTime) {
  for (const double scale : {1.0, 1e-3, 1e3}) {
    OverloadDetector detector;
    for (int i = 0; i < 2000; ++i) {
      RequestRecord record;
      record.arrival = SimTime(to_sim_duration(scale * 0.04 * i));
      record.scheduled = record.last_token = SimTime(to_sim_duration(scale * 0.05 * i));
      detector.on_send(record);
      detector.on_request_end(record);
    }
    const OverloadVerdict verdict = detector.verdict();
    EXPECT_TRUE(verdict.overloaded) << scale;
    EXPECT_NEAR(static_cast<double>(verdict.queue_at_last_arrival), 400, 5) << scale;
  }
}

}  // namespace
}  // namespace kneepoint::sim
