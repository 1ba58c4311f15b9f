// `simulate compare`: two results or two configurations, paired by seed.
#pragma once

#include <span>
#include <string>

namespace kneepoint::sim {

/// Exit status; wrong input throws.
[[nodiscard]] int run_compare(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
