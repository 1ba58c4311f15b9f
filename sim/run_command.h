// `simulate --trace FILE.pb [...]`: run, report, write.
#pragma once

#include <span>
#include <string>

namespace kneepoint::sim {

/// Exit status of a run that a limit stopped: its results are partial.
inline constexpr int kExitPartial = 3;

/// Exit status. Wrong input throws one line; nothing is half-written then.
[[nodiscard]] int run_simulation(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
