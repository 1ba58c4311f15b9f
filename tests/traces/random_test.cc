// The generators' mathematics against the C library's, and their distributions
// against theirs by Kolmogorov and Smirnov at fixed seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/math/distributions/gamma.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "traces/exact_math.h"
#include "traces/random_stream.h"

namespace kneepoint::traces {
namespace {

TEST(ExactMath, LogExpSineAgreeWithTheLibrary) {
  RandomStream stream(1, "test");
  for (int i = 0; i < 100'000; ++i) {
    const double x = std::ldexp(0.5 + stream.uniform() / 2, static_cast<int>(stream.integer(-1000, 1000)));
    EXPECT_NEAR(exact_log(x) / std::log(x), 1, 1e-15);
    const double y = 1400 * stream.uniform() - 700;
    EXPECT_NEAR(exact_exp(y) / std::exp(y), 1, 1e-15);
    const double turns = 10 * stream.uniform() - 5;
    EXPECT_NEAR(exact_sin_turns(turns), std::sin(2 * M_PI * turns), 1e-14);
  }
  EXPECT_EQ(exact_log(1), 0);
  EXPECT_EQ(exact_exp(0), 1);
  EXPECT_EQ(exact_exp(-1000), 0);
  // Next to 1 a logarithm is its argument's distance from 1.
  EXPECT_DOUBLE_EQ(exact_log(1 + 0x1p-40), std::log1p(0x1p-40));
}

// Largest distance of the drawn from the true distribution, times sqrt(n). Under
// the null hypothesis it exceeds 1.95 once in a thousand (Kolmogorov's table).
double ks_statistic(std::vector<double> drawn, const std::function<double(double)>& cdf) {
  std::ranges::sort(drawn);
  const auto n = static_cast<double>(drawn.size());
  double worst = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const double f = cdf(drawn[i]);
    worst = std::max({worst, f - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - f});
  }
  return worst * std::sqrt(n);
}

struct Case {
  const char* name;
  double (*draw)(RandomStream&);
  double (*cdf)(double);
};

double gamma_cdf(double shape, double x) {
  return boost::math::cdf(boost::math::gamma_distribution<>(shape), x);
}

const Case kCases[] = {
    {"Uniform", [](RandomStream& s) { return s.uniform(); }, [](double x) { return x; }},
    {"Exponential", [](RandomStream& s) { return s.exponential(); },
     [](double x) { return 1 - std::exp(-x); }},
    {"Normal", [](RandomStream& s) { return s.normal(); },
     [](double x) { return boost::math::cdf(boost::math::normal_distribution<>(), x); }},
    {"GammaBursty", [](RandomStream& s) { return s.gamma(0.2); }, [](double x) { return gamma_cdf(0.2, x); }},
    {"GammaOne", [](RandomStream& s) { return s.gamma(1); }, [](double x) { return 1 - std::exp(-x); }},
    {"GammaEven", [](RandomStream& s) { return s.gamma(7.5); }, [](double x) { return gamma_cdf(7.5, x); }},
    {"Weibull", [](RandomStream& s) { return s.weibull(0.6); },
     [](double x) { return 1 - std::exp(-std::pow(x, 0.6)); }},
    {"Pareto", [](RandomStream& s) { return s.pareto(1.8); },
     [](double x) { return 1 - std::pow(1 + x, -1.8); }},
};

class Drawn : public testing::TestWithParam<Case> {};

TEST_P(Drawn, FollowsItsDistribution) {
  RandomStream stream(20260101, "kolmogorov");
  std::vector<double> drawn(50'000);
  for (double& x : drawn) x = GetParam().draw(stream);
  EXPECT_LT(ks_statistic(drawn, GetParam().cdf), 1.95);
}

INSTANTIATE_TEST_SUITE_P(, Drawn, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

// The test can fail: the same draws are not those of a neighbouring shape.
TEST(KolmogorovSmirnov, TellsNeighboursApart) {
  RandomStream stream(20260101, "kolmogorov");
  std::vector<double> drawn(50'000);
  for (double& x : drawn) x = stream.gamma(0.2);
  EXPECT_GT(ks_statistic(drawn, [](double x) { return gamma_cdf(0.21, x); }), 1.95);
}

TEST(RandomStream, IntegersAreUniform) {
  // Chi-squared over 10 cells; above 27.9 once in a thousand at 9 degrees of freedom.
  RandomStream stream(3, "cells");
  std::vector<double> cells(10);
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) ++cells[static_cast<std::size_t>(stream.integer(-4, 5) + 4)];
  double chi = 0;
  for (const double cell : cells) chi += (cell - kDraws / 10.0) * (cell - kDraws / 10.0) / (kDraws / 10.0);
  EXPECT_LT(chi, 27.9);
}

TEST(RandomStream, NamesAndSeedsGiveOtherNumbers) {
  EXPECT_NE(stream_seed(1, "arrivals"), stream_seed(1, "prompt-lengths"));
  EXPECT_NE(stream_seed(1, "arrivals"), stream_seed(2, "arrivals"));
  RandomStream a(1, "arrivals"), b(1, "arrivals");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(a.uniform(), b.uniform());
}

}  // namespace
}  // namespace kneepoint::traces
