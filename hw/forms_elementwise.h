// Time of an operator that only moves memory: norms, activations, rope and KV
// write, embedding, sampler.
//
//     time = launch + bytes / bandwidth
//
// Inside a CUDA graph a kernel's start and end still take about 1.5 us; for the
// small tensors of a decode step that is all there is.
//
// Units   microseconds, bytes (hw/roof.h).
// Floor   bytes / nominal bandwidth.
#pragma once

#include <span>

#include "hw/parameter.h"
#include "hw/roof.h"

namespace kneepoint::hw {

struct ElementwiseParams {
  double launch_us = 0;
  double bandwidth = 0;
};

[[nodiscard]] std::span<const ParameterSpec<ElementwiseParams>> elementwise_parameters();

[[nodiscard]] double elementwise_us(double bytes, const ElementwiseParams& params, const Roof& roof);

}  // namespace kneepoint::hw
