#include "hw/fitted_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "hw/operator_graph.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {

namespace {

constexpr double kSecondsPerUs = 1e-6;
constexpr std::int64_t kFittedHeadSize = 128;

struct CollectiveName {
  Collective op;
  std::string_view name;
};
constexpr std::array kCollectives{CollectiveName{Collective::kAllReduce, "all_reduce"},
                                  CollectiveName{Collective::kAllGather, "all_gather"},
                                  CollectiveName{Collective::kReduceScatter, "reduce_scatter"},
                                  CollectiveName{Collective::kAllToAll, "all_to_all"}};
constexpr std::array<std::int64_t, 3> kGpuCounts{2, 4, 8};

struct Quantity {
  std::string_view name;
  std::int64_t value;
};

std::string first_outside(const std::vector<FittedRange>& ranges,
                          std::initializer_list<Quantity> quantities) {
  for (const Quantity& quantity : quantities) {
    const auto range = std::ranges::find(ranges, quantity.name, &FittedRange::quantity);
    if (range == ranges.end()) continue;
    const auto value = static_cast<double>(quantity.value);
    if (value >= range->min && value <= std::max(range->max, range->claimed_max)) continue;
    return fmt::format("{} = {}, measured {:.10g} to {:.10g}", quantity.name, quantity.value, range->min,
                       range->max);
  }
  return "";
}

// Inside what the form claims, but beyond what was measured.
bool carried_on(const std::vector<FittedRange>& ranges, std::string_view quantity, std::int64_t value) {
  const auto range = std::ranges::find(ranges, quantity, &FittedRange::quantity);
  return range != ranges.end() && static_cast<double>(value) > range->max;
}

std::string other_head_size(std::int64_t head_size) {
  return head_size == kFittedHeadSize
             ? ""
             : fmt::format("head size = {}, measured {}", head_size, kFittedHeadSize);
}

OperatorTime timed(double us, const std::string& outside, bool extended) {
  const Confidence inside = extended ? Confidence::kInterpolated : Confidence::kMeasured;
  return {us * kSecondsPerUs, outside.empty() ? inside : Confidence::kEstimated};
}

std::size_t kv_index(Precision precision) {
  return precision == Precision::kFp8 ? 1 : 0;
}

constexpr std::string_view kNotMeasured = "not measured on this GPU, estimated from its data sheet";

}  // namespace

template <class Params>
FittedTimes::Fitted<Params> FittedTimes::fitted(const Rates& rates, std::string_view family,
                                                std::span<const ParameterSpec<Params>> table) {
  return {parameters_of(rates, family, table), rates.family(family).ranges};
}

template <class Params>
FittedTimes::Perhaps<Params> FittedTimes::fitted_if_there(const Rates& rates, std::string_view family,
                                                          std::span<const ParameterSpec<Params>> table) {
  if (rates.find(family) != nullptr) return fitted(rates, family, table);
  lacking_.emplace_back(family);
  return std::nullopt;
}

FittedTimes::FittedTimes(const GpuSpec& gpu, const Rates& rates, const InServer& in_server)
    : roof_(roof_of(gpu)),
      in_server_(in_server),
      link_bytes_per_us_(gpu.link_bytes_per_s * kSecondsPerUs),
      data_sheet_(gpu, in_server),
      provenance_(rates.source),
      gemm_bf16_(fitted(rates, "gemm_bf16", gemm_bf16_parameters())),
      gemm_fp8_(fitted_if_there(rates, "gemm_fp8", gemm_fp8_parameters())),
      decode_{fitted(rates, "decode_attention_bf16", decode_attention_parameters()),
              fitted_if_there(rates, "decode_attention_fp8", decode_attention_parameters())},
      prefill_{fitted(rates, "prefill_attention_bf16", prefill_attention_parameters()),
               fitted_if_there(rates, "prefill_attention_fp8", prefill_attention_parameters())},
      moe_{fitted_if_there(rates, "moe_bf16", moe_parameters()),
           fitted_if_there(rates, "moe_fp8", moe_parameters()),
           fitted_if_there(rates, "moe_bf16_ep", moe_parameters()),
           fitted_if_there(rates, "moe_fp8_ep", moe_parameters())},
      elementwise_(fitted(rates, "elementwise", elementwise_parameters())) {
  if (rates.gpu != gpu.name) {
    throw SpecError(
        fmt::format("{}: gpu: these rates are of '{}', asked for '{}'", rates.label, rates.gpu, gpu.name));
  }
  for (const CollectiveName& collective : kCollectives) {
    std::vector<std::string> lacking;
    for (const std::int64_t num_gpus : kGpuCounts) {
      const std::string family = fmt::format("{}_{}", collective.name, num_gpus);
      if (rates.find(family) == nullptr) {
        lacking.push_back(family);
        continue;
      }
      collectives_.push_back({collective.op, num_gpus, parameters_of(rates, family, collective_parameters()),
                              rates.family(family).ranges});
    }
    if (lacking.size() == kGpuCounts.size()) lacking = {std::string(collective.name)};  // All of them.
    lacking_.insert(lacking_.end(), lacking.begin(), lacking.end());
  }
  if (!lacking_.empty()) {
    provenance_ +=
        fmt::format("; not measured, estimated from the data sheet: {}", fmt::join(lacking_, ", "));
  }
}

// GEMM

OperatorTime FittedTimes::gemm(const GemmShape& shape, CacheState cache) const {
  if (shape.m == 0) return {0, Confidence::kMeasured};
  const bool fp8 = shape.precision == Precision::kFp8;
  if (fp8 && !gemm_fp8_) return data_sheet_.gemm(shape, cache);
  const auto& ranges = fp8 ? gemm_fp8_->ranges : gemm_bf16_.ranges;
  const bool extended =
      shape.precision == Precision::kInt4 || shape.static_scales || carried_on(ranges, "n", shape.n);
  const InServer here = cache == CacheState::kCold ? in_server_ : InServer{};
  const double us = fp8 ? gemm_fp8_us(shape, gemm_fp8_->params, roof_, cache, here.sustained_fp8)
                        : gemm_bf16_us(shape, weight_bytes(shape.precision), gemm_bf16_.params, roof_, cache,
                                       here.sustained_bf16);
  return timed(us, outside_range(shape), extended);
}

std::string FittedTimes::outside_range(const GemmShape& shape) const {
  const bool fp8 = shape.precision == Precision::kFp8;
  if (fp8 && !gemm_fp8_) return std::string(kNotMeasured);
  const auto& ranges = fp8 ? gemm_fp8_->ranges : gemm_bf16_.ranges;
  return first_outside(ranges, {{"m", shape.m}, {"n", shape.n}, {"k", shape.k}});
}

// Attention

OperatorTime FittedTimes::decode_attention(const DecodeAttentionShape& shape, CacheState cache) const {
  if (shape.count == 0) return {0, Confidence::kMeasured};
  const bool uneven = shape.context_max * shape.count != shape.context_sum;
  const auto& rates = decode_[kv_index(shape.kv_precision)];
  if (!rates) return data_sheet_.decode_attention(shape, cache);
  const InServer here = cache == CacheState::kCold ? in_server_ : InServer{};
  const bool fp8 = shape.kv_precision == Precision::kFp8;
  const double slowdown = fp8 ? here.decode_attention_fp8 : here.decode_attention_bf16;
  return timed(slowdown * decode_attention_us(shape, rates->params, roof_, cache), outside_range(shape), uneven);
}

std::string FittedTimes::outside_range(const DecodeAttentionShape& shape) const {
  const std::string head = other_head_size(shape.head_size);
  if (!head.empty()) return head;
  const auto& rates = decode_[kv_index(shape.kv_precision)];
  if (!rates) return std::string(kNotMeasured);
  return first_outside(rates->ranges, {{"sequences", shape.count},
                                       {"context", shape.context_max},
                                       {"query heads", shape.num_heads},
                                       {"KV heads", shape.num_kv_heads},
                                       {"query heads a KV head", shape.num_heads / shape.num_kv_heads}});
}

OperatorTime FittedTimes::prefill_attention(const PrefillAttentionShape& shape) const {
  return prefill_attention(shape, CacheState::kCold);
}

OperatorTime FittedTimes::prefill_attention(const PrefillAttentionShape& shape, CacheState cache) const {
  if (shape.num_tokens == 0 || shape.batch == 0) return {0, Confidence::kMeasured};
  const auto& rates = prefill_[kv_index(shape.kv_precision)];
  if (!rates) return data_sheet_.prefill_attention(shape);
  const auto& params = rates->params;
  constexpr std::int64_t kLeastMeasured = 16;
  const bool extended = shape.num_computed_tokens > 0 || shape.num_tokens < kLeastMeasured;
  return timed(prefill_attention_us(shape, params, roof_, cache), outside_range(shape), extended);
}

std::string FittedTimes::outside_range(const PrefillAttentionShape& shape) const {
  const std::string head = other_head_size(shape.head_size);
  if (!head.empty()) return head;
  const auto& rates = prefill_[kv_index(shape.kv_precision)];
  if (!rates) return std::string(kNotMeasured);
  return first_outside(rates->ranges, {{"sequences", shape.batch},
                                       {"tokens", shape.num_tokens},
                                       {"query heads", shape.num_heads},
                                       {"KV heads", shape.num_kv_heads}});
}

// Experts

const FittedTimes::Perhaps<MoeParams>& FittedTimes::moe_for(const MoeShape& shape) const {
  return moe_[(shape.precision == Precision::kFp8 ? 1U : 0U) + (shape.moe_ep > 1 ? 2U : 0U)];
}

OperatorTime FittedTimes::moe(const MoeShape& shape, CacheState cache) const {
  const auto& rates = moe_for(shape);
  if (!rates) return data_sheet_.moe(shape, cache);
  const double us = moe_us(shape, weight_bytes(shape.precision), rates->params, roof_, cache);
  return timed(us, outside_range(shape), shape.precision == Precision::kInt4);
}

std::string FittedTimes::outside_range(const MoeShape& shape) const {
  const auto& rates = moe_for(shape);
  if (!rates) return std::string(kNotMeasured);
  return first_outside(rates->ranges, {{"tokens", shape.num_tokens},
                                       {"hidden size", shape.hidden_size},
                                       {"intermediate size", shape.intermediate_size},
                                       {"top_k", shape.top_k},
                                       {"experts", shape.num_experts},
                                       {"MoE TP", shape.moe_tp},
                                       {"MoE EP", shape.moe_ep}});
}

// Collectives

const CollectiveRates* FittedTimes::collective_for(const CollectiveShape& shape) const {
  // A send is one half of an exchange between two.
  const bool send = shape.op == Collective::kSend;
  const Collective op = send ? Collective::kAllToAll : shape.op;
  const std::int64_t num_gpus = send ? 2 : shape.num_gpus;
  const CollectiveRates* best = nullptr;
  for (const CollectiveRates& rates : collectives_) {
    if (rates.op != op) continue;
    best = &rates;
    if (rates.num_gpus >= num_gpus) break;
  }
  return best;
}

double FittedTimes::collective_us(const CollectiveShape& shape) const {
  const CollectiveRates& rates = *collective_for(shape);
  const auto bytes = static_cast<double>(shape.message_bytes);
  const double crossing = collective_cost(shape).network_bytes;
  if (shape.op == Collective::kSend) return hw::collective_us(2 * bytes, crossing, rates.params, link_bytes_per_us_);
  const double us = hw::collective_us(bytes, crossing, rates.params, link_bytes_per_us_);
  // Past the largest group measured, every step of a ring adds its latency.
  const double beyond = std::max(1.0, static_cast<double>(shape.num_gpus) / static_cast<double>(rates.num_gpus));
  return us * beyond;
}

OperatorTime FittedTimes::collective(const CollectiveShape& shape) const {
  if (shape.num_gpus < 2 || shape.message_bytes == 0) return {0, Confidence::kMeasured};
  const CollectiveRates* rates = collective_for(shape);
  if (rates == nullptr) return data_sheet_.collective(shape);
  const bool other = shape.op == Collective::kSend || rates->num_gpus != shape.num_gpus;
  return timed(collective_us(shape), outside_range(shape), other);
}

std::string FittedTimes::outside_range(const CollectiveShape& shape) const {
  if (shape.num_gpus < 2 || shape.message_bytes == 0) return "";
  const CollectiveRates* rates = collective_for(shape);
  if (rates == nullptr) return std::string(kNotMeasured);
  if (shape.op != Collective::kSend && shape.num_gpus > kGpuCounts.back()) {
    return fmt::format("GPUs = {}, measured {} to {}", shape.num_gpus, kGpuCounts.front(), kGpuCounts.back());
  }
  return first_outside(rates->ranges, {{"message bytes", shape.message_bytes}});
}

OperatorTime FittedTimes::elementwise(const ElementwiseShape& shape) const {
  return timed(elementwise_us(static_cast<double>(shape.bytes), elementwise_.params, roof_), "", true);
}

}  // namespace kneepoint::hw
