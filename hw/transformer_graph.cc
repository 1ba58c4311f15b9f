// Builds the operator graph of a decoder-only transformer, layer by layer.
#include <algorithm>
#include <boost/assert.hpp>
#include <set>
#include <utility>

#include "hw/operator_graph.h"

namespace kneepoint::hw {

namespace {

constexpr std::int64_t kBf16Bytes = 2;
constexpr std::int64_t kFloatBytes = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

class Builder {
 public:
  explicit Builder(const Deployment& deployment)
      : d_(deployment), model_(deployment.model), tp_(deployment.tensor_parallel_size) {}

  OperatorGraph build() {
    count_ = stage_count_ = 1;
    chain("embedding", elementwise(2 * hidden() * kBf16Bytes));
    all_reduce("all-reduce (embedding)");
    const std::vector<std::int64_t> windows = attention_windows_of(model_);
    for (const LayerGroup& group : model_.layers) layer(group, windows);
    count_ = d_.pipeline_parallel_size - 1;
    stage_count_ = count_ > 0 ? 1 : 0;
    if (count_ > 0) {  // Hidden state and residual go on to the next stage.
      chain("pipeline send",
            CollectiveOperator{{Collective::kSend, 2, 2 * hidden() * kBf16Bytes}, Rows::kTokens});
    }
    output();
    return std::move(graph_);
  }

 private:
  [[nodiscard]] std::int64_t hidden() const { return model_.hidden_size; }

  // Adds a vertex that needs the one before.
  OperatorVertex chain(std::string name, OperatorForm form) {
    const OperatorVertex vertex =
        add_vertex(Operator{std::move(name), std::move(form), count_, stage_count_}, graph_);
    if (vertex > 0) add_edge(vertex - 1, vertex, graph_);
    return vertex;
  }

  static ElementwiseOperator elementwise(std::int64_t bytes_per_row, Rows rows = Rows::kTokens) {
    return {bytes_per_row, rows};
  }

  // A linear layer in the weights' type.
  [[nodiscard]] GemmOperator linear(std::int64_t n, std::int64_t k, Rows rows = Rows::kTokens) const {
    return {{.precision = d_.weights, .n = n, .k = k, .static_scales = d_.static_fp8_scales}, rows};
  }
  // One that checkpoints leave in bf16: router, LM head, the latent's expansions.
  [[nodiscard]] static GemmOperator plain_linear(std::int64_t n, std::int64_t k, Rows rows = Rows::kTokens) {
    return {{.precision = Precision::kBf16, .n = n, .k = k}, rows};
  }

  void all_reduce(std::string name) {
    if (tp_ > 1) {
      chain(std::move(name),
            CollectiveOperator{{Collective::kAllReduce, tp_, hidden() * kBf16Bytes}, Rows::kTokens});
    }
  }

  // Adds to the residual and normalises: reads two rows, writes two.
  OperatorVertex norm(std::string name) {
    return chain(std::move(name), elementwise(4 * hidden() * kBf16Bytes));
  }

  void layer(const LayerGroup& group, const std::vector<std::int64_t>& windows) {
    count_ = group.count;
    stage_count_ = ceil_div(group.count, d_.pipeline_parallel_size);
    const OperatorVertex first = norm("norm (attention)");
    model_.is_mla() ? latent_attention() : attention(group, windows);
    all_reduce("all-reduce (attention)");
    const OperatorVertex second = norm("norm (MLP)");
    add_edge(first, second, graph_);  // The residual passes attention by.
    group.moe ? experts() : mlp();
    all_reduce("all-reduce (MLP)");
    residual_from_ = second;
  }

  void attention(const LayerGroup& group, const std::vector<std::int64_t>& windows) {
    const std::int64_t size = model_.head_size;
    const std::int64_t heads = ceil_div(model_.num_heads, tp_);
    const std::int64_t kv_heads = std::max<std::int64_t>(1, model_.num_kv_heads / tp_);  // Replicated beyond.
    chain("QKV", linear((heads + 2 * kv_heads) * size, hidden()));
    if (model_.qk_norm) chain("QK norm", elementwise(2 * (heads + kv_heads) * size * kBf16Bytes));
    // Queries and keys turned in place; keys and values written to the cache.
    const std::int64_t cache = d_.kv_cache == Precision::kFp8 ? 1 : kBf16Bytes;
    chain("rope, KV write", elementwise(2 * (heads + kv_heads) * size * kBf16Bytes +
                                        2 * kv_heads * size * (kBf16Bytes + cache)));
    AttentionHeads shape{.kv_precision = d_.kv_cache,
                         .num_heads = heads,
                         .num_kv_heads = kv_heads,
                         .head_size = size,
                         .window = group.attention_window};
    if (group.attention_window > 0) {
      const auto at = std::ranges::find(windows, group.attention_window);
      shape.window_index = static_cast<std::size_t>(at - windows.begin());
    }
    attention_pair(shape, shape);
    chain("output projection", linear(hidden(), heads * size));
  }

  void attention_pair(const AttentionHeads& decode, const AttentionHeads& prefill) {
    chain("attention (decode)", DecodeAttentionOperator{{decode, prefill}});
    chain("attention (prefill)", PrefillAttentionOperator{{decode, prefill}});
  }

  // Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). The cache holds
  // one latent a token. A decode attends to the latents themselves, its queries
  // carried over by W_UK ("absorbed"): one KV head of kv_lora_rank + rope values,
  // of which the first kv_lora_rank are the values too. A prefill expands the
  // latents to keys and values of every head.
  //
  // AttentionHeads counts 2 head_size values a token and KV head and 4 head_size
  // FLOP a pair and query head; sizes and heads below are such that both come out.
  void latent_attention() {
    const std::int64_t latent = model_.kv_lora_rank, rope = model_.qk_rope_head_dim;
    const std::int64_t key = model_.qk_nope_head_dim + rope, value = model_.v_head_dim;
    const std::int64_t heads = ceil_div(model_.num_heads, tp_);
    if (model_.q_lora_rank > 0) {
      chain("Q, KV down", linear(model_.q_lora_rank + latent + rope, hidden()));
      chain("latent norm", elementwise(2 * (model_.q_lora_rank + latent) * kBf16Bytes));
      chain("Q up", linear(heads * key, model_.q_lora_rank));
    } else {
      chain("Q", linear(heads * key, hidden()));
      chain("KV down", linear(latent + rope, hidden()));
      chain("latent norm", elementwise(2 * latent * kBf16Bytes));
    }
    const std::int64_t cache = d_.kv_cache == Precision::kFp8 ? 1 : kBf16Bytes;
    chain("rope, KV write",
          elementwise(2 * (heads + 1) * rope * kBf16Bytes + (latent + rope) * (kBf16Bytes + cache)));
    chain("Q absorption (decode)",
          plain_linear(heads * latent, model_.qk_nope_head_dim, Rows::kDecodeTokens));
    chain("KV up (prefill)", linear(heads * (model_.qk_nope_head_dim + value), latent, Rows::kChunkContext));
    const AttentionHeads decode{.kv_precision = d_.kv_cache,
                                .num_heads = ceil_div(heads * (2 * latent + rope), latent + rope),
                                .num_kv_heads = 1,
                                .head_size = (latent + rope) / 2};
    const AttentionHeads prefill{.kv_precision = Precision::kBf16,
                                 .num_heads = heads,
                                 .num_kv_heads = heads,
                                 .head_size = (key + value) / 2};
    attention_pair(decode, prefill);
    chain("V up (decode)", plain_linear(heads * value, latent, Rows::kDecodeTokens));
    chain("output projection", linear(hidden(), heads * value));
  }

  void gated(const std::string& label, std::int64_t inner) {
    const std::int64_t parts = model_.gated_mlp ? 2 : 1;
    chain(label + (model_.gated_mlp ? "gate, up" : "up"), linear(parts * inner, hidden()));
    chain(label + "activation", elementwise((parts + 1) * inner * kBf16Bytes));
    chain(label + "down", linear(hidden(), inner));
  }

  void mlp() { gated("", ceil_div(model_.intermediate_size, tp_)); }

  // Without data parallelism every rank has all tokens: expert parallelism needs
  // no exchange of tokens, only the all-reduce that follows anyway.
  void experts() {
    if (model_.num_shared_experts > 0) {
      gated("shared experts: ", ceil_div(model_.num_shared_experts * model_.moe_intermediate_size, tp_));
    }
    chain("router", plain_linear(model_.num_experts, hidden()));
    chain("expert choice", elementwise(model_.num_experts * (kBf16Bytes + kFloatBytes)));
    const bool expert_parallel = d_.enable_expert_parallel && tp_ > 1;
    chain("experts", MoeOperator{{.precision = d_.weights,
                                  .hidden_size = hidden(),
                                  .intermediate_size = model_.moe_intermediate_size,
                                  .top_k = model_.experts_per_token,
                                  .num_experts = model_.num_experts,
                                  .moe_tp = expert_parallel ? 1 : tp_,
                                  .moe_ep = expert_parallel ? tp_ : 1}});
  }

  void output() {
    count_ = stage_count_ = 1;
    const OperatorVertex last = norm("norm (final)");
    if (residual_from_ != 0) add_edge(residual_from_, last, graph_);
    const std::int64_t vocabulary = ceil_div(model_.vocab_size, tp_);
    chain("LM head", plain_linear(vocabulary, hidden(), Rows::kSampled));
    if (tp_ > 1) {
      chain("all-gather (logits)",
            CollectiveOperator{{Collective::kAllGather, tp_, vocabulary * tp_ * kBf16Bytes}, Rows::kSampled});
    }
    // Logits become floats, then probabilities; one is drawn.
    chain("sampler", elementwise(model_.vocab_size * (kBf16Bytes + 2 * kFloatBytes), Rows::kSampled));
  }

  const Deployment& d_;
  const ModelArch& model_;
  std::int64_t tp_;
  OperatorGraph graph_;
  std::int64_t count_ = 1;
  std::int64_t stage_count_ = 1;
  OperatorVertex residual_from_ = 0;
};

}  // namespace

std::vector<std::int64_t> attention_windows_of(const ModelArch& model) {
  std::set<std::int64_t> windows;
  for (const LayerGroup& group : model.layers) {
    if (group.attention_window > 0) windows.insert(group.attention_window);
  }
  return {windows.begin(), windows.end()};
}

OperatorGraph build_operator_graph(const Deployment& deployment) {
  return Builder(deployment).build();
}

}  // namespace kneepoint::hw
