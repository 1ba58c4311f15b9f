// `simulate --trace FILE.pb [...]`: run, report, write.
#pragma once

#include <span>
#include <string>

namespace kneepoint::sim {

/// Exit status. Wrong input throws one line; nothing is half-written then.
[[nodiscard]] int run_simulation(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
