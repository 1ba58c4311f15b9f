// What one GPU can give at most, in the units of the operator forms.
//
// The forms (hw/forms_*.h) are written in microseconds, bytes and tokens, the
// units in which operators are measured: a GEMM takes 20 us, not 2e-5 s. The
// door to the rest of hw/ (hw/operator_times.h) speaks seconds; hw/fitted_times.cc
// converts once.
#pragma once

#include "hw/gpu_spec.h"

namespace kneepoint::hw {

struct Roof {
  double bytes_per_us = 0;     ///< Device memory, nominal.
  double l2_bytes_per_us = 0;  ///< L2, nominal: the floor of anything that stays there.
  double bf16_flops_per_us = 0;
  double fp8_flops_per_us = 0;
  double num_sms = 0;
};

[[nodiscard]] Roof roof_of(const GpuSpec& gpu);

/// Two things that the GPU does at once take the longer of both, or a little
/// more where they get into each other's way:
///
///     smooth_max(a, b, p) = (a^p + b^p)^(1/p)      p >= 1
///
/// p = 1 adds (no overlap at all), p -> infinity is max(a, b). Never below
/// either, and growing in both. a, b >= 0.
[[nodiscard]] double smooth_max(double a, double b, double p);

/// Share of reads that L2 serves when `bytes` are read again and again: 1 well
/// below `capacity_bytes`, 0 well above, one half at it.
///
///     1 / (1 + (bytes / capacity)^sharpness)
[[nodiscard]] double l2_share(double bytes, double capacity_bytes, double sharpness);

}  // namespace kneepoint::hw
