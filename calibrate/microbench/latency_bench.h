// What it costs to start something on the GPU.
#pragma once

#include "calibrate/microbench/cuda_bench.h"

namespace kneepoint::microbench {

[[nodiscard]] Timing measure_latency(CudaBench& bench, const LatencyShape& shape,
                                     const TimingOptions& options);

}  // namespace kneepoint::microbench
