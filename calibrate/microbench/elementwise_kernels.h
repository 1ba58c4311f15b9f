// Kernels that only move memory, as a server's layers call them: RMS norm with the
// residual added, SwiGLU, quantisation to e4m3 with a scale for each token, and
// the widening of 4-bit weights. One block of threads does one row, each thread 8
// numbers at a time (16 bytes of bf16).
//
// Columns are a multiple of 8 (4-bit weights: of 128, the group of a scale).
#pragma once

#include "calibrate/microbench/gpu_primitives.h"

namespace kneepoint::microbench {

constexpr int kRowThreads = 256;
constexpr int kNumbersAtOnce = 8;
constexpr int kInt4Group = 128;

__device__ inline void widen_8(const Vec16& in, float (&out)[kNumbersAtOnce]) {
  KP_UNROLL
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = bits_to_float(low_bf16(in.word[i]));
    out[2 * i + 1] = bits_to_float(high_bf16(in.word[i]));
  }
}
__device__ inline Vec16 narrow_8(const float (&in)[kNumbersAtOnce]) {
  Vec16 out;
  KP_UNROLL
  for (int i = 0; i < 4; ++i) out.word[i] = pack_bf16(in[2 * i], in[2 * i + 1]);
  return out;
}

// One value of each warp joined to one of the block; `slots` holds 32 floats.
template <class Join>
__device__ inline float join_block(float value, float* slots, const Join& join) {
  KP_UNROLL
  for (int mask = 16; mask > 0; mask /= 2) value = join(value, shuffle_xor(value, mask));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (lane_id() == 0) slots[warp] = value;
  __syncthreads();
  float all = slots[0];
  for (int w = 1; w < kRowThreads / 32; ++w) all = join(all, slots[w]);
  return all;
}

struct RowArguments {
  const std::uint16_t* input;   ///< [rows][columns]; SwiGLU: [rows][2 columns].
  const std::uint16_t* weight;  ///< RMS norm: [columns].
  std::uint16_t* residual;      ///< RMS norm: read, and written with the sum.
  void* output;
  float* scales;  ///< Quantisation: one a row.
  std::int32_t columns;
};

__global__ void __launch_bounds__(kRowThreads) rms_norm(const RowArguments arguments) {
  KP_SHARED_MEMORY(shared);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * arguments.columns;
  const auto* input = reinterpret_cast<const Vec16*>(arguments.input + row);
  auto* residual = reinterpret_cast<Vec16*>(arguments.residual + row);
  const auto* weight = reinterpret_cast<const Vec16*>(arguments.weight);
  auto* output = reinterpret_cast<Vec16*>(static_cast<std::uint16_t*>(arguments.output) + row);
  const int chunks = arguments.columns / kNumbersAtOnce;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kRowThreads) {
    float x[kNumbersAtOnce];
    float r[kNumbersAtOnce];
    widen_8(input[i], x);
    widen_8(residual[i], r);
    KP_UNROLL
    for (int j = 0; j < kNumbersAtOnce; ++j) {
      x[j] += r[j];
      squares += x[j] * x[j];
    }
    residual[i] = narrow_8(x);
  }
  const float sum =
      join_block(squares, reinterpret_cast<float*>(shared), [](float a, float b) { return a + b; });
  constexpr float kEpsilon = 1e-6F;
  const float scale = 1 / sqrtf(sum / static_cast<float>(arguments.columns) + kEpsilon);
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kRowThreads) {
    float x[kNumbersAtOnce];
    float w[kNumbersAtOnce];
    widen_8(residual[i], x);  // This thread wrote it.
    widen_8(weight[i], w);
    KP_UNROLL
    for (int j = 0; j < kNumbersAtOnce; ++j) x[j] *= scale * w[j];
    output[i] = narrow_8(x);
  }
}

__global__ void __launch_bounds__(kRowThreads) silu_and_mul(const RowArguments arguments) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * arguments.columns;
  const auto* gate = reinterpret_cast<const Vec16*>(arguments.input + 2 * row);
  const auto* up = reinterpret_cast<const Vec16*>(arguments.input + 2 * row + arguments.columns);
  auto* output = reinterpret_cast<Vec16*>(static_cast<std::uint16_t*>(arguments.output) + row);
  constexpr float kLog2E = 1.4426950408889634F;
  for (int i = static_cast<int>(threadIdx.x); i < arguments.columns / kNumbersAtOnce; i += kRowThreads) {
    float g[kNumbersAtOnce];
    float u[kNumbersAtOnce];
    widen_8(gate[i], g);
    widen_8(up[i], u);
    KP_UNROLL
    for (int j = 0; j < kNumbersAtOnce; ++j) g[j] = g[j] / (1 + exp2_fast(-g[j] * kLog2E)) * u[j];
    output[i] = narrow_8(g);
  }
}

/// Each row over its largest number, times 448; the scale undoes it.
__global__ void __launch_bounds__(kRowThreads) quantise_e4m3(const RowArguments arguments) {
  KP_SHARED_MEMORY(shared);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * arguments.columns;
  const auto* input = reinterpret_cast<const Vec16*>(arguments.input + row);
  auto* output = reinterpret_cast<std::uint16_t*>(static_cast<unsigned char*>(arguments.output) + row);
  const int chunks = arguments.columns / kNumbersAtOnce;
  float largest = 0;
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kRowThreads) {
    float x[kNumbersAtOnce];
    widen_8(input[i], x);
    KP_UNROLL
    for (int j = 0; j < kNumbersAtOnce; ++j) largest = fmaxf(largest, fabsf(x[j]));
  }
  largest =
      join_block(largest, reinterpret_cast<float*>(shared), [](float a, float b) { return fmaxf(a, b); });
  constexpr float kLargestE4m3 = 448;
  const float scale = largest > 0 ? largest / kLargestE4m3 : 1;
  if (threadIdx.x == 0) arguments.scales[blockIdx.x] = scale;
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kRowThreads) {
    float x[kNumbersAtOnce];
    widen_8(input[i], x);
    KP_UNROLL
    for (int j = 0; j < kNumbersAtOnce / 2; ++j) {
      output[i * (kNumbersAtOnce / 2) + j] = pack_e4m3(x[2 * j] / scale, x[2 * j + 1] / scale);
    }
  }
}

struct Int4Arguments {
  const std::uint32_t* packed;  ///< [rows][columns / 8]: eight numbers, lowest first, each less 8.
  const std::uint16_t* scales;  ///< [rows][columns / 128], bf16.
  std::uint16_t* output;        ///< [rows][columns], bf16.
  std::int32_t columns;
};

__global__ void __launch_bounds__(kRowThreads) dequantise_int4(const Int4Arguments arguments) {
  const std::int64_t row = blockIdx.x;
  const int words = arguments.columns / kNumbersAtOnce;
  constexpr int kWordsOfAGroup = kInt4Group / kNumbersAtOnce;
  auto* output = reinterpret_cast<Vec16*>(arguments.output + row * arguments.columns);
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kRowThreads) {
    const std::uint32_t eight = arguments.packed[row * words + i];
    const std::uint16_t scale_bits =
        arguments.scales[row * (arguments.columns / kInt4Group) + i / kWordsOfAGroup];
    const float scale = bits_to_float(static_cast<std::uint32_t>(scale_bits) << 16);
    float x[kNumbersAtOnce];
    KP_UNROLL
    for (int j = 0; j < kNumbersAtOnce; ++j) {
      x[j] = static_cast<float>(static_cast<int>((eight >> (4 * j)) & 15U) - 8) * scale;
    }
    output[i] = narrow_8(x);
  }
}

// Memory by itself. Each thread has kInFlight 16-byte words on the way, so two blocks
// of threads on an SM have 128 KiB: that fills any memory's pipes, and all blocks run
// at once.

constexpr int kStreamThreads = 512;
constexpr int kStreamBlocksOfAnSm = 2;
constexpr int kInFlight = 8;

struct StreamArguments {
  const Vec16* from;
  Vec16* to;
  std::int64_t words;
};

enum class Stream { kRead, kWrite, kCopy };

template <Stream kOp>
__global__ void __launch_bounds__(kStreamThreads, kStreamBlocksOfAnSm)
    stream(const StreamArguments arguments) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kStreamThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kStreamThreads + threadIdx.x;
  std::uint32_t all = 0;
  for (std::int64_t i = first; i < arguments.words; i += stride * kInFlight) {
    Vec16 words[kInFlight] = {};
    KP_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const std::int64_t at = i + j * stride;
      if (kOp != Stream::kWrite && at < arguments.words) words[j] = arguments.from[at];
    }
    KP_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const std::int64_t at = i + j * stride;
      if (kOp == Stream::kRead) {
        all ^= words[j].word[0] ^ words[j].word[1] ^ words[j].word[2] ^ words[j].word[3];
      } else if (at < arguments.words) {
        if (kOp == Stream::kWrite) words[j].word[0] = words[j].word[3] = static_cast<std::uint32_t>(at);
        arguments.to[at] = words[j];
      }
    }
  }
  // Never so for our data, but the compiler cannot know, and must read.
  if (kOp == Stream::kRead && all == 0x9e3779b9U) arguments.to[0].word[0] = all;
}

// Random numbers, so that the arithmetic switches as it does in a server: a product
// with zeros draws less power and runs at a higher clock.

__host__ __device__ inline std::uint32_t hash_of(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return static_cast<std::uint32_t>(x);
}

enum class Fill { kBf16, kE4m3, kBits };

struct FillArguments {
  std::uint32_t* to;
  std::int64_t words;
  std::uint64_t seed;
};

/// Numbers of both signs, sizes evenly spread over [1/2, 2) in their logarithm.
template <Fill kWhat>
__global__ void __launch_bounds__(kStreamThreads) fill_random(const FillArguments arguments) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kStreamThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kStreamThreads + threadIdx.x;
       i < arguments.words; i += stride) {
    const std::uint32_t bits = hash_of(arguments.seed + static_cast<std::uint64_t>(i));
    std::uint32_t word = bits;
    // Sign and mantissa random, exponent that of 1/2 or 1.
    if (kWhat == Fill::kBf16) word = (bits & 0x80ff80ffU) | 0x3f003f00U;
    if (kWhat == Fill::kE4m3) word = (bits & 0x8f8f8f8fU) | 0x30303030U;
    arguments.to[i] = word;
  }
}

}  // namespace kneepoint::microbench
