// The curve as reports show it: each column of a sweep as a mean over its seeds.
#pragma once

#include <vector>

#include "sim/knee.h"
#include "sim/knee_sweep.h"

namespace kneepoint::sim {

/// By load. Runs each settled load once more, a percent higher, for its elasticity, if asked to.
[[nodiscard]] std::vector<LoadPoint> make_points(KneeLab& lab, Sweep& sweep, const SearchOptions& options,
                                                 const Knee& saturation);

}  // namespace kneepoint::sim
