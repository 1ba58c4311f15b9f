// Fits the operator forms of hw/ to measured operators: rows in, rates out.
#pragma once

#include <string>

#include "calibrate/ops_table.h"
#include <functional>

#include "hw/gpu_spec.h"
#include "hw/rates.h"

namespace kneepoint::calibrate {

struct FitOptions {
  int num_starts = 3;
  std::function<void()> on_family = nullptr;  ///< Told when a family is fitted.
};

/// Rates of one GPU from its rows. Throws CalibrateError if a family has too few rows.
[[nodiscard]] hw::Rates fit_rates(const hw::GpuSpec& gpu, const OpsTable& table, const std::string& source,
                                  const FitOptions& options = {});

}  // namespace kneepoint::calibrate
