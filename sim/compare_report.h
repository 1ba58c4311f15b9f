// A comparison as a table, as JSON and as CSV.
#pragma once

#include <string>

#include "sim/compare.h"

namespace kneepoint::sim {

[[nodiscard]] std::string compare_table(const Comparison& comparison);
[[nodiscard]] std::string compare_json(const Comparison& comparison);
[[nodiscard]] std::string compare_csv(const Comparison& comparison);

}  // namespace kneepoint::sim
