#include "hw/model_arch.h"

#include <boost/assert.hpp>

namespace kneepoint::hw {
namespace {

double d(std::int64_t value) { return static_cast<double>(value); }

// Parameters of one attention block, norms of queries and keys included.
double attention_parameters(const ModelArch& m) {
  const double hidden = d(m.hidden_size);
  if (m.is_mla()) {
    const double q_head = d(m.qk_nope_head_dim + m.qk_rope_head_dim);
    const double q = m.q_lora_rank > 0
                         ? hidden * d(m.q_lora_rank) + d(m.q_lora_rank) + d(m.q_lora_rank) * d(m.num_heads) * q_head
                         : hidden * d(m.num_heads) * q_head;
    const double kv_down = hidden * d(m.kv_lora_rank + m.qk_rope_head_dim) + d(m.kv_lora_rank);
    const double kv_up = d(m.kv_lora_rank) * d(m.num_heads) * d(m.qk_nope_head_dim + m.v_head_dim);
    return q + kv_down + kv_up + d(m.num_heads) * d(m.v_head_dim) * hidden;
  }
  const double qkv_columns = d(m.num_heads + 2 * m.num_kv_heads) * d(m.head_size);
  double parameters = hidden * qkv_columns + d(m.num_heads) * d(m.head_size) * hidden;
  parameters += m.qkv_bias ? qkv_columns : 0;
  parameters += m.qk_norm ? 2 * d(m.head_size) : 0;
  return parameters;
}

double mlp_parameters(const ModelArch& m, std::int64_t intermediate) {
  return d(m.hidden_size) * d(intermediate) * (m.gated_mlp ? 3 : 2);
}

// One layer's feed-forward part with so many of its routed experts.
double feed_forward_parameters(const ModelArch& m, const LayerGroup& group, std::int64_t experts) {
  if (!group.moe) {
    return mlp_parameters(m, m.intermediate_size);
  }
  return mlp_parameters(m, m.moe_intermediate_size) * d(experts + m.num_shared_experts) +
         d(m.hidden_size) * d(m.num_experts);  // The router.
}

double count_parameters(const ModelArch& m, bool active_only) {
  const double norms = 2 * d(m.hidden_size);
  double parameters = d(m.vocab_size) * d(m.hidden_size) * (m.tied_embeddings ? 1 : 2) + d(m.hidden_size);
  for (const LayerGroup& group : m.layers) {
    const std::int64_t experts = active_only ? m.experts_per_token : m.num_experts;
    parameters += d(group.count) * (attention_parameters(m) + norms + feed_forward_parameters(m, group, experts));
  }
  return parameters;
}

}  // namespace

double parameter_count(const ModelArch& model) { return count_parameters(model, false); }
double active_parameter_count(const ModelArch& model) { return count_parameters(model, true); }

std::int64_t kv_values_per_token_and_layer(const ModelArch& model) {
  return model.is_mla() ? model.kv_lora_rank + model.qk_rope_head_dim : 2 * model.num_kv_heads * model.head_size;
}

}  // namespace kneepoint::hw
