#include "hw/model_arch.h"

#include "hw/layer_parameters.h"

namespace kneepoint::hw {
namespace {

double d(std::int64_t value) {
  return static_cast<double>(value);
}

// Multi-head latent attention: queries and KV pass through a narrow latent each.
// The latents' down-projections are small and stay whole on every rank.
void add_latent_attention(const ModelArch& m, LayerParameters& p) {
  const double hidden = d(m.hidden_size);
  const double q_columns = d(m.num_heads) * d(m.qk_nope_head_dim + m.qk_rope_head_dim);
  if (m.q_lora_rank > 0) {
    p.attention_whole += hidden * d(m.q_lora_rank);
    p.attention_split += d(m.q_lora_rank) * q_columns;
    p.unquantised += d(m.q_lora_rank);  // Its norm.
  } else {
    p.attention_split += hidden * q_columns;
  }
  p.attention_whole += hidden * d(m.kv_lora_rank + m.qk_rope_head_dim);
  p.unquantised += d(m.kv_lora_rank);
  p.attention_split += d(m.kv_lora_rank) * d(m.num_heads) * d(m.qk_nope_head_dim + m.v_head_dim);
  p.attention_split += d(m.num_heads) * d(m.v_head_dim) * hidden;
}

void add_attention(const ModelArch& m, LayerParameters& p) {
  const double hidden = d(m.hidden_size);
  const double head = d(m.head_size);
  p.attention_split += 2 * hidden * d(m.num_heads) * head;  // Queries, output.
  p.attention_kv += 2 * hidden * d(m.num_kv_heads) * head;
  p.unquantised += m.qkv_bias ? d(m.num_heads + 2 * m.num_kv_heads) * head : 0;
  p.unquantised += m.qk_norm ? 2 * head : 0;
}

}  // namespace

LayerParameters layer_parameters(const ModelArch& m, const LayerGroup& group, std::int64_t experts) {
  LayerParameters p;
  m.is_mla() ? add_latent_attention(m, p) : add_attention(m, p);
  const double matrices = m.gated_mlp ? 3 : 2;
  if (group.moe) {
    p.mlp_split +=
        matrices * d(m.hidden_size) * d(m.moe_intermediate_size) * d(experts + m.num_shared_experts);
    p.unquantised += d(m.hidden_size) * d(m.num_experts);  // The router.
  } else {
    p.mlp_split += matrices * d(m.hidden_size) * d(m.intermediate_size);
  }
  p.unquantised += 2 * d(m.hidden_size);  // Norms.
  return p;
}

double embedding_parameters(const ModelArch& m) {
  return d(m.vocab_size) * d(m.hidden_size);
}

namespace {

double count_parameters(const ModelArch& m, std::int64_t experts) {
  double parameters =
      embedding_parameters(m) * (m.tied_embeddings ? 1 : 2) + d(m.hidden_size);  // And the last norm.
  for (const LayerGroup& group : m.layers) {
    parameters += d(group.count) * layer_parameters(m, group, experts).sum();
  }
  return parameters;
}

}  // namespace

double parameter_count(const ModelArch& model) {
  return count_parameters(model, model.num_experts);
}
double active_parameter_count(const ModelArch& model) {
  return count_parameters(model, model.experts_per_token);
}

std::int64_t kv_values_per_token_and_layer(const ModelArch& model) {
  return model.is_mla() ? model.kv_lora_rank + model.qk_rope_head_dim
                        : 2 * model.num_kv_heads * model.head_size;
}

}  // namespace kneepoint::hw
