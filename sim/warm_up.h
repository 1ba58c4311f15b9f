// Where a run's warm-up ends: MSER-5.
//
// A run begins with an empty server, so its first requests are served better than
// later ones. Cut the first d values and the rest has the mean y_d; d is best
// where the rest looks most settled, that is where the squared standard error of
// its mean is smallest:
//
//     MSER(d) = sum over i > d of (y_i - y_d)^2 / (n - d)^2
//
// evaluated over means of 5 values each, and over the first half only: a d beyond
// that says that the run is too short or never settles, and nothing is cut then.
//
// On one run the rule likes to cut an early burst and calls the calm after it
// typical. So it is given the mean over all seeds, request by request, in which
// only what they share, the start, is left.
//
// Source  K. P. White, "An effective truncation heuristic for bias reduction in
//         simulation output", Simulation 69(6), 1997; batches of 5: K. P. White,
//         M. J. Cobb, S. C. Spratt, WSC 2000. d <= n / 2: the same.
#pragma once

#include <cstddef>
#include <span>

namespace kneepoint::sim {

/// How many of the first values to cut; a multiple of 5, 0 with fewer than 20 values.
[[nodiscard]] std::size_t warm_up_length(std::span<const double> series);

}  // namespace kneepoint::sim
