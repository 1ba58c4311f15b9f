// A model's architecture: what its config.json says about shapes.
//
// Bundled models are the config.json facts of hw/models/NAME.json compiled into
// the library; --model also takes a path to any Hugging Face config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kneepoint::hw {

/// Layers of one kind: a model is a few runs of equal layers.
struct LayerGroup {
  std::int64_t count = 0;
  std::int64_t attention_window = 0;  ///< Tokens a query sees; 0: all.
  bool moe = false;                   ///< Experts instead of one MLP.
};

struct ModelArch {
  std::string name;          ///< "llama-3.1-8b".
  std::string architecture;  ///< "LlamaForCausalLM".
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  ///< Of the dense MLP.
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;  ///< The context the model has, rope scaling included.
  std::int64_t yarn_context = 0;  ///< A longer one its makers vouch for with YaRN, or 0; bundled models only.
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool gated_mlp = true;  ///< gate and up, else up alone.
  std::vector<LayerGroup> layers;

  // Experts; num_experts = 0 for a dense model.
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t moe_intermediate_size = 0;
  std::int64_t num_shared_experts = 0;

  // Multi-head latent attention; kv_lora_rank = 0 without.
  std::int64_t kv_lora_rank = 0;
  std::int64_t q_lora_rank = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t v_head_dim = 0;

  bool only_experts_quantised = false;  ///< The checkpoint's quantisation leaves attention in bf16 (gpt-oss).
  bool static_activation_scales = false;  ///< FP8 checkpoint that brings its activations' scales.
  std::string weights_note;  ///< Quantisation of the checkpoint ("fp8", "int4", "awq", ...), else "".
  std::string source;

  [[nodiscard]] bool is_mla() const { return kv_lora_rank > 0; }
};

/// Parameters in all, computed from the shapes.
[[nodiscard]] double parameter_count(const ModelArch& model);

/// Parameters that one token touches (shared parts and its own experts).
[[nodiscard]] double active_parameter_count(const ModelArch& model);

/// KV values that one token occupies in one layer of the whole model (both K and
/// V; MLA: the latent). Times the bytes of the KV type: bytes.
[[nodiscard]] std::int64_t kv_values_per_token_and_layer(const ModelArch& model);

/// Names of the bundled models, sorted.
[[nodiscard]] const std::vector<std::string>& model_names();

/// The bundled model `name` (also by its Hugging Face id, any case:
/// "meta-llama/Llama-3.1-8B-Instruct"), or the config.json at that path (a
/// folder that holds one will do). Throws SpecError naming the closest known one.
[[nodiscard]] ModelArch load_model(const std::string& name);

}  // namespace kneepoint::hw
