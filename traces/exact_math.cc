#include "traces/exact_math.h"

#include <array>
#include <boost/assert.hpp>
#include <cmath>
#include <limits>

namespace kneepoint::traces {
namespace {

// ln 2 in two parts; the first has 32 bits, so its multiples by an exponent are exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// Horner's rule; the constant term comes first.
template <std::size_t N>
double polynomial(const std::array<double, N>& coefficients, double x) {
  double value = 0;
  for (std::size_t i = N; i-- > 0;) value = value * x + coefficients[i];
  return value;
}

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

double exact_log_gamma(double x) {
  BOOST_ASSERT_MSG(x >= 1, "LOG_GAMMA_DOMAIN: below 1");
  // Stirling's series wants a large argument: Gamma(x) = Gamma(x + n) / (x (x+1) ... (x+n-1)).
  double product = 1;
  for (; x < 12; x += 1) product *= x;
  const double r = 1 / (x * x);
  const double series = (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 - r * (1.0 / 1680 - r / 1188)))) / x;
  constexpr double kHalfLog2Pi = 0.91893853320467274;
  return (x - 0.5) * exact_log(x) - x + kHalfLog2Pi + series - exact_log(product);
}

// G. Marsaglia, "Evaluating the normal distribution", J. Stat. Software 11(4), 2004:
// cdf(x) = 1/2 + density(x) (x + x^3/3 + x^5/(3 5) + ...).
double exact_normal_cdf(double x) {
  if (x < -8.3) return 0;
  if (x > 8.3) return 1;
  double sum = x, term = x;
  for (int n = 3; sum + term != sum && n < 400; n += 2) {
    term *= x * x / n;
    sum += term;
  }
  return 0.5 + sum * exact_exp(-0.5 * x * x - 0.91893853320467274);
}

// M. J. Wichura, "Algorithm AS 241", Applied Statistics 37(3), 1988 (PPND16).
double exact_normal_quantile(double p) {
  BOOST_ASSERT_MSG(p > 0 && p < 1, "QUANTILE_DOMAIN: outside (0, 1)");
  constexpr std::array kA{3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                          1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                          3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr std::array kB{1.0,
                          4.2313330701600911252e1,
                          6.8718700749205790830e2,
                          5.3941960214247511077e3,
                          2.1213794301586595867e4,
                          3.9307895800092710610e4,
                          2.8729085735721942674e4,
                          5.2264952788528545610e3};
  constexpr std::array kC{1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                          3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                          2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr std::array kD{1.0,
                          2.05319162663775882187e0,
                          1.67638483018380384940e0,
                          6.89767334985100004550e-1,
                          1.48103976427480074590e-1,
                          1.51986665636164571966e-2,
                          5.47593808499534494600e-4,
                          1.05075007164441684324e-9};
  constexpr std::array kE{6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                          2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                          2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr std::array kF{1.0,
                          5.99832206555887937690e-1,
                          1.36929880922735805310e-1,
                          1.48753612908506148525e-2,
                          7.86869131145613259100e-4,
                          1.84631831751005468180e-5,
                          1.42151175831644588870e-7,
                          2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  const double r = std::sqrt(-exact_log(q < 0 ? p : 1 - p));
  const double tail = r <= 5 ? polynomial(kC, r - 1.6) / polynomial(kD, r - 1.6)
                             : polynomial(kE, r - 5) / polynomial(kF, r - 5);
  return q < 0 ? -tail : tail;
}

}  // namespace kneepoint::traces
