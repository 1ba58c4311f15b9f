// `simulate study`: many runs from one file, resumable, on many machines.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "sim/study_cluster.h"

namespace kneepoint::sim {

/// Runs, merges or verifies. `make` is asked for the ranks once points are to be
/// run. Exit status; wrong input throws.
[[nodiscard]] int run_study(std::span<const std::string> arguments, std::unique_ptr<Cluster> (*make)());

}  // namespace kneepoint::sim
