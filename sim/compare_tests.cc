#include "sim/compare_tests.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

namespace kneepoint::sim {
namespace {

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

// Twice the rank of each value: a mean of two ranks is then whole, too.
std::vector<std::int64_t> doubled_ranks(std::vector<double> sizes) {
  std::vector<std::int64_t> ranks(sizes.size());
  std::vector<double> sorted = sizes;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), sizes[i]);
    ranks[i] = (first - sorted.begin()) + 1 + (last - sorted.begin());
  }
  return ranks;
}

}  // namespace

double wilcoxon_p(std::span<const double> differences) {
  std::vector<double> sizes;
  std::vector<bool> positive;
  for (const double d : differences) {
    if (d != 0) {
      sizes.push_back(std::abs(d));
      positive.push_back(d > 0);
    }
  }
  BOOST_ASSERT(!sizes.empty() && sizes.size() <= static_cast<std::size_t>(kMostPairs));
  const std::vector<std::int64_t> ranks = doubled_ranks(sizes);
  std::int64_t total = 0;
  std::int64_t observed = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    total += ranks[i];
    observed += positive[i] ? ranks[i] : 0;
  }
  // probability[w]: that the ranks of the positive signs sum to w, sign by sign.
  std::vector<double> probability(static_cast<std::size_t>(total) + 1, 0.0);
  probability[0] = 1;
  std::int64_t so_far = 0;
  for (const std::int64_t rank : ranks) {
    so_far += rank;
    for (std::int64_t w = so_far; w >= 0; --w) {
      const double with = w >= rank ? probability[static_cast<std::size_t>(w - rank)] : 0.0;
      probability[static_cast<std::size_t>(w)] = (probability[static_cast<std::size_t>(w)] + with) / 2;
    }
  }
  const std::int64_t smaller = std::min(observed, total - observed);  // The distribution is symmetric.
  double tail = 0;
  for (std::int64_t w = 0; w <= smaller; ++w) {
    tail += probability[static_cast<std::size_t>(w)];
  }
  return std::min(1.0, 2 * tail);
}

PairedTest paired_test(std::span<const double> a, std::span<const double> b) {
  BOOST_ASSERT(a.size() == b.size() && !a.empty());
  std::vector<double> differences(a.size());
  std::transform(b.begin(), b.end(), a.begin(), differences.begin(),
                 [](double x, double y) { return x - y; });
  PairedTest test;
  test.pairs = static_cast<std::int64_t>(a.size());
  test.mean_a = mean_of(a);
  test.mean_b = mean_of(b);
  test.difference = mean_of(differences);
  const auto [least, most] = std::minmax_element(differences.begin(), differences.end());
  if (*least == *most) {
    return test;
  }
  double squares = 0;
  for (const double d : differences) {
    squares += (d - test.difference) * (d - test.difference);
  }
  const auto n = static_cast<double>(a.size());
  const double standard_error = std::sqrt(squares / (n - 1) / n);
  const boost::math::students_t student(n - 1);
  const double half_width = boost::math::quantile(boost::math::complement(student, 0.025)) * standard_error;
  test.low = test.difference - half_width;
  test.high = test.difference + half_width;
  const double t = std::abs(test.difference) / standard_error;
  test.p_t = 2 * boost::math::cdf(boost::math::complement(student, t));
  test.p_wilcoxon = wilcoxon_p(differences);
  return test;
}

}  // namespace kneepoint::sim
