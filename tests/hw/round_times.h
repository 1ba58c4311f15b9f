// A model, a GPU and operator times small and round enough to work steps by hand.
#pragma once

#include "hw/deployment.h"
#include "hw/operator_times.h"

namespace kneepoint::hw {

/// Two dense layers: 4 query and 2 KV heads of 8, hidden 32, MLP 64, vocabulary 100.
inline ModelArch round_model() {
  ModelArch model;
  model.name = "round";
  model.architecture = "LlamaForCausalLM";
  model.hidden_size = 32;
  model.intermediate_size = 64;
  model.num_layers = 2;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.head_size = 8;
  model.vocab_size = 100;
  model.max_position_embeddings = 100000;
  model.layers = {{.count = 2}};
  return model;
}

/// So fast that no floor is ever reached.
inline GpuSpec boundless_gpu() {
  GpuSpec gpu;
  gpu.name = "boundless";
  gpu.bandwidth_bytes_per_s = gpu.l2_bandwidth_bytes_per_s = 1e30;
  gpu.bf16_flops_per_s = gpu.fp8_flops_per_s = 1e30;
  gpu.link_bytes_per_s = 1e30;
  gpu.num_sms = 100;
  return gpu;
}

inline Deployment round_deployment() {
  Deployment deployment;
  deployment.model = round_model();
  deployment.gpu = boundless_gpu();
  return deployment;
}

/// GEMM 10 us; decode attention 20 us and 1 ns a context token; prefill attention
/// 50 us and 1 us a token; experts 30 us; a collective 5 us; anything else 1 us.
class RoundTimes final : public OperatorTimes {
 public:
  [[nodiscard]] OperatorTime gemm(const GemmShape&, CacheState) const override { return {10e-6}; }
  [[nodiscard]] OperatorTime decode_attention(const DecodeAttentionShape& s, CacheState) const override {
    return {20e-6 + 1e-9 * static_cast<double>(s.context_sum)};
  }
  [[nodiscard]] OperatorTime prefill_attention(const PrefillAttentionShape& s) const override {
    return {50e-6 + 1e-6 * static_cast<double>(s.num_tokens * s.batch)};
  }
  [[nodiscard]] OperatorTime moe(const MoeShape&, CacheState) const override { return {30e-6}; }
  [[nodiscard]] OperatorTime collective(const CollectiveShape&) const override { return {5e-6}; }
  [[nodiscard]] OperatorTime elementwise(const ElementwiseShape&) const override { return {1e-6}; }

  [[nodiscard]] std::string outside_range(const GemmShape& s) const override {
    return s.m > 1000 ? "m = " + std::to_string(s.m) + ", measured 1 to 1000" : "";
  }
  [[nodiscard]] std::string outside_range(const DecodeAttentionShape&) const override { return ""; }
  [[nodiscard]] std::string outside_range(const PrefillAttentionShape&) const override { return ""; }
  [[nodiscard]] std::string outside_range(const MoeShape&) const override { return ""; }
  [[nodiscard]] std::string outside_range(const CollectiveShape&) const override { return ""; }
  [[nodiscard]] std::string provenance() const override { return "round"; }
};

}  // namespace kneepoint::hw
