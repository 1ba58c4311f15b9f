// Operator times from a data sheet alone: the maker of hw/operator_times.h for
// GPUs that nobody has measured.
//
// An operator reaches a share of the peaks, and the larger it is the larger the
// share: a matrix product of 256 tokens fills 62 % of the tensor cores of an
// H100, one of 2048 tokens 84 %. The shares below were read off measured GPUs of
// two kinds, with HBM and NVLink or with GDDR and PCIe, and are carried over to
// others of the kind. Between two sizes shares are linear in the logarithm of the
// size; beyond the last they stay.
//
//     time = launch + smooth_max(flops / (peak share), bytes / (bandwidth share))
//
// All are estimates; no share exceeds 1, so none is under the floor. As a share
// grows slower than the size it belongs to, times never fall.
//
// Source  medians of public operator measurements of H100, H200 and L40S (NVIDIA
//         aiconfigurator, vLLM kernels); the table in roofline_times.cc.
#pragma once

#include <string>

#include "hw/gpu_spec.h"
#include "hw/operator_times.h"

namespace kneepoint::hw {

struct ShareTable;

class RooflineTimes final : public OperatorTimes {
 public:
  explicit RooflineTimes(const GpuSpec& gpu, const InServer& in_server = {});

  [[nodiscard]] OperatorTime gemm(const GemmShape& shape, CacheState cache) const override;
  [[nodiscard]] OperatorTime decode_attention(const DecodeAttentionShape& shape,
                                              CacheState cache) const override;
  [[nodiscard]] OperatorTime prefill_attention(const PrefillAttentionShape& shape) const override;
  [[nodiscard]] OperatorTime moe(const MoeShape& shape, CacheState cache) const override;
  [[nodiscard]] OperatorTime collective(const CollectiveShape& shape) const override;
  [[nodiscard]] OperatorTime elementwise(const ElementwiseShape& shape) const override;

  // Nothing was measured, so nothing lies outside: provenance() says "estimated".
  [[nodiscard]] std::string outside_range(const GemmShape&) const override { return ""; }
  [[nodiscard]] std::string outside_range(const DecodeAttentionShape&) const override { return ""; }
  [[nodiscard]] std::string outside_range(const PrefillAttentionShape&) const override { return ""; }
  [[nodiscard]] std::string outside_range(const MoeShape&) const override { return ""; }
  [[nodiscard]] std::string outside_range(const CollectiveShape&) const override { return ""; }

  [[nodiscard]] std::string provenance() const override;

 private:
  GpuSpec gpu_;
  InServer in_server_;
  const ShareTable& shares_;
};

}  // namespace kneepoint::hw
