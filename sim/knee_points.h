// The curve as reports show it: each column of a sweep as a mean over its seeds.
#pragma once

#include <vector>

#include "sim/knee.h"
#include "sim/knee_sweep.h"

namespace kneepoint::sim {

/// By load.
[[nodiscard]] std::vector<LoadPoint> make_points(const KneeLab& lab, const Sweep& sweep,
                                                 const SearchOptions& options, const Knee& saturation);

}  // namespace kneepoint::sim
