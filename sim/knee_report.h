// The answer of a knee search as people read it, as knee.json and as points.csv.
#pragma once

#include <string>

#include "sim/knee.h"

namespace kneepoint::sim {

/// The table, ending in a newline.
[[nodiscard]] std::string knee_table(const KneeResult& result);

/// All of `result`, a key a line, ending in a newline.
[[nodiscard]] std::string knee_json(const KneeResult& result);

/// A line per load with a header; empty fields where a point has no such figure.
[[nodiscard]] std::string points_csv(const KneeResult& result);

}  // namespace kneepoint::sim
