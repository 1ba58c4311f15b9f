// What the fuzzers and the replay of their corpora have in common: two targets,
// each a function of some bytes that returns, or stops the process where
// something is wrong.
#pragma once

#include <cstdint>
#include <span>

namespace kneepoint::fuzz {

/// A file for one of the readers: which one says the first byte (parsers.cc). Anything is allowed to happen but
/// a crash, more than one line of error, an error of a kind that main() does not expect, or much memory.
void fuzz_parsers(std::span<const std::uint8_t> bytes);

/// Dice for a random server and workload: the engine must decide as the obvious model does, then a whole
/// simulation must keep every invariant.
void fuzz_engine(std::span<const std::uint8_t> bytes);

}  // namespace kneepoint::fuzz
