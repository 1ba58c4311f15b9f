// Random numbers that are the same everywhere.
//
// One seed for the workload, one named stream for each purpose, so that a new
// purpose does not move the numbers of the others. A stream is a 64-bit Mersenne
// twister of Boost.Random, whose output its authors fixed. The distributions on
// top are ours: Boost's take log() and friends from the C library, which gives
// other last digits on other processors (glibc picks its code by the presence
// of FMA), and then no two machines agree on a trace's bytes.
//
// Sources  Gamma: G. Marsaglia, W. W. Tsang, "A simple method for generating
//          gamma variables", ACM TOMS 26(3), 2000. Normal: the polar method of
//          G. Marsaglia, T. A. Bray, SIAM Review 6(3), 1964. All others by
//          inversion of the distribution function.
#pragma once

#include <boost/random/mersenne_twister.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kneepoint::traces {

/// Seed of the stream `name`: FNV-1a of the name (G. Fowler, L. Noll, K.-P. Vo),
/// mixed with the seed by SplitMix64 (S. Vigna, 2015).
[[nodiscard]] std::uint64_t stream_seed(std::uint64_t seed, std::string_view name);

class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name);

  /// Uniform in [0, 1), a multiple of 2^-53.
  [[nodiscard]] double uniform();
  /// Uniform integer in [low, high], without bias.
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high);
  /// Mean 1.
  [[nodiscard]] double exponential();
  /// Mean 0, standard deviation 1.
  [[nodiscard]] double normal();
  /// Shape > 0, scale 1: mean and variance are `shape`.
  [[nodiscard]] double gamma(double shape);
  /// Shape > 0, scale 1: exp(-x^shape) is the tail.
  [[nodiscard]] double weibull(double shape);
  /// Lomax, the Pareto that begins at 0: tail (1 + x)^-shape.
  [[nodiscard]] double pareto(double shape);

 private:
  boost::random::mt19937_64 engine_;
  std::optional<double> spare_normal_;  // The polar method makes two.
};

}  // namespace kneepoint::traces
