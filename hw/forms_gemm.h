// Time of a matrix product on one GPU: Y[m, n] = X[m, k] W[k, n].
//
// Three things bound it. Memory: the weights, read once, and the activations.
// Arithmetic, quantised: the output is cut into tiles, one SM computes a tile at
// a time, and 133 tiles on 132 SMs take as long as 264 ("waves"). Where the tiles are
// too few to fill the SMs, bf16 kernels split k among several SMs and add the
// parts up ("split-K"). Power: a large product makes the GPU lower its clock.
//
//     time = launch + smooth_max(memory, arithmetic)
//
// FP8 kernels in vLLM are chosen by m alone, do not split k, and need their
// activations quantised first, by a kernel of its own ("dynamic scales"). So
// their time steps up at m = 17, 65 and 129, and for small weights it is a serial
// walk along k, not a matter of bandwidth.
//
// Units   microseconds, bytes, FLOP (hw/roof.h).
// Floor   2 m n k / peak, and bytes / bandwidth (of L2, if warm), whatever the parameters.
// Source  forms refitted by calibrate/ on measured tables; parameters in hw/rates/.
#pragma once

#include <span>

#include "hw/operator_times.h"
#include "hw/parameter.h"
#include "hw/roof.h"

namespace kneepoint::hw {

struct GemmBf16Params {
  double launch_us = 0;
  double bandwidth = 0;
  double overlap = 0;
  double peak = 0;
  double small_tile = 0;
  double split_us = 0;
  double reduction = 0;
  double throttle = 0;
  double throttle_outputs = 0;
  double staging = 0;
  double l2_bytes = 0;
  double l2_gain = 0;
};

struct GemmFp8Params {
  double launch_us = 0;
  double quant_launch_us = 0;
  double bandwidth = 0;
  double overlap = 0;
  double k64_ns = 0;
  double k128_ns = 0;
  double k256_ns = 0;
  double memory17 = 0;
  double step65_us = 0;
  double step129_us = 0;
  double wave = 0;
  double wave_us = 0;
  double throttle = 0;
  double throttle_size = 0;
  double quant_bandwidth = 0;
  double quant_token_ns = 0;
  double l2_bytes = 0;
  double l2_gain = 0;
  // Chosen, not fitted: which tiles the kernels have.
  double tile_n64 = 0;
  double tile_m128 = 0;
  double tile_n128 = 0;
};

[[nodiscard]] std::span<const ParameterSpec<GemmBf16Params>> gemm_bf16_parameters();
[[nodiscard]] std::span<const ParameterSpec<GemmFp8Params>> gemm_fp8_parameters();

/// Microseconds of a bf16 product. `weight_bytes` is the size of one weight: 2,
/// or less where weights are stored smaller and widened on the way (INT4).
[[nodiscard]] double gemm_bf16_us(const GemmShape& shape, double weight_bytes, const GemmBf16Params& params,
                                  const Roof& roof, CacheState cache, double sustained = 1);

/// Microseconds of an fp8 product with the quantisation of its activations;
/// without it if `shape.static_scales`. `sustained` is the share of the peak that lasts (InServer), as above.
[[nodiscard]] double gemm_fp8_us(const GemmShape& shape, const GemmFp8Params& params, const Roof& roof,
                                 CacheState cache, double sustained = 1);

/// What no GPU can undercut.
[[nodiscard]] double gemm_floor_us(const GemmShape& shape, double weight_bytes, const Roof& roof,
                                   CacheState cache);

}  // namespace kneepoint::hw
