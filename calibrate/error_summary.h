// Errors of predictions, put together: median and tail of their size, and which way they lean.
#pragma once

#include <cstdint>
#include <vector>

namespace kneepoint::calibrate {

/// Shares of the measured value: 0.05 is 5 %.
struct ErrorSummary {
  std::int64_t count = 0;
  double median = 0;  ///< Of |error|.
  double p90 = 0;     ///< The same.
  double worst = 0;   ///< The same.
  double bias = 0;    ///< Median of the signed error.
};

/// `errors` are predicted / measured - 1. A quantile of n values is the
/// ceil(q n)-th smallest one; of an even number, the median is the lower middle.
[[nodiscard]] ErrorSummary summarise(std::vector<double> errors);

}  // namespace kneepoint::calibrate
