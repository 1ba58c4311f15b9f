#include "traces/random_stream.h"

#include <boost/assert.hpp>
#include <cmath>

#include "traces/exact_math.h"

namespace kneepoint::traces {

std::uint64_t stream_seed(std::uint64_t seed, std::string_view name) {
  std::uint64_t x = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    x = (x ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  x += seed + 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view name) : engine_(stream_seed(seed, name)) {}

double RandomStream::uniform() {
  return static_cast<double>(engine_() >> 11) * 0x1p-53;
}

std::int64_t RandomStream::integer(std::int64_t low, std::int64_t high) {
  BOOST_ASSERT_MSG(low <= high, "UNIFORM_RANGE: low above high");
  const std::uint64_t width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  if (width == 0) return static_cast<std::int64_t>(engine_());
  // The 2^64 mod width smallest numbers would favour some residues: draw again.
  const std::uint64_t reject_below = (0 - width) % width;
  std::uint64_t bits = engine_();
  while (bits < reject_below) bits = engine_();
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + bits % width);
}

double RandomStream::exponential() {
  return -exact_log(1 - uniform());
}

double RandomStream::normal() {
  if (spare_normal_) {
    const double spare = *spare_normal_;
    spare_normal_.reset();
    return spare;
  }
  double x = 0, y = 0, square = 0;
  do {
    x = 2 * uniform() - 1;
    y = 2 * uniform() - 1;
    square = x * x + y * y;
  } while (square >= 1 || square == 0);
  const double factor = std::sqrt(-2 * exact_log(square) / square);
  spare_normal_ = y * factor;
  return x * factor;
}

double RandomStream::gamma(double shape) {
  BOOST_ASSERT_MSG(shape > 0, "GAMMA_SHAPE: not positive");
  if (shape < 1) {
    // If G has shape + 1 and U is uniform, G U^(1/shape) has `shape` (section 6 there).
    const double u = 1 - uniform();
    return gamma(shape + 1) * exact_exp(exact_log(u) / shape);
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = 1 - uniform();
    if (exact_log(u) < 0.5 * x * x + d - d * v + d * exact_log(v)) return d * v;
  }
}

double RandomStream::weibull(double shape) {
  return exact_pow(exponential(), 1 / shape);
}

double RandomStream::pareto(double shape) {
  return exact_exp(exponential() / shape) - 1;
}

}  // namespace kneepoint::traces
