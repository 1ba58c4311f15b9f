// The known name that a mistyped one most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kneepoint::hw {

/// The entry of `known` with the smallest edit distance to `typed` (upper and
/// lower case alike; first on a tie), or "" if none is closer than half its
/// length.
[[nodiscard]] std::string closest_name(std::string_view typed, std::span<const std::string> known);

}  // namespace kneepoint::hw
