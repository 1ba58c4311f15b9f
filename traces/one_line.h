// An error as one line that a terminal shows as it is.
#pragma once

#include <string>
#include <string_view>

namespace kneepoint::traces {

/// Errors quote what they found, and a file may hold anything: control characters (line breaks, a terminal's
/// escapes) come out as '?', and what is longer than 1,000 bytes is cut. For main(), where errors end.
[[nodiscard]] std::string one_line(std::string_view text);

}  // namespace kneepoint::traces
