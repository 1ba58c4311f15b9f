// Our attention kernels, timed and checked.
#pragma once

#include <memory>
#include <vector>

#include "calibrate/microbench/cuda_bench.h"
#include "calibrate/microbench/cudnn_attention.h"

namespace kneepoint::microbench {

class AttentionBench {
 public:
  explicit AttentionBench(CudaBench& bench);

  [[nodiscard]] Timing measure(const DecodeShape& shape, const TimingOptions& options);
  /// cuDNN's fused attention where it is there and takes the shape, else our own kernel.
  [[nodiscard]] Timing measure(const PrefillShape& shape, const TimingOptions& options);
  [[nodiscard]] std::vector<Comparison> check();

  [[nodiscard]] const CudnnAttention* cudnn() const { return cudnn_.get(); }

 private:
  [[nodiscard]] Comparison check_decode(const DecodeShape& shape);
  [[nodiscard]] Comparison check_prefill(const PrefillShape& shape, bool by_cudnn);

  CudaBench& bench_;
  std::unique_ptr<CudnnAttention> cudnn_;  ///< Null without cuDNN.
};

}  // namespace kneepoint::microbench
