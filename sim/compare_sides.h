// Reading what `simulate compare` compares.
#pragma once

#include <string>

#include "sim/compare.h"

namespace kneepoint::sim {

/// Reads a side; a run config is recognised and not run: `results` stays empty.
/// Throws UsageError for anything else.
[[nodiscard]] CompareSide read_side(const std::string& path);

/// Takes what a result.json says of configuration and trace into `side`.
void add_result(CompareSide& side, const std::string& where, const std::string& text);

}  // namespace kneepoint::sim
