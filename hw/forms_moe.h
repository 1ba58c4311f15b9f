// Time of the fused expert call on one GPU: gate, up and down of the experts
// that the router chose.
//
// With few tokens the time is the reading of weights, and what counts is how
// many different experts are touched: 8 tokens that choose 8 of 128 experts make
// 64 choices, but as routers have favourites only 40 to 50 experts are read. With
// many tokens it is arithmetic in tiles of a few tokens of one expert: an expert
// with one token pays for a whole tile.
//
//     a token chooses expert e with probability q_e; the sum of all q_e is top_k
//     expert e is read with probability 1 - (1 - q_e)^tokens
//
// Units   microseconds, bytes, FLOP (hw/roof.h).
// Floor   6 H I A / EP / peak with A = tokens * top_k, and the bytes of the
//         experts surely read (top_k of them, or this rank's share) / bandwidth.
// Source  forms refitted by calibrate/ on measured tables; parameters in hw/rates/.
#pragma once

#include <span>

#include "hw/operator_times.h"
#include "hw/parameter.h"
#include "hw/roof.h"

namespace kneepoint::hw {

struct MoeParams {
  double launch_us = 0;
  double bandwidth = 0;
  double overlap = 0;
  double peak = 0;
  double tile_loss = 0;
  double throttle = 0;
  double throttle_tflop = 0;
  double activations = 0;
  double l2_bytes = 0;
  double l2_gain = 0;
  double size_us = 0;
  double expert_us = 0;
  double skew = 0;
  double spare_tiles = 0;
  double ragged = 0;
  double ragged_rows = 0;
  // Chosen, not fitted.
  double l2_sharpness = 0;
};

[[nodiscard]] std::span<const ParameterSpec<MoeParams>> moe_parameters();

/// Microseconds of the expert call. `weight_bytes` is the size of one weight:
/// 2 bf16, 1 fp8, about 0.5 INT4.
[[nodiscard]] double moe_us(const MoeShape& shape, double weight_bytes, const MoeParams& params,
                            const Roof& roof, CacheState cache);
[[nodiscard]] double moe_floor_us(const MoeShape& shape, double weight_bytes, const Roof& roof,
                                  CacheState cache);

}  // namespace kneepoint::hw
