// How well rates predict measured operators.
#pragma once

#include <string>
#include <vector>

#include "calibrate/error_summary.h"
#include "calibrate/ops_table.h"
#include "hw/fitted_times.h"

namespace kneepoint::calibrate {

/// One line of the table: rows of one GPU and family that are claimed, or that
/// are not for one reason.
struct OpsAccuracy {
  std::string gpu;
  std::string family;
  std::string reason;  ///< Why these rows are not claimed; "" if they are.
  ErrorSummary errors;
};

/// Predicted microseconds of a row as its benchmark took it: warm.
[[nodiscard]] double predicted_us(const hw::FittedTimes& times, const OperatorRow& row);

/// Claimed rows first, then the others by reason; both by family. `table` holds
/// rows of one GPU, that of `times`.
[[nodiscard]] std::vector<OpsAccuracy> ops_accuracy(const OpsTable& table, const hw::FittedTimes& times);

}  // namespace kneepoint::calibrate
