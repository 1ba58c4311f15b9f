#include "hw/roof.h"

#include <cmath>

namespace kneepoint::hw {

namespace {
constexpr double kSecondsPerMicrosecond = 1e-6;
}

Roof roof_of(const GpuSpec& gpu) {
  return {.bytes_per_us = gpu.bandwidth_bytes_per_s * kSecondsPerMicrosecond,
          .l2_bytes_per_us = gpu.l2_bandwidth_bytes_per_s * kSecondsPerMicrosecond,
          .bf16_flops_per_us = gpu.bf16_flops_per_s * kSecondsPerMicrosecond,
          .fp8_flops_per_us = gpu.fp8_flops_per_s * kSecondsPerMicrosecond,
          .num_sms = static_cast<double>(gpu.num_sms)};
}

double smooth_max(double a, double b, double p) {
  // Scaled by the larger one: powers of the ratio neither overflow nor vanish.
  const double large = a > b ? a : b;
  const double small = a > b ? b : a;
  if (!(small > 0)) return large;
  return large * std::exp(std::log1p(std::pow(small / large, p)) / p);
}

double l2_share(double bytes, double capacity_bytes, double sharpness) {
  return 1 / (1 + std::pow(bytes / capacity_bytes, sharpness));
}

}  // namespace kneepoint::hw
