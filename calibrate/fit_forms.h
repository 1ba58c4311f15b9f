// Fits the operator forms of hw/ to measured operators: rows in, rates out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/ops_table.h"
#include "hw/gpu_spec.h"
#include "hw/rates.h"

namespace kneepoint::calibrate {

struct FitOptions {
  int num_starts = 3;
  /// If given, families with too few rows are left out and named here, one line
  /// each; else they are an error.
  std::vector<std::string>* left_out = nullptr;
  std::function<void()> on_family = nullptr;  ///< Told when a family is fitted.
};

/// Rates of one GPU from its rows. Throws CalibrateError if a family has too few rows.
[[nodiscard]] hw::Rates fit_rates(const hw::GpuSpec& gpu, const OpsTable& table, const std::string& source,
                                  const FitOptions& options = {});

}  // namespace kneepoint::calibrate
