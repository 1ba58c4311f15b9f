// `simulate --reproduce result.json --trace FILE.pb`: does the same come out again?
//
// result.json holds the resolved configuration and the SHA-256 of every input.
// The inputs are checked first: other inputs explain another result, and are
// refused. Then the run is repeated and its result.json compared key by key, all
// but `provenance`: the reason for every value is now that it was recorded.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace kneepoint::sim {

/// The first key in which two results differ, with both values ("p99_ttft_ms: recorded 3.1, now 3.2"), in the
/// order of `recorded`; a key that only one has differs. Nothing if all are equal. Throws UsageError if a text is
/// no result, naming `name`.
[[nodiscard]] std::optional<std::string> first_difference(const std::string& name, const std::string& recorded,
                                                          const std::string& now);

/// Whether the arguments ask for it.
[[nodiscard]] bool asks_to_reproduce(std::span<const std::string> arguments);

/// Exit status: 0 reproduced, 1 not. Wrong input throws.
[[nodiscard]] int run_reproduce(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
