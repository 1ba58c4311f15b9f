#include "hw/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "hw/closest_name.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

using Json = nlohmann::json;

// Sizes above this are no model's, and their products would overflow.
constexpr std::int64_t kLargest = std::int64_t{1} << 31;

// Fields of one JSON object, each checked where it is read.
class Fields {
 public:
  Fields(const Json& object, const std::string& file) : object_(object), file_(file) {}

  [[noreturn]] void fail(const std::string& field, const std::string& what) const {
    throw SpecError(fmt::format("{}: field '{}' {}", file_, field, what));
  }

  [[nodiscard]] bool has(const char* field) const { return object_.contains(field) && !object_.at(field).is_null(); }

  [[nodiscard]] std::int64_t size(const char* field, std::int64_t least = 1) const {
    if (!has(field)) {
      fail(field, "is missing; it must be a whole number");
    }
    return checked(field, object_.at(field), least);
  }
  [[nodiscard]] std::int64_t size_or(const char* field, std::int64_t otherwise, std::int64_t least = 0) const {
    return has(field) ? checked(field, object_.at(field), least) : otherwise;
  }
  [[nodiscard]] bool flag_or(const char* field, bool otherwise) const {
    if (!has(field)) {
      return otherwise;
    }
    if (!object_.at(field).is_boolean()) {
      fail(field, "must be true or false");
    }
    return object_.at(field).get<bool>();
  }
  [[nodiscard]] const Json* list(const char* field) const {
    return has(field) && object_.at(field).is_array() ? &object_.at(field) : nullptr;
  }
  [[nodiscard]] const Json* object(const char* field) const {
    return has(field) && object_.at(field).is_object() ? &object_.at(field) : nullptr;
  }
  [[nodiscard]] std::string text_or(const char* field, const std::string& otherwise) const {
    return has(field) && object_.at(field).is_string() ? object_.at(field).get<std::string>() : otherwise;
  }

 private:
  [[nodiscard]] std::int64_t checked(const char* field, const Json& value, std::int64_t least) const {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > kLargest)) {
      fail(field, fmt::format("is {}; it must be a whole number from {} to {}", value.dump().substr(0, 40), least, kLargest));
    }
    const auto number = value.get<std::int64_t>();
    if (number < least || number > kLargest) {
      fail(field, fmt::format("is {}; it must be a whole number from {} to {}", number, least, kLargest));
    }
    return number;
  }

  const Json& object_;
  std::string file_;
};

// Layers that attend to a window while every `period`-th (1-based) sees all.
std::vector<LayerGroup> alternating(std::int64_t layers, std::int64_t window, std::int64_t period, bool moe) {
  const std::int64_t full = layers / period;
  std::vector<LayerGroup> groups;
  if (layers > full) {
    groups.push_back({.count = layers - full, .attention_window = window, .moe = moe});
  }
  if (full > 0) {
    groups.push_back({.count = full, .attention_window = 0, .moe = moe});
  }
  return groups;
}

std::int64_t count_windowed(const Fields& fields) {
  std::int64_t windowed = 0;
  if (const Json* types = fields.list("layer_types")) {
    for (const Json& type : *types) {
      windowed += type == "sliding_attention" ? 1 : 0;
    }
  }
  return windowed;
}

void read_windows(const Fields& fields, ModelArch& m, std::int64_t default_period, bool moe) {
  const std::int64_t window = fields.size_or("sliding_window", 0);
  if (const std::int64_t windowed = count_windowed(fields); windowed > 0) {
    m.layers = {{.count = windowed, .attention_window = window, .moe = moe}};
    if (windowed < m.num_layers) {
      m.layers.push_back({.count = m.num_layers - windowed, .attention_window = 0, .moe = moe});
    }
    return;
  }
  m.layers = window > 0 ? alternating(m.num_layers, window, fields.size_or("sliding_window_pattern", default_period, 1), moe)
                        : std::vector<LayerGroup>{{.count = m.num_layers, .moe = moe}};
}

void read_dense(const Fields&, ModelArch& m) { m.layers = {{.count = m.num_layers}}; }

void read_mistral(const Fields& fields, ModelArch& m) {
  m.layers = {{.count = m.num_layers, .attention_window = fields.size_or("sliding_window", 0)}};
}

void read_qwen2(const Fields& fields, ModelArch& m) {
  m.qkv_bias = true;
  read_dense(fields, m);
}

void read_qwen3(const Fields& fields, ModelArch& m) {
  m.qk_norm = true;
  read_dense(fields, m);
}

void read_experts(const Fields& fields, ModelArch& m, const char* count_field) {
  m.num_experts = fields.size(count_field);
  m.experts_per_token = fields.size("num_experts_per_tok");
  if (m.experts_per_token > m.num_experts) {
    fields.fail("num_experts_per_tok", fmt::format("is {}, but there are {} experts", m.experts_per_token, m.num_experts));
  }
}

void read_qwen3_moe(const Fields& fields, ModelArch& m) {
  m.qk_norm = true;
  read_experts(fields, m, "num_experts");
  m.moe_intermediate_size = fields.size("moe_intermediate_size");
  const std::int64_t step = fields.size_or("decoder_sparse_step", 1, 1);
  const Json* dense = fields.list("mlp_only_layers");
  std::int64_t moe_layers = 0;
  for (std::int64_t layer = 0; layer < m.num_layers; ++layer) {
    const bool listed = dense != nullptr && std::find(dense->begin(), dense->end(), Json(layer)) != dense->end();
    moe_layers += !listed && (layer + 1) % step == 0 ? 1 : 0;
  }
  m.layers = {{.count = moe_layers, .moe = true}};
  if (moe_layers < m.num_layers) {
    m.layers.push_back({.count = m.num_layers - moe_layers});
  }
}

void read_mixtral(const Fields& fields, ModelArch& m) {
  read_experts(fields, m, "num_local_experts");
  m.moe_intermediate_size = m.intermediate_size;
  m.layers = {{.count = m.num_layers, .attention_window = fields.size_or("sliding_window", 0), .moe = true}};
}

void read_deepseek(const Fields& fields, ModelArch& m) {
  m.kv_lora_rank = fields.size("kv_lora_rank");
  m.q_lora_rank = fields.size_or("q_lora_rank", 0);
  m.qk_rope_head_dim = fields.size("qk_rope_head_dim");
  m.qk_nope_head_dim = fields.size("qk_nope_head_dim");
  m.v_head_dim = fields.size("v_head_dim");
  m.head_size = m.qk_nope_head_dim + m.qk_rope_head_dim;
  read_experts(fields, m, "n_routed_experts");
  m.num_shared_experts = fields.size_or("n_shared_experts", 0);
  m.moe_intermediate_size = fields.size("moe_intermediate_size");
  const std::int64_t dense = std::min(fields.size_or("first_k_dense_replace", 0), m.num_layers);
  if (dense > 0) {
    m.layers.push_back({.count = dense});
  }
  if (m.num_layers > dense) {
    m.layers.push_back({.count = m.num_layers - dense, .moe = true});
  }
}

void read_gemma2(const Fields& fields, ModelArch& m) {
  m.tied_embeddings = fields.flag_or("tie_word_embeddings", true);
  read_windows(fields, m, 2, false);
}

void read_gemma3(const Fields& fields, ModelArch& m) {
  m.tied_embeddings = fields.flag_or("tie_word_embeddings", true);
  m.qk_norm = true;
  read_windows(fields, m, 6, false);
}

void read_gpt_oss(const Fields& fields, ModelArch& m) {
  m.qkv_bias = true;
  read_experts(fields, m, "num_local_experts");
  m.moe_intermediate_size = m.intermediate_size;
  read_windows(fields, m, 2, true);
}

void read_phi(const Fields& fields, ModelArch& m) {
  m.qkv_bias = true;
  m.gated_mlp = false;
  read_dense(fields, m);
}

struct ArchitectureRow {
  const char* name;
  void (*read)(const Fields&, ModelArch&);
};

constexpr std::array kArchitectures{
    ArchitectureRow{"DeepseekV2ForCausalLM", &read_deepseek},
    ArchitectureRow{"DeepseekV3ForCausalLM", &read_deepseek},
    ArchitectureRow{"Gemma2ForCausalLM", &read_gemma2},
    ArchitectureRow{"Gemma3ForCausalLM", &read_gemma3},
    ArchitectureRow{"Gemma3ForConditionalGeneration", &read_gemma3},
    ArchitectureRow{"GptOssForCausalLM", &read_gpt_oss},
    ArchitectureRow{"LlamaForCausalLM", &read_dense},
    ArchitectureRow{"MistralForCausalLM", &read_mistral},
    ArchitectureRow{"MixtralForCausalLM", &read_mixtral},
    ArchitectureRow{"Phi3ForCausalLM", &read_mistral},
    ArchitectureRow{"PhiForCausalLM", &read_phi},
    ArchitectureRow{"Qwen2ForCausalLM", &read_qwen2},
    ArchitectureRow{"Qwen3ForCausalLM", &read_qwen3},
    ArchitectureRow{"Qwen3MoeForCausalLM", &read_qwen3_moe},
};

const ArchitectureRow& architecture_of(const Fields& fields) {
  const Json* list = fields.list("architectures");
  if (list == nullptr || list->empty() || !list->front().is_string()) {
    fields.fail("architectures", "is missing; it must be a list with the architecture's name");
  }
  const auto name = list->front().get<std::string>();
  std::vector<std::string> known;
  for (const ArchitectureRow& row : kArchitectures) {
    if (name == row.name) {
      return row;
    }
    known.emplace_back(row.name);
  }
  const std::string closest = closest_name(name, known);
  fields.fail("architectures", fmt::format("names '{}', which is not modelled{}", name.substr(0, 60),
                                           closest.empty() ? fmt::format("; modelled are {}", fmt::join(known, ", "))
                                                           : fmt::format("; the closest that is: {}", closest)));
}

void read_sizes(const Fields& fields, ModelArch& m) {
  m.hidden_size = fields.size("hidden_size");
  m.intermediate_size = fields.size("intermediate_size");
  m.num_layers = fields.size("num_hidden_layers");
  m.num_heads = fields.size("num_attention_heads");
  m.num_kv_heads = fields.size_or("num_key_value_heads", m.num_heads, 1);
  m.vocab_size = fields.size("vocab_size");
  m.head_size = fields.size_or("head_dim", m.hidden_size / m.num_heads, 1);
  m.max_position_embeddings = fields.size("max_position_embeddings");
  m.yarn_context = fields.size_or("yarn_context", 0);
  m.tied_embeddings = fields.flag_or("tie_word_embeddings", false);
  m.qkv_bias = fields.flag_or("attention_bias", false);
  if (m.num_layers > 10'000) {
    fields.fail("num_hidden_layers", fmt::format("is {}; no model has more than 10,000", m.num_layers));
  }
  if (m.num_heads % m.num_kv_heads != 0) {
    fields.fail("num_key_value_heads", fmt::format("is {}, which does not divide the {} heads", m.num_kv_heads, m.num_heads));
  }
}

std::string quantization_of(const Fields& fields) {
  const Json* quantization = fields.object("quantization_config");
  if (quantization == nullptr) {
    return "";
  }
  const auto method = quantization->find("quant_method");
  return method != quantization->end() && method->is_string() ? method->get<std::string>() : "unknown";
}

}  // namespace

ModelArch parse_model_config(std::string_view text, const std::string& file, const std::string& name) {
  const Json config = Json::parse(text, nullptr, false);
  if (config.is_discarded() || !config.is_object()) {
    throw SpecError(fmt::format("{}: not a JSON object; give a Hugging Face config.json", file));
  }
  const Fields outer(config, file);
  const ArchitectureRow& architecture = architecture_of(outer);
  // Multimodal models keep the language model's shapes one level down.
  const Json* text_config = outer.object("text_config");
  const Fields fields(text_config != nullptr ? *text_config : config, file);

  ModelArch m;
  m.name = name;
  m.architecture = architecture.name;
  m.source = outer.text_or("source", file);
  m.weights_note = quantization_of(outer);
  read_sizes(fields, m);
  architecture.read(fields, m);
  return m;
}

}  // namespace kneepoint::hw
