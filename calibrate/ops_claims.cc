#include "calibrate/ops_claims.h"

#include <array>

namespace kneepoint::calibrate {

namespace {

using hw::CollectiveShape;
using hw::DecodeAttentionShape;
using hw::GemmShape;
using hw::MoeShape;
using hw::Precision;
using hw::PrefillAttentionShape;

// The L40S has 96 MB of L2, and the benchmark goes round six copies of the weights.
bool weights_within_l2(const OperatorRow& row) {
  constexpr double kWithinBytes = 17e6;
  const auto& shape = std::get<GemmShape>(row.shape);
  const double weight_bytes = shape.precision == Precision::kFp8 ? 1 : 2;
  return row.gpu == "l40s" && weight_bytes * static_cast<double>(shape.n * shape.k) < kWithinBytes;
}

bool wide_groups(const OperatorRow& row) {
  const auto& shape = std::get<DecodeAttentionShape>(row.shape);
  return row.gpu == "l40s" && shape.kv_precision == Precision::kFp8 &&
         shape.num_heads > 16 * shape.num_kv_heads;
}

bool single_token(const OperatorRow& row) {
  return std::get<PrefillAttentionShape>(row.shape).num_tokens == 1;
}

bool balanced_256(const OperatorRow& row) {
  const auto& shape = std::get<MoeShape>(row.shape);
  return shape.balanced && shape.num_experts == 256;
}

bool experts_spread(const OperatorRow& row) {
  return std::get<MoeShape>(row.shape).moe_ep > 1;
}

bool slow_host(const OperatorRow& row) {
  return row.gpu == "l40s" && std::get<CollectiveShape>(row.shape).num_gpus > 4;
}

bool always(const OperatorRow&) {
  return true;
}

struct Rule {
  std::string_view family;  // Beginning of its name.
  bool (*applies)(const OperatorRow&);
  bool fitted;
  std::string_view reason;
};

constexpr std::array kRules{
    Rule{"gemm", &weights_within_l2, false,
         "weights below 17 MB stay in the L2 of 96 MB between replays; a server reads them from memory"},
    Rule{"gemm_int4", &always, false,
         "4-bit weights widened by a kernel of their own; the bf16 form stands for kernels that widen on the way"},
    Rule{"decode_attention_fp8", &wide_groups, false,
         "more than 16 query heads a KV head with fp8 KV run on another, slower kernel"},
    Rule{"prefill_attention", &single_token, false, "one new token is a decode"},
    Rule{"moe", &balanced_256, false,
         "256 experts balanced: the times look as if only half of the experts were read, or all on one GPU"},
    Rule{"moe", &experts_spread, true,
         "experts spread over GPUs: the time depends on which experts the benchmark put on the timed one"},
    Rule{"all_reduce_eager", &always, false, "launched by the CPU; a server replays it inside a CUDA graph"},
    Rule{"all_reduce_nccl", &always, false, "vLLM's own all-reduce takes its place"},
    Rule{"all_reduce", &slow_host, true, "the measured host moves 2 to 5 GB/s between 8 GPUs"},
    Rule{"all_gather", &slow_host, true, "the measured host moves 2 to 5 GB/s between 8 GPUs"},
    Rule{"all_to_all", &slow_host, true, "the measured host moves 2 to 5 GB/s between 8 GPUs"},
    Rule{"reduce_scatter", &slow_host, true, "the measured host moves 2 to 5 GB/s between 8 GPUs"},
};

}  // namespace

Claim claim_of(const OperatorRow& row) {
  for (const Rule& rule : kRules) {
    if (row.family.starts_with(rule.family) && rule.applies(row)) return {rule.fitted, rule.reason};
  }
  return {};
}

}  // namespace kneepoint::calibrate
