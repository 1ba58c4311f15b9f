#include "traces/exact_math.h"

#include <boost/assert.hpp>
#include <cmath>
#include <limits>

namespace kneepoint::traces {
namespace {

// ln 2 in two parts; the first has 32 bits, so its multiples by an exponent are exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

}  // namespace

double exact_log(double x) {
  BOOST_ASSERT_MSG(x > 0 && x <= std::numeric_limits<double>::max(), "LOG_DOMAIN: not positive and finite");
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // In [1/2, 1); then in [sqrt(1/2), sqrt 2).
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // log m = 2 artanh f = 2 (f + f^3/3 + f^5/5 + ...), |f| <= 0.172: the term in f^23 is below 1e-17 f.
  const double f = (m - 1) / (m + 1);
  const double s = f * f;
  double series = 0;
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * s;
  const double e = exponent;
  return e * kLn2High + (2 * f + (2 * f * series + e * kLn2Low));
}

double exact_exp(double x) {
  if (x < -745.2) return 0;
  if (x > 709.79) return std::numeric_limits<double>::infinity();
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= 0.347: the term r^14/14! is below 1e-17.
  double series = 1;
  for (int n = 13; n >= 1; --n) series = 1 + r / n * series;
  return std::ldexp(series, static_cast<int>(k));
}

double exact_pow(double x, double y) {
  return x == 0 ? 0 : exact_exp(y * exact_log(x));
}

double exact_sin_turns(double x) {
  double t = x - std::floor(x + 0.5);  // In [-1/2, 1/2), then by sin(pi - a) = sin a in [-1/4, 1/4].
  if (t > 0.25) t = 0.5 - t;
  if (t < -0.25) t = -0.5 - t;
  const double a = 6.283185307179586 * t;
  const double s = a * a;
  double series = 1;  // |a| <= pi/2: the term a^23/23! is below 2e-18.
  for (int n = 21; n >= 3; n -= 2) series = 1 - s / (n * (n - 1)) * series;
  return a * series;
}

}  // namespace kneepoint::traces
