// Knots whose distance grows with the value: exact below 2^(bits + 1), then
// 2^bits to an octave, as the mantissas of short floating-point numbers. Found by
// a shift; neighbours are at most 2^-bits apart.
//
//     bits = 2:  0 1 2 3 4 5 6 7 | 8 10 12 14 | 16 20 24 28 | 32 40 ...
#pragma once

#include <bit>
#include <cstdint>

namespace kneepoint::hw {

struct LatticeCell {
  std::int64_t index = 0;
  std::int64_t begin = 0;
  std::int64_t width = 1;  ///< The cell is [begin, begin + width).
};

/// The cell of `value` >= 0.
[[nodiscard]] constexpr LatticeCell lattice_cell(std::int64_t value, int bits) {
  const auto bits_used = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(value)));
  const int shift = bits_used > bits + 1 ? bits_used - bits - 1 : 0;
  const std::int64_t mantissa = value >> shift;
  return {.index = (std::int64_t{shift} << bits) + mantissa,
          .begin = mantissa << shift,
          .width = std::int64_t{1} << shift};
}

}  // namespace kneepoint::hw
