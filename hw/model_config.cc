// One function an architecture reads what its config.json says beside the common
// sizes; kArchitectures is the list of them.
//
// Mixed attention: the layers that attend to a window and those that see all are
// one LayerGroup each, in no particular order; what counts is how many there are.
#include "hw/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "hw/closest_name.h"
#include "hw/json_fields.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

using Json = nlohmann::json;

// Positions and windows may be written as large as "no limit".
constexpr std::int64_t kMostPositions = std::int64_t{1} << 40;
// Their product with layers and a context still fits 63 bits of bytes.
constexpr std::int64_t kMostHeads = 1 << 14;
constexpr std::int64_t kMostLayers = 1 << 12;

std::int64_t window_of(const JsonFields& fields) {
  return fields.size_or("sliding_window", 0, 0, kMostPositions);
}

void set_groups(ModelArch& m, std::int64_t windowed, std::int64_t window, bool moe) {
  m.layers.clear();
  if (windowed > 0) {
    m.layers.push_back({.count = windowed, .attention_window = window, .moe = moe});
  }
  if (m.num_layers > windowed) {
    m.layers.push_back({.count = m.num_layers - windowed, .moe = moe});
  }
}

// How many layers have a window: by layer_types if given, else all but every
// `period`-th.
void read_windows(const JsonFields& fields, ModelArch& m, std::int64_t default_period, bool moe) {
  const std::int64_t window = window_of(fields);
  std::int64_t windowed = 0;
  if (const Json* types = fields.list("layer_types")) {
    if (static_cast<std::int64_t>(types->size()) != m.num_layers) {
      fields.fail("layer_types", fmt::format("has {} entries for {} layers", types->size(), m.num_layers));
    }
    windowed = std::ranges::count(*types, Json("sliding_attention"));
  } else if (window > 0) {
    windowed = m.num_layers - m.num_layers / fields.size_or("sliding_window_pattern", default_period, 1);
  }
  if (windowed > 0 && window == 0) {
    fields.fail("sliding_window", "is missing, but layer_types names sliding_attention");
  }
  set_groups(m, windowed, window, moe);
}

void read_dense(const JsonFields&, ModelArch& m) {
  set_groups(m, 0, 0, false);
}

// A window, if there is one, on every layer.
void read_mistral(const JsonFields& fields, ModelArch& m) {
  const std::int64_t window = window_of(fields);
  set_groups(m, window > 0 ? m.num_layers : 0, window, false);
}

// Qwen gives a window and, mostly, says not to use it; where it is used, the first
// max_window_layers see all.
void read_qwen_windows(const JsonFields& fields, ModelArch& m) {
  if (!fields.flag_or("use_sliding_window", false)) {
    read_dense(fields, m);
  } else if (fields.has("layer_types")) {
    read_windows(fields, m, 1, false);
  } else {
    const std::int64_t full = std::min(m.num_layers, fields.size_or("max_window_layers", m.num_layers));
    set_groups(m, window_of(fields) > 0 ? m.num_layers - full : 0, window_of(fields), false);
  }
}

void read_qwen2(const JsonFields& fields, ModelArch& m) {
  m.qkv_bias = true;
  read_qwen_windows(fields, m);
}

void read_qwen3(const JsonFields& fields, ModelArch& m) {
  m.qk_norm = true;
  read_qwen_windows(fields, m);
}

void read_experts(const JsonFields& fields, ModelArch& m, const char* count_field) {
  m.num_experts = fields.size(count_field, 1, kMostHeads);
  m.experts_per_token = fields.size("num_experts_per_tok", 1, kMostHeads);
  if (m.experts_per_token > m.num_experts) {
    fields.fail("num_experts_per_tok",
                fmt::format("is {}, but there are {} experts", m.experts_per_token, m.num_experts));
  }
}

void read_qwen3_moe(const JsonFields& fields, ModelArch& m) {
  m.qk_norm = true;
  read_experts(fields, m, "num_experts");
  m.moe_intermediate_size = fields.size("moe_intermediate_size");
  const std::int64_t step = fields.size_or("decoder_sparse_step", 1, 1);
  const Json* dense = fields.list("mlp_only_layers");
  std::int64_t moe_layers = 0;
  for (std::int64_t layer = 0; layer < m.num_layers; ++layer) {
    const bool listed = dense != nullptr && std::ranges::find(*dense, Json(layer)) != dense->end();
    moe_layers += !listed && (layer + 1) % step == 0 ? 1 : 0;
  }
  m.layers.clear();
  if (moe_layers < m.num_layers) {
    m.layers.push_back({.count = m.num_layers - moe_layers});
  }
  if (moe_layers > 0) {
    m.layers.push_back({.count = moe_layers, .moe = true});
  }
}

void read_mixtral(const JsonFields& fields, ModelArch& m) {
  read_experts(fields, m, "num_local_experts");
  m.moe_intermediate_size = m.intermediate_size;
  const std::int64_t window = window_of(fields);
  set_groups(m, window > 0 ? m.num_layers : 0, window, true);
}

// The first layers are dense; those after have experts, some shared by all tokens.
void read_deepseek(const JsonFields& fields, ModelArch& m) {
  m.kv_lora_rank = fields.size("kv_lora_rank");
  m.q_lora_rank = fields.size_or("q_lora_rank", 0, 1);
  m.qk_rope_head_dim = fields.size("qk_rope_head_dim", 1, kMostHeads);
  m.qk_nope_head_dim = fields.size("qk_nope_head_dim", 1, kMostHeads);
  m.v_head_dim = fields.size("v_head_dim", 1, kMostHeads);
  m.head_size = m.qk_nope_head_dim + m.qk_rope_head_dim;
  read_experts(fields, m, "n_routed_experts");
  m.num_shared_experts = fields.size_or("n_shared_experts", 0, 0, kMostHeads);
  m.moe_intermediate_size = fields.size("moe_intermediate_size");
  const std::int64_t dense = std::min(fields.size_or("first_k_dense_replace", 0), m.num_layers);
  m.layers.clear();
  if (dense > 0) {
    m.layers.push_back({.count = dense});
  }
  if (m.num_layers > dense) {
    m.layers.push_back({.count = m.num_layers - dense, .moe = true});
  }
}

void read_gemma2(const JsonFields& fields, ModelArch& m) {
  m.tied_embeddings = fields.flag_or("tie_word_embeddings", true);
  read_windows(fields, m, 2, false);
}

void read_gemma3(const JsonFields& fields, ModelArch& m) {
  m.tied_embeddings = fields.flag_or("tie_word_embeddings", true);
  m.qk_norm = true;
  read_windows(fields, m, 6, false);
}

void read_gpt_oss(const JsonFields& fields, ModelArch& m) {
  m.qkv_bias = true;
  read_experts(fields, m, "num_local_experts");
  m.moe_intermediate_size = m.intermediate_size;
  read_windows(fields, m, 2, true);
}

void read_phi(const JsonFields& fields, ModelArch& m) {
  m.qkv_bias = true;
  m.gated_mlp = false;
  read_dense(fields, m);
}

// What a config.json may leave out because its model class has a default; 0: it
// may not.
struct Defaults {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
};
constexpr Defaults kNone{};
constexpr Defaults kGemma2{.head_size = 256};
constexpr Defaults kGemma3{.num_heads = 8,
                           .num_kv_heads = 4,
                           .head_size = 256,
                           .vocab_size = 262208,
                           .max_position_embeddings = 131072};
constexpr Defaults kQwen3{.head_size = 128};

struct ArchitectureRow {
  const char* name;
  void (*read)(const JsonFields&, ModelArch&);
  Defaults defaults;
  bool positions_scaled = false;  ///< max_position_embeddings already includes rope scaling.
};

constexpr std::array kArchitectures{
    ArchitectureRow{"DeepseekV2ForCausalLM", &read_deepseek, kNone},
    ArchitectureRow{"DeepseekV3ForCausalLM", &read_deepseek, kNone},
    ArchitectureRow{"Gemma2ForCausalLM", &read_gemma2, kGemma2},
    ArchitectureRow{"Gemma3ForCausalLM", &read_gemma3, kGemma3, true},
    ArchitectureRow{"Gemma3ForConditionalGeneration", &read_gemma3, kGemma3, true},
    ArchitectureRow{"GptOssForCausalLM", &read_gpt_oss, kNone},
    ArchitectureRow{"LlamaForCausalLM", &read_dense, kNone},
    ArchitectureRow{"MistralForCausalLM", &read_mistral, kNone},
    ArchitectureRow{"MixtralForCausalLM", &read_mixtral, kNone},
    ArchitectureRow{"Phi3ForCausalLM", &read_mistral, kNone},
    ArchitectureRow{"PhiForCausalLM", &read_phi, kNone},
    ArchitectureRow{"Qwen2ForCausalLM", &read_qwen2, kNone},
    ArchitectureRow{"Qwen3ForCausalLM", &read_qwen3, kQwen3},
    ArchitectureRow{"Qwen3MoeForCausalLM", &read_qwen3_moe, kQwen3},
};

const ArchitectureRow& architecture_of(const JsonFields& fields) {
  const Json* list = fields.list("architectures");
  if (list == nullptr || list->empty() || !list->front().is_string()) {
    fields.fail("architectures", "is missing; a list with the architecture's name is needed");
  }
  const auto name = printable(list->front().get<std::string>());
  std::vector<std::string> known;
  for (const ArchitectureRow& row : kArchitectures) {
    if (name == row.name) {
      return row;
    }
    known.emplace_back(row.name);
  }
  const std::string closest = closest_name(name, known);
  fields.fail("architectures",
              fmt::format("names '{}', which is not modelled; {}", name,
                          closest.empty() ? fmt::format("modelled are {}", fmt::join(known, ", "))
                                          : fmt::format("the closest that is: {}", closest)));
}

std::int64_t size_or_default(const JsonFields& fields, const char* field, std::int64_t otherwise,
                             std::int64_t most = JsonFields::kLargest) {
  return otherwise > 0 ? fields.size_or(field, otherwise, 1, most) : fields.size(field, 1, most);
}

// YaRN and its like stretch the positions that the model was trained on; other
// kinds (llama3, longrope) are counted in max_position_embeddings already.
std::int64_t stretched_positions(const JsonFields& fields, std::int64_t positions) {
  const char* field = fields.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const Json* scaling = fields.object(field);
  if (scaling == nullptr) {
    return positions;
  }
  const JsonFields rope(*scaling, fields.file(), fmt::format("{}.", field));
  const std::string type = rope.text_or("rope_type", rope.text_or("type", ""));
  if (type != "yarn" && type != "linear" && type != "dynamic") {
    return positions;
  }
  const double factor = rope.number("factor", 1, 1024);
  const std::int64_t base =
      type == "yarn" ? rope.size_or("original_max_position_embeddings", positions, 1, kMostPositions)
                     : positions;
  return static_cast<std::int64_t>(static_cast<double>(base) * factor);
}

void read_sizes(const JsonFields& fields, const ArchitectureRow& row, ModelArch& m) {
  m.hidden_size = fields.size("hidden_size");
  m.intermediate_size = fields.size("intermediate_size");
  m.num_layers = fields.size("num_hidden_layers", 1, kMostLayers);
  m.num_heads = size_or_default(fields, "num_attention_heads", row.defaults.num_heads, kMostHeads);
  m.num_kv_heads =
      fields.size_or("num_key_value_heads",
                     row.defaults.num_kv_heads > 0 ? row.defaults.num_kv_heads : m.num_heads, 1, kMostHeads);
  if (m.num_heads % m.num_kv_heads != 0) {
    fields.fail("num_key_value_heads",
                fmt::format("is {}, which does not divide the {} heads", m.num_kv_heads, m.num_heads));
  }
  m.vocab_size = size_or_default(fields, "vocab_size", row.defaults.vocab_size);
  const std::int64_t even = m.hidden_size / m.num_heads;
  m.head_size =
      fields.size_or("head_dim", row.defaults.head_size > 0 ? row.defaults.head_size : even, 1, kMostHeads);
  if (m.head_size < 1 || m.head_size > kMostHeads) {
    fields.fail("hidden_size", fmt::format("is {} for {} heads; give head_dim", m.hidden_size, m.num_heads));
  }
  m.max_position_embeddings = size_or_default(fields, "max_position_embeddings",
                                              row.defaults.max_position_embeddings, kMostPositions);
  if (!row.positions_scaled) {
    m.max_position_embeddings = stretched_positions(fields, m.max_position_embeddings);
  }
  m.yarn_context = fields.size_or("yarn_context", 0, 0, kMostPositions);
  m.tied_embeddings = fields.flag_or("tie_word_embeddings", false);
  m.qkv_bias = fields.flag_or("attention_bias", false);
}

// The weights of a "compressed-tensors" checkpoint: those of its first group.
void read_compressed_tensors(const JsonFields& quantization, ModelArch& m) {
  const Json* groups = quantization.object("config_groups");
  if (groups == nullptr || groups->empty() || !groups->begin()->is_object()) {
    return;
  }
  const JsonFields group(*groups->begin(), quantization.file(), "quantization_config.config_groups.");
  if (const Json* weights = group.object("weights")) {
    const JsonFields values(*weights, quantization.file(), "quantization_config.config_groups.weights.");
    const std::int64_t bits = values.size("num_bits", 1, 32);
    m.weights_note =
        fmt::format("{}{}", bits == 8 && values.text_or("type", "") == "float" ? "fp" : "int", bits);
  }
  if (const Json* inputs = group.object("input_activations")) {
    const JsonFields values(*inputs, quantization.file(),
                            "quantization_config.config_groups.input_activations.");
    m.static_activation_scales = !values.flag_or("dynamic", false);
  }
}

void read_quantization(const JsonFields& fields, ModelArch& m) {
  const Json* config = fields.object("quantization_config");
  if (config == nullptr) {
    return;
  }
  const JsonFields quantization(*config, fields.file(), "quantization_config.");
  const std::string method = quantization.text_or("quant_method", "");
  if (method.empty()) {
    quantization.fail("quant_method", "is missing; the name of the quantisation is needed");
  }
  m.weights_note = printable(method);
  m.static_activation_scales =
      method == "modelopt" || quantization.text_or("activation_scheme", "dynamic") == "static";
  if (method == "mxfp4") {  // Blocks of 4-bit weights with a scale, computed in bf16 like int4; experts only.
    m.weights_note = "int4";
    m.only_experts_quantised = true;
  } else if (method == "compressed-tensors") {
    read_compressed_tensors(quantization, m);
  } else if ((method == "awq" || method == "gptq") && quantization.size_or("bits", 4, 1, 32) != 4) {
    m.weights_note = fmt::format("int{}", quantization.size("bits", 1, 32));
  }
}

}  // namespace

ModelArch parse_model_config(std::string_view text, const std::string& file, const std::string& name) {
  const Json config = Json::parse(text, nullptr, false);
  if (config.is_discarded() || !config.is_object()) {
    throw SpecError(fmt::format("{}: not a JSON object; give a Hugging Face config.json", file));
  }
  const JsonFields outer(config, file);
  const ArchitectureRow& architecture = architecture_of(outer);
  // Multimodal models keep the language model's shapes one level down.
  const Json* text_config = outer.object("text_config");
  const JsonFields fields(text_config != nullptr ? *text_config : config, file,
                          text_config != nullptr ? "text_config." : "");
  ModelArch m;
  m.name = name;
  m.architecture = architecture.name;
  m.source = outer.text_or("source", file);
  read_sizes(fields, architecture, m);
  architecture.read(fields, m);
  read_quantization(outer, m);
  return m;
}

}  // namespace kneepoint::hw
