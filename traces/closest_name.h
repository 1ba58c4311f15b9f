// The known name that a mistyped one most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kneepoint::traces {

/// "; did you mean X?" for the entry of `known` with the smallest Levenshtein
/// distance to `typed` (first on a tie), or "" if none is closer than half its length.
[[nodiscard]] std::string did_you_mean(std::string_view typed, std::span<const std::string> known);

}  // namespace kneepoint::traces
