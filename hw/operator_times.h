// Seconds that one GPU takes for one operator: the door between the operator
// graph (which knows shapes) and the rates (which know speeds).
//
// Two makers. Roofline fractions (hw/roofline_times.h): any GPU with a data
// sheet, "estimated". Fitted forms (hw/fitted_times.h): a rates file that
// calibrate/ made from measurements, "measured" inside the fitted range.
//
// Every maker keeps to the floor: no result is below flops / peak or bytes /
// bandwidth at nominal rates. Every result never falls as a size grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kneepoint::hw {

enum class Precision : std::uint8_t { kBf16, kFp8, kInt4 };

/// Whether the operator's weights and KV may be found in L2: warm as in an
/// operator benchmark, cold as in a server, where other layers passed between.
enum class CacheState : std::uint8_t { kCold, kWarm };

/// What separates a cold operator in a server from one in a benchmark, beside where
/// its data is. One set for all models and GPUs (hw/server_costs.h).
struct InServer {
  /// Shares of the nominal peak that the power limit lets large matrix products
  /// reach. Real operands toggle more bits than a benchmark's constant or empty ones,
  /// so the GPU holds them at a lower clock.
  double sustained_bf16 = 1;
  double sustained_fp8 = 1;
  /// Time of decode attention over that of even contexts in consecutive blocks, by
  /// the KV cache's type.
  double decode_attention_bf16 = 1;
  double decode_attention_fp8 = 1;
};

/// Y[m, n] = X[m, k] W[k, n].
struct GemmShape {
  Precision precision = Precision::kBf16;  ///< kInt4: weights of 4 bits, dequantised, bf16 arithmetic.
  std::int64_t m = 0;                      ///< Tokens.
  std::int64_t n = 0;                      ///< Outputs.
  std::int64_t k = 0;                      ///< Inputs.
  bool static_scales = false;              ///< FP8 only: activations need no dynamic scale.
};

/// One new token for each of `count` sequences.
struct DecodeAttentionShape {
  Precision kv_precision = Precision::kBf16;  ///< kBf16 or kFp8.
  std::int64_t count = 0;
  std::int64_t context_sum = 0;  ///< Over all sequences.
  std::int64_t context_max = 0;  ///< Longest: uneven contexts cost more.
  std::int64_t num_heads = 0;    ///< Query heads on this GPU.
  std::int64_t num_kv_heads = 0; ///< On this GPU.
  std::int64_t head_size = 128;
};

/// `num_tokens` new tokens of one sequence over `num_computed_tokens` old ones.
struct PrefillAttentionShape {
  Precision kv_precision = Precision::kBf16;
  std::int64_t batch = 1;  ///< So many such sequences at once.
  std::int64_t num_tokens = 0;
  std::int64_t num_computed_tokens = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_size = 128;
};

/// The fused expert call: gate, up and down of the chosen experts.
struct MoeShape {
  Precision precision = Precision::kBf16;
  std::int64_t num_tokens = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  ///< Of one expert, before the division by moe_tp.
  std::int64_t top_k = 0;
  std::int64_t num_experts = 0;
  std::int64_t moe_tp = 1;
  std::int64_t moe_ep = 1;
  bool balanced = false;  ///< Tokens spread evenly; else by a power law, as real routers do.
};

enum class Collective : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSend };

struct CollectiveShape {
  Collective op = Collective::kAllReduce;
  std::int64_t num_gpus = 1;
  std::int64_t message_bytes = 0;
};

/// An operator that only moves memory: norms, activations, rope and KV write,
/// embedding, sampler.
struct ElementwiseShape {
  std::int64_t bytes = 0;  ///< Read plus written.
};

enum class Confidence : std::uint8_t { kMeasured, kInterpolated, kEstimated };

[[nodiscard]] std::string_view confidence_name(Confidence confidence);

struct OperatorTime {
  double seconds = 0;
  Confidence confidence = Confidence::kEstimated;
};

class OperatorTimes {
 public:
  virtual ~OperatorTimes() = default;

  [[nodiscard]] virtual OperatorTime gemm(const GemmShape&, CacheState) const = 0;
  [[nodiscard]] virtual OperatorTime decode_attention(const DecodeAttentionShape&, CacheState) const = 0;
  [[nodiscard]] virtual OperatorTime prefill_attention(const PrefillAttentionShape&) const = 0;
  [[nodiscard]] virtual OperatorTime moe(const MoeShape&, CacheState) const = 0;
  [[nodiscard]] virtual OperatorTime collective(const CollectiveShape&) const = 0;
  [[nodiscard]] virtual OperatorTime elementwise(const ElementwiseShape&) const = 0;

  /// "" inside the measured range, else quantity, value and range:
  /// "m = 131072, measured 1 to 32768".
  [[nodiscard]] virtual std::string outside_range(const GemmShape&) const = 0;
  [[nodiscard]] virtual std::string outside_range(const DecodeAttentionShape&) const = 0;
  [[nodiscard]] virtual std::string outside_range(const PrefillAttentionShape&) const = 0;
  [[nodiscard]] virtual std::string outside_range(const MoeShape&) const = 0;
  [[nodiscard]] virtual std::string outside_range(const CollectiveShape&) const = 0;

  /// One line for reports.
  [[nodiscard]] virtual std::string provenance() const = 0;
};

}  // namespace kneepoint::hw
