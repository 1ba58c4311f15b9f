// `simulate matrix`: the standard benchmark, concurrencies by contexts.
#pragma once

#include <span>
#include <string>

namespace kneepoint::sim {

/// Runs the cells that fit, prints the table, writes matrix.json and matrix.csv
/// into --out. Exit status; wrong input throws.
[[nodiscard]] int run_matrix_command(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
