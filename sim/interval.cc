#include "sim/interval.h"

#include <algorithm>
#include <array>
#include <boost/assert.hpp>
#include <cmath>

namespace kneepoint::sim {

double student_t_95(std::size_t degrees_of_freedom) {
  BOOST_ASSERT(degrees_of_freedom > 0);
  // Any table of Student's t, column 0.975.
  constexpr std::array kTable{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                              2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                              2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  // Beyond, the first terms of the Cornish-Fisher expansion at 1.95996: within 0.001.
  constexpr double z = 1.959964;
  const auto n = static_cast<double>(degrees_of_freedom);
  return degrees_of_freedom <= kTable.size() ? kTable[degrees_of_freedom - 1] : z + (z * z * z + z) / (4 * n);
}

Estimate mean_with_interval(std::span<const double> values) {
  BOOST_ASSERT(!values.empty());
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) {
    mean += value / n;
  }
  if (values.size() == 1) {
    return {mean, 0};
  }
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  return {mean, student_t_95(values.size() - 1) * std::sqrt(squares / (n - 1) / n)};
}

}  // namespace kneepoint::sim
