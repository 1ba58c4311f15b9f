#include "hw/roofline_times.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "hw/operator_graph.h"
#include "hw/roof.h"

namespace kneepoint::hw {

/// Share of a peak reached at `size`.
struct Share {
  double size;
  double share;
};

// One kind of GPU. Sizes: GEMM bandwidth by bytes of weights, GEMM arithmetic by
// tokens, decode attention by bytes of KV, prefill attention by query-key pairs
// times query heads (32 heads of 512, 2048, 8192, 16384 tokens, causal).
struct ShareTable {
  const char* kind;
  std::vector<Share> gemm_bandwidth;
  std::vector<Share> bf16_arithmetic;
  std::vector<Share> fp8_arithmetic;
  std::vector<Share> decode_bandwidth;
  std::vector<Share> prefill_arithmetic;
  double moe_bandwidth;
  double moe_arithmetic;
  double gemm_launch_s;
  double attention_launch_s;
  double moe_launch_s;
  double elementwise_launch_s;
  double collective_launch_s;   // Two GPUs, a small message.
  double collective_per_gpu_s;  // Each further one.
  double link_share;
};

namespace {

// Source  GEMM and prefill rows, all-reduce latencies: ranges in the measured
//         tables of H100/H200 (first) and L40S (second), their middle taken. The
//         decode rows are the measured shares with the launch taken off. Launches:
//         smallest times in those tables.
const ShareTable kHbm{.kind = "HBM and NVLink, from H100 and H200",
                      .gemm_bandwidth = {{2e6, 0.25}, {16e6, 0.5}, {40e6, 0.66}, {200e6, 0.85}},
                      .bf16_arithmetic = {{256, 0.66}, {512, 0.80}, {2048, 0.83}, {4096, 0.80}, {8192, 0.76}},
                      .fp8_arithmetic = {{256, 0.41}, {512, 0.54}, {2048, 0.60}, {8192, 0.64}},
                      .decode_bandwidth = {{1e6, 0.2}, {20e6, 0.5}, {100e6, 0.62}, {500e6, 0.8}, {2e9, 0.9}},
                      .prefill_arithmetic = {{4.2e6, 0.18}, {67e6, 0.42}, {1.07e9, 0.60}, {4.3e9, 0.665}},
                      .moe_bandwidth = 0.8,
                      .moe_arithmetic = 0.4,
                      .gemm_launch_s = 3e-6,
                      .attention_launch_s = 10e-6,
                      .moe_launch_s = 25e-6,
                      .elementwise_launch_s = 2e-6,
                      .collective_launch_s = 4.3e-6,
                      .collective_per_gpu_s = 0.07e-6,
                      .link_share = 0.6};

const ShareTable kGddr{
    .kind = "GDDR and PCIe, from L40S",
    .gemm_bandwidth = {{2e6, 0.4}, {16e6, 0.65}, {40e6, 0.77}, {200e6, 0.8}},
    .bf16_arithmetic = {{256, 0.40}, {512, 0.61}, {2048, 0.67}, {4096, 0.62}, {8192, 0.55}},
    .fp8_arithmetic = {{256, 0.32}, {512, 0.46}, {2048, 0.50}, {8192, 0.48}},
    .decode_bandwidth = {{1e6, 0.3}, {20e6, 0.65}, {100e6, 0.74}, {2e9, 0.78}},
    .prefill_arithmetic = {{4.2e6, 0.25}, {67e6, 0.33}, {1.07e9, 0.50}, {4.3e9, 0.51}},
    .moe_bandwidth = 0.75,
    .moe_arithmetic = 0.45,
    .gemm_launch_s = 3e-6,
    .attention_launch_s = 8e-6,
    .moe_launch_s = 20e-6,
    .elementwise_launch_s = 2e-6,
    .collective_launch_s = 5.4e-6,
    .collective_per_gpu_s = 3.3e-6,
    .link_share = 0.3};

// Linear in log(size) between rows; the end rows' shares beyond them.
double share_at(std::span<const Share> rows, double size) {
  if (size <= rows.front().size) return rows.front().share;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (size > rows[i].size) continue;
    const double along = std::log(size / rows[i - 1].size) / std::log(rows[i].size / rows[i - 1].size);
    return rows[i - 1].share + along * (rows[i].share - rows[i - 1].share);
  }
  return rows.back().share;
}

constexpr double kOverlap = 4;  // Between adding (1) and the larger one alone (infinity).

double as_double(std::int64_t value) {
  return static_cast<double>(value);
}

OperatorTime estimated(double seconds) {
  return {seconds, Confidence::kEstimated};
}

// How many of `experts` are read if `assignments` fall on them by a power law
// p_e ~ e^-skew: the sum of 1 - exp(-assignments p_e).
double experts_touched(double assignments, std::int64_t experts, double skew) {
  double total = 0;
  for (std::int64_t e = 1; e <= experts; ++e) total += std::pow(as_double(e), -skew);
  double touched = 0;
  for (std::int64_t e = 1; e <= experts; ++e) {
    touched += -std::expm1(-assignments * std::pow(as_double(e), -skew) / total);
  }
  return touched;
}

}  // namespace

RooflineTimes::RooflineTimes(const GpuSpec& gpu, const InServer& in_server)
    : gpu_(gpu), in_server_(in_server), shares_(gpu.nvlink ? kHbm : kGddr) {}

OperatorTime RooflineTimes::gemm(const GemmShape& shape, CacheState cache) const {
  if (shape.m == 0) return estimated(0);
  const OperatorCost cost = gemm_cost(shape);
  const bool fp8 = shape.precision == Precision::kFp8;
  const double weights = weight_bytes(shape.precision) * as_double(shape.n) * as_double(shape.k);
  const double memory = cost.bytes / (gpu_.bandwidth_bytes_per_s * share_at(shares_.gemm_bandwidth, weights));
  const double peak = fp8 ? gpu_.fp8_flops_per_s : gpu_.bf16_flops_per_s;
  const double share = share_at(fp8 ? shares_.fp8_arithmetic : shares_.bf16_arithmetic, as_double(shape.m));
  const InServer here = cache == CacheState::kCold ? in_server_ : InServer{};
  const double lasting = std::min(share, fp8 ? here.sustained_fp8 : here.sustained_bf16);
  return estimated(shares_.gemm_launch_s + smooth_max(memory, cost.flops / (peak * lasting), kOverlap));
}

OperatorTime RooflineTimes::decode_attention(const DecodeAttentionShape& shape, CacheState cache) const {
  if (shape.count == 0) return estimated(0);
  const OperatorCost cost = decode_attention_cost(shape);
  const double memory =
      cost.bytes / (gpu_.bandwidth_bytes_per_s * share_at(shares_.decode_bandwidth, cost.bytes));
  const InServer here = cache == CacheState::kCold ? in_server_ : InServer{};
  const bool fp8 = shape.kv_precision == Precision::kFp8;
  const double slowdown = fp8 ? here.decode_attention_fp8 : here.decode_attention_bf16;
  return estimated(shares_.attention_launch_s + slowdown * std::max(memory, cost.flops / gpu_.bf16_flops_per_s));
}

OperatorTime RooflineTimes::prefill_attention(const PrefillAttentionShape& shape) const {
  if (shape.num_tokens == 0 || shape.batch == 0) return estimated(0);
  const AttentionHeads heads{.kv_precision = shape.kv_precision,
                             .num_heads = shape.num_heads,
                             .num_kv_heads = shape.num_kv_heads,
                             .head_size = shape.head_size};
  OperatorCost cost = chunk_attention_cost(heads, {shape.num_tokens, shape.num_computed_tokens});
  cost.flops *= as_double(shape.batch);
  cost.bytes *= as_double(shape.batch);
  const double pairs = cost.flops / (4 * as_double(shape.head_size));
  const double arithmetic =
      cost.flops / (gpu_.bf16_flops_per_s * share_at(shares_.prefill_arithmetic, pairs));
  const double memory =
      cost.bytes / (gpu_.bandwidth_bytes_per_s * share_at(shares_.decode_bandwidth, cost.bytes));
  return estimated(shares_.attention_launch_s + smooth_max(memory, arithmetic, kOverlap));
}

OperatorTime RooflineTimes::moe(const MoeShape& shape, CacheState) const {
  if (shape.num_tokens == 0) return estimated(0);
  constexpr double kSkew = 0.66;  // Of routers in the measured tables.
  const double assignments = as_double(shape.num_tokens * shape.top_k);
  const double touched = std::max(as_double(shape.top_k), experts_touched(assignments, shape.num_experts,
                                                                          shape.balanced ? 0 : kSkew)) /
                         as_double(shape.moe_ep);
  const OperatorCost cost = moe_cost(shape);
  const double per_expert = 3 * as_double(shape.hidden_size) * as_double(shape.intermediate_size) /
                            as_double(shape.moe_tp) * weight_bytes(shape.precision);
  const double activations =
      8 * as_double(shape.num_tokens * shape.top_k) *
      (as_double(shape.hidden_size) + as_double(shape.intermediate_size) / as_double(shape.moe_tp)) /
      as_double(shape.moe_ep);
  const double memory = std::max(cost.bytes, touched * per_expert + activations) /
                        (gpu_.bandwidth_bytes_per_s * shares_.moe_bandwidth);
  const double peak = shape.precision == Precision::kFp8 ? gpu_.fp8_flops_per_s : gpu_.bf16_flops_per_s;
  return estimated(shares_.moe_launch_s +
                   smooth_max(memory, cost.flops / (peak * shares_.moe_arithmetic), kOverlap));
}

OperatorTime RooflineTimes::collective(const CollectiveShape& shape) const {
  if (shape.num_gpus < 2 || shape.message_bytes == 0) return estimated(0);
  const double gpus = as_double(shape.op == Collective::kSend ? 2 : shape.num_gpus);
  // An all-reduce is a reduce-scatter and an all-gather: it sends each GPU's share twice.
  const double bytes = shape.op == Collective::kAllReduce
                           ? 2 * as_double(shape.message_bytes) * (gpus - 1) / gpus
                           : collective_cost(shape).network_bytes;
  const double latency =
      std::max(gpu_.link_latency_s, shares_.collective_launch_s) + (gpus - 2) * shares_.collective_per_gpu_s;
  return estimated(latency + bytes / (gpu_.link_bytes_per_s * shares_.link_share));
}

OperatorTime RooflineTimes::elementwise(const ElementwiseShape& shape) const {
  if (shape.bytes == 0) return estimated(0);
  constexpr double kStreaming = 0.8;  // Share of bandwidth of a kernel that only copies.
  return estimated(shares_.elementwise_launch_s +
                   as_double(shape.bytes) / (gpu_.bandwidth_bytes_per_s * kStreaming));
}

std::string RooflineTimes::provenance() const {
  return "operator times estimated: " + gpu_.name +
         "'s data sheet and shares of its peaks usual for GPUs with " + shares_.kind;
}

}  // namespace kneepoint::hw
