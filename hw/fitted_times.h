// Operator times from rates that were fitted to measurements: the maker of
// hw/operator_times.h for GPUs that somebody measured.
//
// A shape inside the fitted range is "measured" (the form smooths and reads
// between the rows); where a form is carried further by construction (context
// before a prefill's new tokens, uneven contexts, INT4 weights, static scales)
// "interpolated"; outside the range, or with another head size, "estimated".
//
// A user's own measurement may lack families (experts, collectives of a single GPU,
// FP8 on a GPU without it). What is lacking is taken from the data sheet
// (hw/roofline_times.h), is "estimated", and is named: in provenance(), and by
// outside_range() for every operator concerned.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "hw/forms_attention.h"
#include "hw/forms_collective.h"
#include "hw/forms_elementwise.h"
#include "hw/forms_gemm.h"
#include "hw/forms_moe.h"
#include "hw/operator_times.h"
#include "hw/rates.h"
#include "hw/roof.h"
#include "hw/roofline_times.h"

namespace kneepoint::hw {

/// The lines of one operation on some number of GPUs.
struct CollectiveRates {
  Collective op = Collective::kAllReduce;
  std::int64_t num_gpus = 0;
  CollectiveParams params;
  std::vector<FittedRange> ranges;
};

class FittedTimes final : public OperatorTimes {
 public:
  /// Throws SpecError if `rates` are another GPU's, or lack products, decode or
  /// prefill attention in bf16 or elementwise operators. `in_server` applies to cold operators.
  FittedTimes(const GpuSpec& gpu, const Rates& rates, const InServer& in_server = {});

  [[nodiscard]] OperatorTime gemm(const GemmShape& shape, CacheState cache) const override;
  [[nodiscard]] OperatorTime decode_attention(const DecodeAttentionShape& shape,
                                              CacheState cache) const override;
  [[nodiscard]] OperatorTime prefill_attention(const PrefillAttentionShape& shape) const override;
  [[nodiscard]] OperatorTime moe(const MoeShape& shape, CacheState cache) const override;
  [[nodiscard]] OperatorTime collective(const CollectiveShape& shape) const override;
  [[nodiscard]] OperatorTime elementwise(const ElementwiseShape& shape) const override;

  [[nodiscard]] std::string outside_range(const GemmShape& shape) const override;
  [[nodiscard]] std::string outside_range(const DecodeAttentionShape& shape) const override;
  [[nodiscard]] std::string outside_range(const PrefillAttentionShape& shape) const override;
  [[nodiscard]] std::string outside_range(const MoeShape& shape) const override;
  [[nodiscard]] std::string outside_range(const CollectiveShape& shape) const override;

  [[nodiscard]] std::string provenance() const override { return provenance_; }

  /// Prefill attention as a benchmark measures it, with all it reads in L2 if it fits.
  [[nodiscard]] OperatorTime prefill_attention(const PrefillAttentionShape& shape, CacheState cache) const;

 private:
  template <class Params>
  struct Fitted {
    Params params;
    std::vector<FittedRange> ranges;
  };
  template <class Params>
  using Perhaps = std::optional<Fitted<Params>>;
  template <class Params>
  [[nodiscard]] static Fitted<Params> fitted(const Rates& rates, std::string_view family,
                                             std::span<const ParameterSpec<Params>> table);
  /// Empty if `rates` lack the family, which is then noted in lacking_.
  template <class Params>
  [[nodiscard]] Perhaps<Params> fitted_if_there(const Rates& rates, std::string_view family,
                                                std::span<const ParameterSpec<Params>> table);

  [[nodiscard]] const Perhaps<MoeParams>& moe_for(const MoeShape& shape) const;
  [[nodiscard]] double collective_us(const CollectiveShape& shape) const;
  /// The set of lines for that many GPUs, else for the next larger number, else for the largest; null if none.
  [[nodiscard]] const CollectiveRates* collective_for(const CollectiveShape& shape) const;

  Roof roof_;
  InServer in_server_;
  double link_bytes_per_us_ = 0;
  RooflineTimes data_sheet_;  // For what lacks.
  std::vector<std::string> lacking_;
  std::string provenance_;
  Fitted<GemmBf16Params> gemm_bf16_;
  Perhaps<GemmFp8Params> gemm_fp8_;
  std::array<Perhaps<DecodeAttentionParams>, 2> decode_;    // By KV precision: bf16, fp8.
  std::array<Perhaps<PrefillAttentionParams>, 2> prefill_;  // The same.
  std::array<Perhaps<MoeParams>, 4> moe_;                   // bf16, fp8, each with EP 1 and more.
  Fitted<ElementwiseParams> elementwise_;
  std::vector<CollectiveRates> collectives_;  // Ordered by operation and number of GPUs.
};

}  // namespace kneepoint::hw
