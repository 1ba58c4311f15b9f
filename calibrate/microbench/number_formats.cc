#include "calibrate/microbench/number_formats.h"

#include <algorithm>
#include <cmath>

namespace kneepoint::microbench {

namespace {
int bias_of(const NumberFormat& format) {
  return (1 << (format.exponent_bits - 1)) - 1;
}
}  // namespace

std::uint16_t encode(double value, const NumberFormat& format) {
  const int sign = std::signbit(value) ? 1 << (format.exponent_bits + format.mantissa_bits) : 0;
  const double size = std::min(std::abs(value), format.largest);
  const int least = 1 - bias_of(format);
  const int exponent = size > 0 ? std::max(std::ilogb(size), least) : least;
  // In units of the last place: below 2^mantissa_bits the number is subnormal. Rounding up
  // to the next power of two carries into the exponent by itself.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, format.mantissa_bits - exponent)));
  const int bits = units + ((exponent - least) << format.mantissa_bits);
  return static_cast<std::uint16_t>(sign + bits);
}

double decode(std::uint16_t bits, const NumberFormat& format) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const bool negative = ((bits >> (format.mantissa_bits + format.exponent_bits)) & 1) != 0;
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << format.mantissa_bits);
  const double size = std::ldexp(whole, std::max(exponent, 1) - bias_of(format) - format.mantissa_bits);
  return negative ? -size : size;
}

}  // namespace kneepoint::microbench
