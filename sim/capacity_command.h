// `simulate capacity`: what limits concurrency, computed and not simulated.
#pragma once

#include <span>
#include <string>

namespace kneepoint::sim {

/// Prints the scenario matrix and the memory table of hw/capacity.h: the two
/// worked examples, or one model on one GPU. Exit status; wrong input throws.
[[nodiscard]] int run_capacity(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
