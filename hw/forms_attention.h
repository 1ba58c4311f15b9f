// Time of attention on one GPU: decode (one new token for each sequence, over
// its whole context) and prefill (many new tokens of a sequence, causal).
//
// Decode reads every key and value once and computes little: it is bound by
// memory, once there is enough of it to fill the pipes; below, by the latency of
// a kernel that walks the context block by block. Few sequences would leave SMs
// idle, so the context is split between them ("flash decoding") and the parts
// are merged.
//
// Prefill computes L (L + 1) / 2 query-key pairs a head, cut into blocks of
// queries (one SM works one block off) and of keys. Early blocks have few keys,
// the last one has all: a short prompt cannot fill the SMs, and the last block
// is the critical path.
//
// Units   microseconds, bytes, tokens (hw/roof.h).
// Floor   4 h d pairs / peak, and bytes / bandwidth (decode: of L2, if warm).
// Source  forms refitted by calibrate/ on measured tables; parameters in hw/rates/.
//         Splitting: T. Dao et al., "Flash-Decoding for long-context inference", 2023.
#pragma once

#include <span>

#include "hw/operator_times.h"
#include "hw/parameter.h"
#include "hw/roof.h"

namespace kneepoint::hw {

struct DecodeAttentionParams {
  double launch_us = 0;
  double bandwidth = 0;
  double overlap = 0;
  double wave_us = 0;
  double token_us = 0;
  double l2_gain = 0;
  double l2_bytes = 0;
  double max_splits = 0;
  double head_us = 0;
  double split_us = 0;
  double ramp_us = 0;
  double ramp_bytes = 0;
  double split_tokens = 0;
  double serial_us = 0;
  double merge_us = 0;
  double group = 0;
  double heads_slow = 0;
  double batch_us = 0;
  double split_ungrouped = 0;  // Chosen, not fitted.
};

struct PrefillAttentionParams {
  double launch_us = 0;
  double bandwidth = 0;
  double overlap = 0;
  double block_start_us = 0;
  double block_us = 0;
  double throttle = 0;
  double throttle_tflop = 0;
  double tail = 0;
  double l2_gain = 0;
  double l2_bytes = 0;
  double kv_weight = 0;
  double wave_rounding = 0;
  double head_us = 0;
  double long_us = 0;
  double alone = 0;
  double small_group = 0;
  double token_us = 0;
  double token_heads = 0;
  // Chosen, not fitted.
  double block_q = 0;
  double block_kv = 0;
  double pack = 0;
};

[[nodiscard]] std::span<const ParameterSpec<DecodeAttentionParams>> decode_attention_parameters();
[[nodiscard]] std::span<const ParameterSpec<PrefillAttentionParams>> prefill_attention_parameters();

[[nodiscard]] double decode_attention_us(const DecodeAttentionShape& shape,
                                         const DecodeAttentionParams& params, const Roof& roof,
                                         CacheState cache);
[[nodiscard]] double decode_attention_floor_us(const DecodeAttentionShape& shape, const Roof& roof,
                                               CacheState cache);

/// The new tokens' queries, keys and values were just written and may be in L2
/// either way; `cache` says where the computed context's keys and values are,
/// and which floor holds.
[[nodiscard]] double prefill_attention_us(const PrefillAttentionShape& shape,
                                          const PrefillAttentionParams& params, const Roof& roof,
                                          CacheState cache);
[[nodiscard]] double prefill_attention_floor_us(const PrefillAttentionShape& shape, const Roof& roof,
                                                CacheState cache);

}  // namespace kneepoint::hw
