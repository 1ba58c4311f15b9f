// Means of a few independent values with Student's interval.
#pragma once

#include <span>

#include "sim/knee.h"

namespace kneepoint::sim {

/// Two-sided 95 % quantile of Student's t; one degree of freedom or more.
[[nodiscard]] double student_t_95(std::size_t degrees_of_freedom);

/// Mean with t s / sqrt(n); half-width 0 for one value. Before  not empty.
[[nodiscard]] Estimate mean_with_interval(std::span<const double> values);

}  // namespace kneepoint::sim
