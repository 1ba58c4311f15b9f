// Memory by itself and the kernels that only move it.
#pragma once

#include "calibrate/microbench/cuda_bench.h"

namespace kneepoint::microbench {

constexpr int kRowSharedBytes = 32 * 4;  ///< One float a warp.

[[nodiscard]] Timing measure_memory(CudaBench& bench, const MemoryShape& shape, const TimingOptions& options);
[[nodiscard]] Timing measure_rows(CudaBench& bench, const RowShape& shape, const TimingOptions& options);

struct RowBuffers {
  std::int64_t numbers = 0;  ///< Of one copy's output.
  std::int64_t input_numbers = 0;
  std::uint16_t* input = nullptr;
  std::uint16_t* residual = nullptr;
  std::uint16_t* weight = nullptr;
  std::uint16_t* output = nullptr;
  float* scales = nullptr;
};
[[nodiscard]] RowBuffers take_rows(CudaBench& bench, const RowShape& shape, int copies);
void enqueue_rows(const RowShape& shape, const RowBuffers& rows, int copy, cudaStream_t on);

/// bf16 [rows][columns] to e4m3 with a scale a row.
void enqueue_quantise(const std::uint16_t* input, void* output, float* scales, std::int64_t rows,
                      std::int64_t columns, cudaStream_t on);
/// 4-bit [rows][columns] with a scale for 128 to bf16.
void enqueue_dequantise(const std::uint32_t* packed, const std::uint16_t* scales, std::uint16_t* output,
                        std::int64_t rows, std::int64_t columns, cudaStream_t on);

}  // namespace kneepoint::microbench
