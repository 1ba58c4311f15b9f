// A workload's rate over time as a picture (SVG 1.1), bursts marked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "traces/statistics.h"

namespace kneepoint::traces {

/// Bars of `windows`, those of `marked` in another colour, with axes in requests/s and seconds.
[[nodiscard]] std::string rate_plot(std::string_view title, const RateWindows& windows,
                                    const std::vector<Burst>& marked);

}  // namespace kneepoint::traces
