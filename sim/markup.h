// Text on its way into HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace kneepoint::sim {

/// Safe between tags and inside quoted attributes: a model named "<script>" is
/// shown, not run. What is no UTF-8, and control characters, which no markup
/// may contain, become U+FFFD each.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace kneepoint::sim
