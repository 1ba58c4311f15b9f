// Matrix products by cuBLASLt, Y[m, n] = X[m, k] W[k, n], as a linear layer calls it.
//
// cuBLASLt counts columns first. A layer stores W as n rows of k numbers and X as m
// rows of k, so to cuBLASLt W is a k x n matrix to be transposed, X is k x m, and the
// result n x m: Y row by row. It is the one layout that FP8 allows ("TN"); FP8 further
// wants n and k to be multiples of 16, and scales, here 1. The kernel is the library's
// own first choice, as a server takes it, with 32 MiB to work in.
//
// Source  NVIDIA, "cuBLAS Library" 13.0: cublasLtMatmul(), table of FP8 types and layouts;
//         32 MiB of workspace is what it recommends for Hopper.
#pragma once

#include <functional>
#include <vector>

#include "calibrate/microbench/cuda_bench.h"

namespace kneepoint::microbench {

class GemmBench {
 public:
  explicit GemmBench(CudaBench& bench);

  [[nodiscard]] Timing measure(const GemmShape& shape, const TimingOptions& options);

  /// Small products of every kind against the sum in double.
  [[nodiscard]] std::vector<Comparison> check();

 private:
  struct Buffers;
  struct Plan;
  [[nodiscard]] Buffers take_buffers(const GemmShape& shape, int copies);
  [[nodiscard]] Plan plan(const GemmShape& shape, const float* one);
  void enqueue(const GemmShape& shape, const Plan& plan, const Buffers& buffers, int copy, cudaStream_t on);

  CudaBench& bench_;
  Owned<cublasLtHandle_t, &cublasLtDestroy> handle_;
};

}  // namespace kneepoint::microbench
