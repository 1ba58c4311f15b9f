// Named random streams: one seed for the run, one stream for each purpose, so
// that a new purpose does not move the numbers of the others.
#pragma once

#include <cstdint>
#include <string_view>

namespace kneepoint::sim {

/// Seed of the stream `name` of the run `seed`: FNV-1a of the name (G. Fowler,
/// L. Noll, K.-P. Vo), mixed with the seed by SplitMix64 (S. Vigna, 2015).
[[nodiscard]] constexpr std::uint64_t stream_seed(std::uint64_t seed, std::string_view name) {
  std::uint64_t x = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    x = (x ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  x += seed + 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace kneepoint::sim
