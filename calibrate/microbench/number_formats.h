// bf16, f16 and e4m3 on the CPU: bits to numbers and back, rounded to nearest even.
// What the kernels do with instructions is checked against this plain version.
#pragma once

#include <cstdint>

namespace kneepoint::microbench {

/// Sign, exponent, mantissa, from the top; subnormals; no infinities needed.
struct NumberFormat {
  int exponent_bits;
  int mantissa_bits;
  double largest;  ///< Larger numbers become it.
};

constexpr NumberFormat kBf16Format{8, 7, 3.3895313892515355e38};
constexpr NumberFormat kF16Format{5, 10, 65504};
constexpr NumberFormat kE4m3Format{4, 3, 448};

[[nodiscard]] std::uint16_t encode(double value, const NumberFormat& format);
[[nodiscard]] double decode(std::uint16_t bits, const NumberFormat& format);

}  // namespace kneepoint::microbench
