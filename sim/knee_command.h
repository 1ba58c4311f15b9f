// `simulate knee`: where the latency of a set-up breaks.
#pragma once

#include <span>
#include <string>

namespace kneepoint::sim {

/// Exit status. Wrong input throws one line; nothing is half-written then.
[[nodiscard]] int run_knee(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
