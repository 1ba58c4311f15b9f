// Knees against closed forms, a hundred times over.
//
// Each case runs the whole search 100 times on other random numbers and counts how
// often the true knee lies within the interval: a 95 % interval of independent runs
// misses it more than 10 times in a hundred about once in a hundred suites, and the
// seeds are fixed. Where chance plays no part, it is hit every time.
//
// All servers run one request at a time, so that the theory of one server holds.
// A step takes c = 10 ms whatever it computes; a request of k tokens takes k steps.
// Waiting W ends when its first step begins, so TTFT = W + c.
//
//   M/D/1      k = 1. P(W <= t) = (1 - r) sum over j <= t / c of
//              exp(z_j) (-z_j)^j / j!,   z_j = L (t - j c),   r = L c
//              (A. K. Erlang, 1909). Saturation: 1 / c.
//   M/M/1-like k geometric of mean 4, the discrete exponential: E[S] = 4 c,
//              E[S^2] = (2 - p) / p^2 c^2, p = 1/4; E[W] = L E[S^2] / (2 (1 - L E[S]))
//              (Pollaczek, Khinchine), solved for L. Saturation: 1 / (4 c).
//   KV-bound   one KV block beside the null block, a request of 8 + 2 tokens holds it:
//              M/D/1 of 2 c a request, though 1000 sequences may run.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

#include "sim/knee_search.h"
#include "tests/support/toy_run.h"
#include "traces/random_stream.h"

namespace kneepoint::sim {
namespace {

using namespace std::chrono_literals;
using testing_support::ToyStepTimes;

constexpr double kStep_s = 0.010;

double erlang_wait(double rate, double service_s, double t) {
  double sum = 0;
  double factorial = 1;
  for (int j = 0; j <= static_cast<int>(t / service_s + 1e-9); ++j) {
    factorial *= j > 0 ? j : 1;
    const double z = rate * (t - j * service_s);
    sum += std::exp(z) * std::pow(-z, j) / factorial;
  }
  return (1 - rate * service_s) * sum;
}

// The load at which 95 of 100 wait no longer than `t`. (Of 99 the same holds, and takes twice the requests.)
double md1_knee(double service_s, double t) {
  double low = 0;
  double high = 1 / service_s;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (erlang_wait(middle, service_s, t) > 0.95 ? low : high) = middle;
  }
  return low;
}

// Poisson arrivals, answers of geometric length.
class GeometricAnswers final : public KneeWorkload {
 public:
  explicit GeometricAnswers(double mean) : mean_(mean), arrivals_(drawn_requests({"8", "1", 0}, 1.0)) {}
  [[nodiscard]] std::vector<traces::TraceRecord> requests(std::uint64_t seed, std::int64_t n) const override {
    std::vector<traces::TraceRecord> records = arrivals_->requests(seed, n);
    traces::RandomStream stream(seed, "geometric");
    for (traces::TraceRecord& record : records) {
      record.output_tokens =
          1 + static_cast<std::int64_t>(std::log1p(-stream.uniform()) / std::log1p(-1 / mean_));
    }
    return records;
  }

 private:
  double mean_;
  std::unique_ptr<KneeWorkload> arrivals_;
};

struct Server {
  RunConfig config;
  std::unique_ptr<KneeWorkload> workload;
  std::string slo;
};

KneeLab::MakeTimes constant_steps() {
  return [] {
    auto times = std::make_unique<ToyStepTimes>();
    times->fixed = 10ms;
    return times;
  };
}

SearchResult search(const Server& server, std::uint64_t first_seed, SearchOptions options) {
  KneeLab lab({.config = server.config,
               .axis = LoadAxis::kRate,
               .workload = *server.workload,
               .make_times = constant_steps(),
               .first_seed = first_seed,
               .seeds = 5,
               .threads = 0,
               .keep_gaps = false,
               .on_run = {}});
  add_slo(server.slo, options.slo);
  return search_knees(lab, options);
}

Server one_at_a_time(std::unique_ptr<KneeWorkload> workload, std::string slo) {
  Server server{testing_support::toy_config(10'001), std::move(workload), std::move(slo)};
  server.config.engine.max_num_seqs = 1;
  return server;
}

const Knee& knee_of(const SearchResult& result, KneeKind kind) {
  return *std::find_if(result.knees.begin(), result.knees.end(),
                       [&](const Knee& knee) { return knee.kind == kind; });
}

struct Coverage {
  int slo = 0;
  int saturation = 0;
  std::vector<double> slo_widths;  // Half-widths over the load.
  std::vector<double> saturation_widths;
};

constexpr int kRepetitions = 100;

Coverage cover(const Server& server, double slo_knee, double saturation, std::int64_t requests) {
  SearchOptions options;
  options.requests = requests;
  options.precision = 0.1;  // The lengths suffice: no looking twice.
  options.min_load = 0.5 * saturation;
  options.max_load = 1.1 * saturation;
  options.guess = saturation;
  Coverage coverage;
  for (int i = 0; i < kRepetitions; ++i) {
    const SearchResult result = search(server, static_cast<std::uint64_t>(1000 * i), options);
    const Knee& slo = knee_of(result, KneeKind::kSlo);
    const Knee& full = knee_of(result, KneeKind::kSaturation);
    EXPECT_TRUE(slo.found() && full.found());
    coverage.slo += slo.lower() <= slo_knee && slo_knee <= slo.upper() ? 1 : 0;
    coverage.saturation += full.lower() <= saturation && saturation <= full.upper() ? 1 : 0;
    coverage.slo_widths.push_back(slo.half_width() / slo.load);
    coverage.saturation_widths.push_back(full.half_width() / full.load);
  }
  return coverage;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

void expect_covered(const char* name, const Coverage& c) {
  std::printf(
      "%s: SLO knee within its interval %d of %d times, median half-width %.1f %%; saturation %d, %.2f %%\n",
      name, c.slo, kRepetitions, 100 * median(c.slo_widths), c.saturation, 100 * median(c.saturation_widths));
  EXPECT_GE(c.slo, 90);
  EXPECT_LE(c.slo, 99);
  EXPECT_GE(c.saturation, 90);
  EXPECT_LE(median(c.slo_widths), 0.05);
  EXPECT_LE(median(c.saturation_widths), 0.05);
}

TEST(ClosedForm, MD1) {
  expect_covered("M/D/1", cover(one_at_a_time(drawn_requests({"8", "1", 0}, 1.0), "ttft:p95:60"),
                                md1_knee(kStep_s, 0.050), 100, 2400));
}

TEST(ClosedForm, MM1Like) {
  const double p = 1.0 / 4;
  const double mean_s = kStep_s / p;
  const double square_s = kStep_s * kStep_s * (2 - p) / (p * p);
  const double wait_s = 0.080;
  expect_covered("M/M/1-like", cover(one_at_a_time(std::make_unique<GeometricAnswers>(4), "ttft:mean:90"),
                                     2 * wait_s / (square_s + 2 * wait_s * mean_s), 1 / mean_s, 2700));
}

TEST(ClosedForm, KvBound) {
  Server server{testing_support::toy_config(2), drawn_requests({"8", "2", 0}, 1.0), "ttft:p95:110"};
  server.config.engine.max_num_seqs = 1000;
  expect_covered("KV-bound", cover(server, md1_knee(2 * kStep_s, 0.100), 1 / (2 * kStep_s), 2400));
}

// 50 blocks, one a request of 8 steps: 50 / 0.08 s whatever arrives.
TEST(ClosedForm, CapacityOfABlockPool) {
  Server server{testing_support::toy_config(51), drawn_requests({"8", "8", 0}, 1.0), "ttft:p99:60"};
  server.config.engine.max_num_seqs = 1000;
  const SearchResult result = search(server, 1, {});
  const Knee& full = knee_of(result, KneeKind::kSaturation);
  ASSERT_TRUE(full.found());
  EXPECT_NEAR(full.load, 625, std::max(full.half_width(), 0.01 * 625));
  const auto beyond = std::find_if(result.points.begin(), result.points.end(),
                                   [](const LoadPoint& p) { return p.beyond_saturation; });
  ASSERT_NE(beyond, result.points.end());
  EXPECT_EQ(beyond->waits.front().cause, "kv_blocks");
}

TEST(Extremes, WhatNeverSaturatesSaysSo) {
  // A thousand at once in steps of 10 ms of one token each: 100,000 a second, and no more than 1000 are
  // tried.
  Server server{testing_support::toy_config(10'001), drawn_requests({"8", "1", 0}, 1.0), "ttft:p99:60"};
  server.config.engine.max_num_seqs = 1000;
  server.config.engine.max_num_batched_tokens = 8192;
  SearchOptions options;
  options.max_load = 1000;
  const SearchResult result = search(server, 1, options);
  EXPECT_EQ(knee_of(result, KneeKind::kSaturation).status, KneeStatus::kAboveRange);
  EXPECT_EQ(knee_of(result, KneeKind::kSaturation).load, 1000);
  EXPECT_EQ(knee_of(result, KneeKind::kSlo).status, KneeStatus::kAboveRange);
}

TEST(Extremes, OverloadedFromTheStartSaysSo) {
  SearchOptions options;
  options.min_load = 150;  // Of 100.
  options.max_load = 400;
  const SearchResult result =
      search(one_at_a_time(drawn_requests({"8", "1", 0}, 1.0), "ttft:p99:60"), 1, options);
  EXPECT_EQ(knee_of(result, KneeKind::kSaturation).status, KneeStatus::kBelowRange);
  EXPECT_EQ(knee_of(result, KneeKind::kSlo).status, KneeStatus::kBelowRange);
}

TEST(Extremes, AnSloThatNoLoadMeetsSaysSo) {
  // One step is 10 ms; nobody gets a token in 5.
  const SearchResult result = search(one_at_a_time(drawn_requests({"8", "1", 0}, 1.0), "ttft:p99:5"), 1, {});
  EXPECT_EQ(knee_of(result, KneeKind::kSlo).status, KneeStatus::kBelowRange);
  EXPECT_TRUE(knee_of(result, KneeKind::kSaturation).found());
}

// At three times capacity two thirds of the queue stays: of 4000 requests the 2 x 1 % + 16 = 96 that settle
// p99 are late when about 150 have come, a long way from the end.
TEST(Extremes, AnImpossibleLoadIsLeftEarly) {
  const Server server = one_at_a_time(drawn_requests({"8", "1", 0}, 1.0), "ttft:p99:60");
  Slo slo;
  add_slo(server.slo, slo);
  KneeLab lab({.config = server.config,
               .axis = LoadAxis::kRate,
               .workload = *server.workload,
               .make_times = constant_steps(),
               .first_seed = 1,
               .seeds = 1,
               .threads = 1,
               .keep_gaps = false,
               .on_run = {}});
  lab.prepare(4000);
  const RunLog hopeless = lab.run({300, 0, 4000, slo.stop_rule(4000)});
  EXPECT_TRUE(hopeless.stopped);
  EXPECT_LT(hopeless.lines.size(), 300U);
  EXPECT_GT(hopeless.summary.unfinished, 60);
  const RunLog good = lab.run({50, 0, 4000, slo.stop_rule(4000)});
  EXPECT_FALSE(good.stopped);
  EXPECT_EQ(good.summary.unfinished, 0);
}

// What find_knees() reads off one run must be what a slower server does.
TEST(SlowMotion, ASlowerServerIsTheSameRunAtALowerLoad) {
  const auto workload = std::make_unique<GeometricAnswers>(8);
  RunConfig config = testing_support::toy_config(10'001);
  config.engine.max_num_seqs = 4;
  const auto run_with = [&](std::chrono::nanoseconds step, double load) {
    KneeLab lab({.config = config,
                 .axis = LoadAxis::kRate,
                 .workload = *workload,
                 .make_times =
                     [step] {
                       auto times = std::make_unique<ToyStepTimes>();
                       times->fixed = step;
                       times->front = {2ms, 3ms, 0ms};
                       return times;
                     },
                 .first_seed = 7,
                 .seeds = 1,
                 .threads = 1,
                 .keep_gaps = false,
                 .on_run = {}});
    lab.prepare(2000);
    return lab.run({load, 0, 2000, std::nullopt});
  };
  const RunLog plain = run_with(10ms, 40.0);
  const RunLog slower = run_with(11ms, 40.0 / 1.1);
  ASSERT_EQ(plain.lines.size(), slower.lines.size());
  std::int64_t furthest = 0;
  for (std::size_t i = 0; i < plain.lines.size(); ++i) {
    const double expected = 5e6 + 1.1 * static_cast<double>(plain.lines[i].ttft_ns - 5'000'000);
    furthest = std::max(furthest, std::abs(slower.lines[i].ttft_ns - std::lround(expected)));
  }
  EXPECT_LE(furthest, 2) << "nanoseconds: the arrivals are rounded";
}

TEST(Determinism, AnyNumberOfThreadsGivesTheSame) {
  std::vector<std::vector<double>> by_threads;
  const std::unique_ptr<KneeWorkload> workload = drawn_requests({"8", "1", 0}, 1.0);
  for (const int threads : {1, 4}) {
    RunConfig config = testing_support::toy_config(10'001);
    config.engine.max_num_seqs = 1;
    KneeLab lab({.config = config,
                 .axis = LoadAxis::kRate,
                 .workload = *workload,
                 .make_times = constant_steps(),
                 .first_seed = 3,
                 .seeds = 3,
                 .threads = threads,
                 .keep_gaps = false,
                 .on_run = {}});
    SearchOptions options;
    options.requests = 500;
    add_slo("ttft:p99:60", options.slo);
    std::vector<double> found;
    for (const Knee& knee : search_knees(lab, options).knees) {
      found.insert(found.end(), knee.by_seed.begin(), knee.by_seed.end());
      found.push_back(knee.arrivals_half_width);
    }
    by_threads.push_back(found);
  }
  EXPECT_EQ(by_threads[0], by_threads[1]);
}

}  // namespace
}  // namespace kneepoint::sim
