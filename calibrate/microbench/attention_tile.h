// What one warp does in both attention kernels: 16 rows of queries (tokens in
// prefill, the heads that share a KV head in decode) against a tile of keys and
// values in shared memory, with the softmax kept online.
//
//     S = Q K^T        m16n8k16, keys by ldmatrix
//     m' = max(m, S)   P = 2^(S - m')   l' = l 2^(m - m') + sum P   O' = O 2^(m - m') + P V
//
// Rows in shared memory are 128 numbers, 256 bytes bf16 or 128 bytes e4m3. Their
// 16-byte chunks are swapped about by XOR with the row's number, so that the
// eight rows of a matrix lie in different banks.
//
// e4m3 keys and values become f16 in registers (gpu_primitives.h). A matrix of
// 16-bit words holds 16 of them a row, and after widening a lane has dimensions 4t,
// 4t + 2 in one register and 4t + 1, 4t + 3 in the other: the order in which
// `dimension_of_slot` lays out the queries, and `dimension_of_output` reads the result.
//
// Source  T. Dao, "FlashAttention-2", 2023 (online softmax, registers); layouts as in gpu_primitives.h.
#pragma once

#include <cstdint>

#include "calibrate/microbench/gpu_primitives.h"

namespace kneepoint::microbench {

constexpr int kHeadSize = 128;
constexpr int kTileRows = 16;
constexpr int kChunkBytes = 16;
constexpr int kDimSteps = kHeadSize / 16;    // k16 steps of Q K^T.
constexpr int kOutputTiles = kHeadSize / 8;  // n8 tiles of the output.

struct Bf16Kv {
  static constexpr int kElementBytes = 2;
  static constexpr int kRowBytes = kHeadSize * kElementBytes;
  static constexpr float kUnit = 1;  // What a widened number must be multiplied by.
  __host__ __device__ static int dimension_of_slot(int slot) { return slot; }
  __host__ __device__ static int dimension_of_output(int tile, int t, int i) { return 8 * tile + 2 * t + i; }
};

struct Fp8Kv {
  static constexpr int kElementBytes = 1;
  static constexpr int kRowBytes = kHeadSize * kElementBytes;
  static constexpr float kUnit = kE4m3Unit;
  __host__ __device__ static int dimension_of_slot(int slot) {
    const int in_half = slot % 8;
    return 4 * (in_half / 2) + 2 * (in_half % 2) + slot / 8;
  }
  __host__ __device__ static int dimension_of_output(int tile, int t, int i) {
    return 16 * (tile / 2) + 4 * t + 2 * i + tile % 2;
  }
};

/// Where chunk `chunk` of row `row` lies in a tile.
template <class Kv>
__host__ __device__ inline int tile_offset(int row, int chunk) {
  return row * Kv::kRowBytes + ((chunk ^ (row & 7)) * kChunkBytes);
}

/// A warp's queries as A fragments, and its running result.
template <class Kv>
struct WarpState {
  std::uint32_t q[kDimSteps][4];
  float o[kOutputTiles][4];
  float m[2];  ///< Of rows g and g + 8, in units of log2.
  float l[2];  ///< This lane's share of the sum.
};

constexpr float kMinusInfinity = -__builtin_huge_valf();

__device__ inline float bf16_at(const std::uint16_t* row, int i) {
  return bits_to_float(static_cast<std::uint32_t>(row[i]) << 16);
}

template <class Kv>
__device__ inline std::uint32_t query_pair(const std::uint16_t* row, int step, int slot) {
  const int first = 16 * step + Kv::dimension_of_slot(slot);
  const int second = 16 * step + Kv::dimension_of_slot(slot + 1);
  if constexpr (Kv::kElementBytes == 1) {
    return pack_f16(bf16_at(row, first), bf16_at(row, second));
  }
  return static_cast<std::uint32_t>(row[first]) | (static_cast<std::uint32_t>(row[second]) << 16);
}

/// Starts a warp on the bf16 query rows of this lane, g and g + 8; null is a row of zeros.
template <class Kv>
__device__ inline void start_warp(WarpState<Kv>& warp, const std::uint16_t* row_g,
                                  const std::uint16_t* row_g8) {
  const int t = lane_id() % 4;
  KP_UNROLL
  for (int step = 0; step < kDimSteps; ++step) {
    warp.q[step][0] = row_g != nullptr ? query_pair<Kv>(row_g, step, 2 * t) : 0U;
    warp.q[step][1] = row_g8 != nullptr ? query_pair<Kv>(row_g8, step, 2 * t) : 0U;
    warp.q[step][2] = row_g != nullptr ? query_pair<Kv>(row_g, step, 2 * t + 8) : 0U;
    warp.q[step][3] = row_g8 != nullptr ? query_pair<Kv>(row_g8, step, 2 * t + 8) : 0U;
  }
  KP_UNROLL
  for (int tile = 0; tile < kOutputTiles; ++tile) {
    KP_UNROLL
    for (int i = 0; i < 4; ++i) warp.o[tile][i] = 0;
  }
  warp.m[0] = warp.m[1] = kMinusInfinity;
  warp.l[0] = warp.l[1] = 0;
}

/// s[2p], s[2p + 1] = scores of keys 16p to 16p + 15.
template <class Kv, int kKeys>
__device__ inline void scores(float (&s)[kKeys / 8][4], const WarpState<Kv>& warp,
                              const unsigned char* keys) {
  const int lane = lane_id();
  const int row = (lane / 16) * 8 + lane % 8;
  const int odd_chunk = (lane / 8) % 2;
  KP_UNROLL
  for (int tile = 0; tile < kKeys / 8; ++tile) {
    KP_UNROLL
    for (int i = 0; i < 4; ++i) s[tile][i] = 0;
  }
  // A pair of chunks is 16 numbers of bf16, 32 of e4m3.
  KP_UNROLL
  for (int pair = 0; pair < Kv::kRowBytes / (2 * kChunkBytes); ++pair) {
    KP_UNROLL
    for (int p = 0; p < kKeys / 16; ++p) {
      std::uint32_t r[4];
      ldmatrix_x4(r, keys + tile_offset<Kv>(16 * p + row, 2 * pair + odd_chunk));
      if constexpr (Kv::kElementBytes == 2) {
        mma_bf16(s[2 * p], warp.q[pair], r[0], r[1]);
        mma_bf16(s[2 * p + 1], warp.q[pair], r[2], r[3]);
      } else {
        mma_f16(s[2 * p], warp.q[2 * pair], even_e4m3(r[0]), odd_e4m3(r[0]));
        mma_f16(s[2 * p], warp.q[2 * pair + 1], even_e4m3(r[1]), odd_e4m3(r[1]));
        mma_f16(s[2 * p + 1], warp.q[2 * pair], even_e4m3(r[2]), odd_e4m3(r[2]));
        mma_f16(s[2 * p + 1], warp.q[2 * pair + 1], even_e4m3(r[3]), odd_e4m3(r[3]));
      }
    }
  }
}

/// Scores become weights; the running result is brought to the new maximum.
/// Masked scores are minus infinity. `scale` includes log2(e).
template <class Kv, int kKeys>
__device__ inline void soften(float (&s)[kKeys / 8][4], WarpState<Kv>& warp, float scale) {
  KP_UNROLL
  for (int half = 0; half < 2; ++half) {
    float largest = kMinusInfinity;
    KP_UNROLL
    for (int tile = 0; tile < kKeys / 8; ++tile) {
      largest = fmaxf(largest, fmaxf(s[tile][2 * half], s[tile][2 * half + 1]));
    }
    largest = fmaxf(largest, shuffle_xor(largest, 1));
    largest = fmaxf(largest, shuffle_xor(largest, 2));
    const float m = fmaxf(warp.m[half], largest * scale);
    const float shift = m == kMinusInfinity ? 0 : m;  // A row that has seen no key yet.
    const float correction = exp2_fast(warp.m[half] - shift);
    float sum = 0;
    KP_UNROLL
    for (int tile = 0; tile < kKeys / 8; ++tile) {
      KP_UNROLL
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s[tile][i] = exp2_fast(s[tile][i] * scale - shift);
        sum += s[tile][i];
      }
    }
    warp.m[half] = m;
    warp.l[half] = warp.l[half] * correction + sum;
    KP_UNROLL
    for (int tile = 0; tile < kOutputTiles; ++tile) {
      warp.o[tile][2 * half] *= correction;
      warp.o[tile][2 * half + 1] *= correction;
    }
  }
}

/// O += P V.
template <class Kv, int kKeys>
__device__ inline void accumulate(const float (&s)[kKeys / 8][4], WarpState<Kv>& warp,
                                  const unsigned char* values) {
  const int lane = lane_id();
  const int row = ((lane / 8) % 2) * 8 + lane % 8;
  const int odd_chunk = lane / 16;
  KP_UNROLL
  for (int p = 0; p < kKeys / 16; ++p) {
    std::uint32_t a[4];
    KP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float* from = s[2 * p + i / 2] + 2 * (i % 2);
      a[i] = Kv::kElementBytes == 2 ? pack_bf16(from[0], from[1]) : pack_f16(from[0], from[1]);
    }
    KP_UNROLL
    for (int pair = 0; pair < Kv::kRowBytes / (2 * kChunkBytes); ++pair) {
      std::uint32_t r[4];
      ldmatrix_x4_transposed(r, values + tile_offset<Kv>(16 * p + row, 2 * pair + odd_chunk));
      if constexpr (Kv::kElementBytes == 2) {
        mma_bf16(warp.o[2 * pair], a, r[0], r[1]);
        mma_bf16(warp.o[2 * pair + 1], a, r[2], r[3]);
      } else {
        mma_f16(warp.o[4 * pair], a, even_e4m3(r[0]), even_e4m3(r[1]));
        mma_f16(warp.o[4 * pair + 1], a, odd_e4m3(r[0]), odd_e4m3(r[1]));
        mma_f16(warp.o[4 * pair + 2], a, even_e4m3(r[2]), even_e4m3(r[3]));
        mma_f16(warp.o[4 * pair + 3], a, odd_e4m3(r[2]), odd_e4m3(r[3]));
      }
    }
  }
}

/// The four lanes of a row hold shares of its sum; afterwards each holds all of it.
template <class Kv>
__device__ inline void finish_sums(WarpState<Kv>& warp) {
  KP_UNROLL
  for (int half = 0; half < 2; ++half) {
    warp.l[half] += shuffle_xor(warp.l[half], 1);
    warp.l[half] += shuffle_xor(warp.l[half], 2);
  }
}

}  // namespace kneepoint::microbench
