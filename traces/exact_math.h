// log, exp, sine and what follows from them, from additions, multiplications and divisions alone.
//
// IEEE 754 fixes the last bit of + - * / and sqrt, not of log(): libraries
// differ, and one library differs between processors. A trace's bytes may not,
// so what is drawn goes through these. They are good to about 2 units in the
// last place, far below what any statistic sees; tests/traces/exact_math_test.cc
// holds them against the C library's.
#pragma once

namespace kneepoint::traces {

/// Natural logarithm of x > 0, finite.
[[nodiscard]] double exact_log(double x);
/// e^x; 0 below -745, infinity above 709.78.
[[nodiscard]] double exact_exp(double x);
/// x^y for x >= 0, by exp(y log x); 0^y is 0.
[[nodiscard]] double exact_pow(double x, double y);
/// sin(2 pi x): x counts whole turns.
[[nodiscard]] double exact_sin_turns(double x);

/// log Gamma(x) for x >= 1.
[[nodiscard]] double exact_log_gamma(double x);
/// Distribution function of the standard normal, to about 1e-15 absolutely.
[[nodiscard]] double exact_normal_cdf(double x);
/// Its inverse for p in (0, 1).
[[nodiscard]] double exact_normal_quantile(double p);

}  // namespace kneepoint::traces
