// The elbow of a rising curve: Kneedle.
//
// Stretch the curve to the unit square. A straight line would follow the diagonal;
// a curve that is flat first and steep later hangs below it, lowest under it at the
// elbow:
//
//     elbow = the x of the largest x' - y'
//
// Between the points the curve is a monotone cubic (no bump that the points do not
// have), so the elbow need not be one of them.
//
// A curve that hangs less than kLeastDepth below the diagonal has no elbow.
//
// Sources  V. Satopää, J. Albrecht, D. Irwin, B. Raghavan, "Finding a 'kneedle' in a
//          haystack", ICDCS workshops, 2011. Cubic: F. Fritsch, J. Butland, "A
//          method for constructing local monotone piecewise cubic interpolants",
//          SIAM J. Sci. Stat. Comput. 5(2), 1984.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace kneepoint::sim {

inline constexpr double kLeastDepth = 0.1;

struct CurvePoint {
  double x = 0;
  double y = 0;
};

/// Slope of the monotone cubic at each point. Before  two points or more, x strictly rising.
[[nodiscard]] std::vector<double> monotone_slopes(std::span<const CurvePoint> curve);

/// Where the curve turns up; nothing for fewer than 4 points or a curve without an
/// elbow. Before  x strictly rising.
[[nodiscard]] std::optional<double> find_elbow(std::span<const CurvePoint> curve);

}  // namespace kneepoint::sim
