// The matrix as a table, as JSON and as CSV.
#pragma once

#include <string>

#include "sim/matrix.h"

namespace kneepoint::sim {

/// A line a cell, ending in a newline. Latencies in milliseconds.
[[nodiscard]] std::string matrix_table(const Matrix& matrix);

/// Run parameters, one server a context with all its flags, and the cells.
[[nodiscard]] std::string matrix_json(const Matrix& matrix);

/// A line a cell, those that were not run included; figures of these are empty.
[[nodiscard]] std::string matrix_csv(const Matrix& matrix);

}  // namespace kneepoint::sim
