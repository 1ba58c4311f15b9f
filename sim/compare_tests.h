// Is a difference between two systems more than chance, when both met the same
// seeds?
//
// Pairing. Run i of A and run i of B had the same arrivals, so what the arrivals
// do to both falls out of the differences d_i = b_i - a_i, and n of these say more
// than n runs of each would alone (common random numbers).
//
// Paired t-test. If the d_i are about normal,
//
//     t = mean(d) / (s / sqrt n),   s^2 = sum (d_i - mean)^2 / (n - 1)
//
// follows Student's t with n - 1 degrees of freedom when there is no difference;
// the 95 % interval of the mean difference is mean +- t(0.975) s / sqrt n. For d =
// 1, 2, 3: mean 2, s 1, t = 2 sqrt 3 = 3.4641, p = 0.0742.
//
// Wilcoxon's signed ranks. Without normality: rank the |d_i| that are not zero
// (equal ones share their mean rank) and sum the ranks of the positive ones. Each
// of the 2^n signs is as likely when there is no difference, so the two-sided p is
// twice the smaller tail of that exact distribution, counted here rank by rank.
// For 1, 2, 3 all positive: 2 / 2^3 = 0.25. With 5 seeds it can never be below
// 0.0625: few seeds, no proof.
//
// Sources  W. S. Gosset ("Student"), Biometrika 6(1), 1908. F. Wilcoxon,
//          Biometrics Bulletin 1(6), 1945. Common random numbers: A. Law,
//          "Simulation Modeling and Analysis", ch. 11.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace kneepoint::sim {

/// More pairs than this are refused: the exact distribution would take minutes.
inline constexpr std::int64_t kMostPairs = 200;

struct PairedTest {
  std::int64_t pairs = 0;
  double mean_a = 0;
  double mean_b = 0;
  double difference = 0;  ///< mean_b - mean_a.
  /// Nothing with one pair, or if all pairs differ by the same amount: then
  /// nothing varied, and there is nothing to test.
  std::optional<double> low;  ///< Of the 95 % interval of `difference`.
  std::optional<double> high;
  std::optional<double> p_t;
  std::optional<double> p_wilcoxon;  ///< Nothing also if all differences are 0.
};

/// Before  as many of `a` as of `b`, one to kMostPairs.
[[nodiscard]] PairedTest paired_test(std::span<const double> a, std::span<const double> b);

/// Two-sided; of the differences that are not 0. Before: at least one is not.
[[nodiscard]] double wilcoxon_p(std::span<const double> differences);

}  // namespace kneepoint::sim
