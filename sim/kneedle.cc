#include "sim/kneedle.h"

#include <boost/assert.hpp>
#include <cstddef>

namespace kneepoint::sim {
namespace {

constexpr std::size_t kFewestPoints = 4;
constexpr int kStepsBetweenPoints = 64;

// Hermite's cubic between points i and i + 1, at share t of the way.
double value_between(std::span<const CurvePoint> curve, const std::vector<double>& slopes, std::size_t i,
                     double t) {
  const double h = curve[i + 1].x - curve[i].x;
  const double u = 1 - t;
  return curve[i].y * (1 + 2 * t) * u * u + curve[i + 1].y * (1 + 2 * u) * t * t +
         h * (slopes[i] * t * u * u - slopes[i + 1] * t * t * u);
}

}  // namespace

// Slopes of the monotone cubic: 0 at a turn, else the weighted harmonic mean of
// the chords on both sides; at the ends the chord itself.
std::vector<double> monotone_slopes(std::span<const CurvePoint> curve) {
  const auto chord = [&](std::size_t i) {
    return (curve[i + 1].y - curve[i].y) / (curve[i + 1].x - curve[i].x);
  };
  std::vector<double> slopes(curve.size());
  slopes.front() = chord(0);
  slopes.back() = chord(curve.size() - 2);
  for (std::size_t i = 1; i + 1 < curve.size(); ++i) {
    const double before = chord(i - 1);
    const double after = chord(i);
    const double h_before = curve[i].x - curve[i - 1].x;
    const double h_after = curve[i + 1].x - curve[i].x;
    const double share = (h_before + 2 * h_after) / (3 * (h_before + h_after));
    slopes[i] = before * after > 0 ? before * after / (share * after + (1 - share) * before) : 0;
  }
  return slopes;
}

std::optional<double> find_elbow(std::span<const CurvePoint> curve) {
  if (curve.size() < kFewestPoints || !(curve.back().y > curve.front().y)) {
    return std::nullopt;
  }
  const std::vector<double> slopes = monotone_slopes(curve);
  const double width = curve.back().x - curve.front().x;
  const double height = curve.back().y - curve.front().y;
  double deepest = kLeastDepth;
  std::optional<double> elbow;
  for (std::size_t i = 0; i + 1 < curve.size(); ++i) {
    BOOST_ASSERT(curve[i + 1].x > curve[i].x);
    for (int step = 0; step <= kStepsBetweenPoints; ++step) {
      const double t = static_cast<double>(step) / kStepsBetweenPoints;
      const double x = curve[i].x + t * (curve[i + 1].x - curve[i].x);
      const double depth =
          (x - curve.front().x) / width - (value_between(curve, slopes, i, t) - curve.front().y) / height;
      if (depth > deepest) {
        deepest = depth;
        elbow = x;
      }
    }
  }
  return elbow;
}

}  // namespace kneepoint::sim
