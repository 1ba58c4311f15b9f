// Architectures from config.json: the parameters they imply are the published
// ones, and what is wrong with a file is said in one line.
#include "hw/model_arch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "hw/embedded_text.h"
#include "hw/model_config.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

constexpr double kBillion = 1e9;

struct PublishedCase {
  const char* name;
  double parameters;  // Billions, as the model's makers state them.
  double active;      // The same; 0 for a dense model.
};

// Model cards and papers: Llama 2 (arXiv 2307.09288), Llama 3 (2407.21783), Code Llama
// (2308.12950), Mixtral (2401.04088), Qwen2.5 and Qwen3 model cards, DeepSeek-V3
// (2412.19437; without its multi-token-prediction module).
const PublishedCase kPublished[] = {
    {"codellama-34b", 33.7, 0},  {"deepseek-v3", 671, 37},     {"llama-2-70b", 69.0, 0},
    {"llama-2-7b", 6.74, 0},     {"llama-3.1-70b", 70.55, 0},  {"llama-3.1-8b", 8.03, 0},
    {"llama-3.3-70b", 70.55, 0}, {"mixtral-8x22b", 140.6, 39}, {"mixtral-8x7b", 46.7, 12.9},
    {"qwen2.5-7b", 7.62, 0},     {"qwen3-14b", 14.8, 0},       {"qwen3-30b-a3b", 30.5, 3.3},
    {"qwen3-32b", 32.8, 0},
};

TEST(BundledModels, HaveThePublishedParameters) {
  ASSERT_EQ(model_names().size(), std::size(kPublished));
  for (const PublishedCase& c : kPublished) {
    SCOPED_TRACE(c.name);
    const ModelArch model = load_model(c.name);
    EXPECT_NEAR(parameter_count(model) / kBillion, c.parameters, 0.01 * c.parameters);
    if (c.active > 0) {  // Stated cut to 2 digits.
      EXPECT_NEAR(active_parameter_count(model) / kBillion, c.active, 0.02 * c.active);
    } else {
      EXPECT_DOUBLE_EQ(active_parameter_count(model), parameter_count(model));
    }
    std::int64_t layers = 0;
    for (const LayerGroup& group : model.layers) {
      layers += group.count;
    }
    EXPECT_EQ(layers, model.num_layers);
    EXPECT_FALSE(model.source.empty());
  }
}

TEST(BundledModels, CountToTheLastParameter) {
  // Llama 3.1 8B, its 8,030,261,248 parameters by hand: two tables 128,256 x 4096;
  // 32 layers of 4096 x (4096 + 1024 + 1024) + 4096 x 4096 attention, 3 x 4096 x 14,336
  // MLP and two norms of 4096; one last norm.
  const double layer = 4096.0 * 6144 + 4096.0 * 4096 + 3 * 4096.0 * 14336 + 2 * 4096;
  EXPECT_DOUBLE_EQ(2 * 128256.0 * 4096 + 32 * layer + 4096, 8030261248.0);
  EXPECT_DOUBLE_EQ(parameter_count(load_model("llama-3.1-8b")), 8030261248.0);
}

TEST(BundledModels, GoByTheirHuggingFaceIds) {
  struct Case {
    const char* id;
    const char* name;
    const char* weights_note;
    bool static_scales;
  };
  const Case cases[] = {
      {"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", "", false},
      {"META-LLAMA/llama-3.1-8b-instruct", "llama-3.1-8b", "", false},
      {"meta-llama/Llama-2-7b-hf", "llama-2-7b", "", false},
      {"meta-llama/Llama-2-70b-hf", "llama-2-70b", "", false},
      {"codellama/CodeLlama-34b-Instruct-hf", "codellama-34b", "", false},
      {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b", "", false},
      {"meta-llama/Llama-3.1-70B", "llama-3.1-70b", "", false},
      {"Qwen/Qwen3-32B", "qwen3-32b", "", false},
      {"deepseek-ai/DeepSeek-V3", "deepseek-v3", "fp8", false},
      {"meta-llama/Meta-Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b", "fp8", false},
      {"nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", "fp8", true},
      {"RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8", false},
      {"Qwen/Qwen3-32B-AWQ", "qwen3-32b", "awq", false},
      {"Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "qwen2.5-7b", "gptq", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.id);
    const ModelArch model = load_model(c.id);
    EXPECT_EQ(model.name, c.name);
    EXPECT_EQ(model.weights_note, c.weights_note);
    EXPECT_EQ(model.static_activation_scales, c.static_scales);
  }
  // The base model's config.json gives a longer context than the Instruct one's.
  EXPECT_EQ(load_model("Qwen/Qwen2.5-7B").max_position_embeddings, 131072);
  EXPECT_EQ(load_model("Qwen/Qwen2.5-7B-Instruct").max_position_embeddings, 32768);
}

struct ConfigCase {
  const char* name;
  const char* config;
  double parameters;      // Billions, published.
  std::int64_t windowed;  // Layers with a window.
  std::int64_t window;
  std::int64_t positions;
};

// The facts of published config.json files, cut to what decides. Published sizes are
// of the language model alone.
const ConfigCase kConfigs[] = {
    {"Mistral7B",
     R"({"architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
         "sliding_window": 4096})",
     7.24, 32, 4096, 32768},
    {"Gemma2_9B",
     R"({"architectures": ["Gemma2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000,
         "max_position_embeddings": 8192, "sliding_window": 4096})",
     9.24, 21, 4096, 8192},
    // Heads, vocabulary and positions are the model class's defaults; every sixth
    // layer sees all: 34 - 5. 128K positions include the scaling.
    {"Gemma3_4B",
     R"({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"hidden_size": 2560,
         "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
         "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}, "vision_config": {"hidden_size": 1152}})",
     3.88, 29, 1024, 131072},
    {"GptOss20B",
     R"({"architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
         "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "sliding_window": 128,
         "num_local_experts": 32, "num_experts_per_tok": 4, "max_position_embeddings": 131072, "attention_bias": true,
         "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
         "quantization_config": {"quant_method": "mxfp4"}})",
     20.9, 12, 128, 131072},
    {"Phi2",
     R"({"architectures": ["PhiForCausalLM"], "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": null, "vocab_size": 51200, "max_position_embeddings": 2048})",
     2.78, 0, 0, 2048},
    {"Phi3Mini",
     R"({"architectures": ["Phi3ForCausalLM"], "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "max_position_embeddings": 4096,
         "sliding_window": 2047})",
     3.82, 32, 2047, 4096},
    {"DeepSeekV2Lite",
     R"({"architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 2048, "intermediate_size": 10944,
         "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
         "q_lora_rank": null, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
         "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
         "vocab_size": 102400, "max_position_embeddings": 163840,
         "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}})",
     15.7, 0, 0, 163840},
    // Qwen names a window and says not to use it; YaRN stretches 32,768 by 4.
    {"Qwen25WithYarn",
     R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
         "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768,
         "sliding_window": 131072, "use_sliding_window": false, "max_window_layers": 28,
         "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}})",
     7.62, 0, 0, 131072},
};

class Config : public testing::TestWithParam<ConfigCase> {};

TEST_P(Config, IsReadAsPublished) {
  const ConfigCase& c = GetParam();
  const ModelArch model = parse_model_config(c.config, "config.json", c.name);
  EXPECT_NEAR(parameter_count(model) / kBillion, c.parameters, 0.01 * c.parameters);
  std::int64_t windowed = 0;
  for (const LayerGroup& group : model.layers) {
    if (group.attention_window > 0) {
      windowed += group.count;
      EXPECT_EQ(group.attention_window, c.window);
    }
  }
  EXPECT_EQ(windowed, c.windowed);
  EXPECT_EQ(model.max_position_embeddings, c.positions);
}

INSTANTIATE_TEST_SUITE_P(, Config, testing::ValuesIn(kConfigs),
                         [](const auto& row) { return std::string(row.param.name); });

// A small Llama with `fields` put before its own, so that they win or add.
std::string llama_with(const std::string& field, const std::string& value) {
  const std::pair<const char*, const char*> facts[] = {{"architectures", R"(["LlamaForCausalLM"])"},
                                                       {"hidden_size", "512"},
                                                       {"intermediate_size", "1024"},
                                                       {"num_hidden_layers", "4"},
                                                       {"num_attention_heads", "8"},
                                                       {"num_key_value_heads", "2"},
                                                       {"vocab_size", "1000"},
                                                       {"max_position_embeddings", "2048"}};
  std::string text;
  bool own = false;
  for (const auto& [name, fact] : facts) {
    own = own || field == name;
    if (field != name || !value.empty()) {
      text += std::string(text.empty() ? "{" : ", ") + "\"" + name +
              "\": " + (field == name ? value : std::string(fact));
    }
  }
  return text + (own ? "}" : ", \"" + field + "\": " + value + "}");
}

std::string error_of(const std::string& config) {
  try {
    (void)parse_model_config(config, "some/config.json", "some");
  } catch (const SpecError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Quantisation, IsReadIntoTheNote) {
  struct Case {
    const char* config;
    const char* note;
    bool static_scales;
  };
  const Case cases[] = {
      {R"({"quant_method": "fp8", "activation_scheme": "dynamic"})", "fp8", false},
      {R"({"quant_method": "fp8", "activation_scheme": "static"})", "fp8", true},
      {R"({"quant_method": "awq", "bits": 4})", "awq", false},
      {R"({"quant_method": "gptq", "bits": 8})", "int8", false},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"},
           "input_activations": null}}})",
       "int4", false},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"},
           "input_activations": {"dynamic": false}}}})",
       "fp8", true},
      {R"({"quant_method": "mxfp4"})", "int4", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.config);
    const ModelArch model =
        parse_model_config(llama_with("quantization_config", c.config), "config.json", "some");
    EXPECT_EQ(model.weights_note, c.note);
    EXPECT_EQ(model.static_activation_scales, c.static_scales);
  }
}

TEST(HostileConfig, IsRefusedInOneLineThatNamesFileAndField) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  struct Case {
    std::string field;
    std::string value;  // "": the field is missing.
    const char* said;
  };
  const Case cases[] = {
      {"hidden_size", "", "field 'hidden_size' is missing"},
      {"hidden_size", "-1", "field 'hidden_size' is -1"},
      {"hidden_size", "0", "field 'hidden_size' is 0"},
      {"hidden_size", "512.5", "field 'hidden_size' is 512.5"},
      {"hidden_size", "\"512\"", "field 'hidden_size' is of type string"},
      {"hidden_size", "true", "field 'hidden_size' is of type boolean"},
      {"hidden_size", "9223372036854775808", "field 'hidden_size' is 9223372036854775808"},
      {"hidden_size", "-9223372036854775808", "field 'hidden_size' is -9223372036854775808"},
      {"hidden_size", "99999999999999999999999", "field 'hidden_size' is "},
      {"hidden_size", deep, "field 'hidden_size' is of type array"},
      {"num_hidden_layers", "100000", "field 'num_hidden_layers' is 100000"},
      {"num_attention_heads", "null", "field 'num_attention_heads' is missing"},
      {"num_key_value_heads", "3", "field 'num_key_value_heads' is 3, which does not divide the 8 heads"},
      {"num_key_value_heads", "0", "field 'num_key_value_heads' is 0"},
      {"num_attention_heads", "1024", "give head_dim"},
      {"architectures", "", "field 'architectures' is missing"},
      {"architectures", "[]", "field 'architectures' is missing"},
      {"architectures", "\"LlamaForCausalLM\"", "field 'architectures' is of type string"},
      {"architectures", R"(["LlamaForCausalLN"])", "the closest that is: LlamaForCausalLM"},
      {"architectures", R"(["Mamba2ForCausalLM"])", "which is not modelled; the closest that is:"},
      {"architectures", R"(["A\nB"])", "names 'A?B'"},
      {"tie_word_embeddings", "\"yes\"",
       "field 'tie_word_embeddings' is of type string; true or false is needed"},
      {"rope_scaling", "\"yarn\"", "field 'rope_scaling' is of type string"},
      {"rope_scaling", R"({"rope_type": "yarn"})", "field 'rope_scaling.factor' is missing"},
      {"rope_scaling", R"({"rope_type": "yarn", "factor": -4})", "field 'rope_scaling.factor' is -4"},
      {"quantization_config", "[]", "field 'quantization_config' is of type array"},
      {"quantization_config", "{}", "field 'quantization_config.quant_method' is missing"},
      {"text_config", "7", "field 'text_config' is 7; an object"},
      {"text_config", "{}", "field 'text_config.hidden_size' is missing"},
  };
  for (const Case& c : cases) {
    const std::string said = error_of(llama_with(c.field, c.value));
    EXPECT_THAT(said, testing::HasSubstr(c.said));
    EXPECT_THAT(said, testing::StartsWith("some/config.json: "));
    EXPECT_EQ(said.find('\n'), std::string::npos);
    EXPECT_LT(said.size(), 400U);
  }
  EXPECT_EQ(error_of(llama_with("torch_dtype", "\"bfloat16\"")), "no error");
}

TEST(HostileConfig, OfOtherArchitecturesToo) {
  const auto mixtral = [](const std::string& experts, const std::string& chosen) {
    return R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 512, "intermediate_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 8, "vocab_size": 100, "max_position_embeddings": 100, "num_local_experts": )" +
           experts + R"(, "num_experts_per_tok": )" + chosen + "}";
  };
  EXPECT_THAT(error_of(mixtral("8", "9")),
              testing::HasSubstr("'num_experts_per_tok' is 9, but there are 8 experts"));
  EXPECT_THAT(error_of(mixtral("-8", "2")), testing::HasSubstr("'num_local_experts' is -8"));
  const std::string gemma =
      R"({"architectures": ["Gemma3ForCausalLM"], "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 3,)";
  EXPECT_THAT(error_of(gemma + R"("sliding_window": 8, "layer_types": ["full_attention"]})"),
              testing::HasSubstr("'layer_types' has 1 entries for 3 layers"));
  EXPECT_THAT(error_of(gemma + R"("sliding_window": 8, "sliding_window_pattern": 0})"),
              testing::HasSubstr("'sliding_window_pattern' is 0"));
}

TEST(HostileConfig, ThatIsNoJsonIsSaidToBeNone) {
  for (const char* text : {"", "{", "[]", "null", "\"x\"", "{\"a\": \xff}", "<html>"}) {
    EXPECT_THAT(error_of(text), testing::HasSubstr("not a JSON object")) << text;
  }
}

// Damaged files: a byte changed, a stretch cut out, a number blown up. Each is read as
// a model whose counts are finite, or refused in one line; nothing else happens.
TEST(HostileConfig, DamagedFilesAreReadOrRefused) {
  boost::random::mt19937 random(20261201);
  const auto below = [&](std::size_t n) {
    return boost::random::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const char* const values[] = {"-1",   "0",       "9223372036854775808", "1e308", "null", "[[]]", "{}",
                                "\"\"", "16777216"};
  int refused = 0;
  int read = 0;
  for (const bundled::EmbeddedText& model : bundled::models()) {
    for (int i = 0; i < 300; ++i) {
      std::string text(model.text);
      const std::size_t at = below(text.size());
      if (i % 3 == 0) {
        text[at] = static_cast<char>(below(256));
      } else if (i % 3 == 1) {
        text.erase(at, 1 + below(40));
      } else if (const std::size_t colon = text.find(": ", at); colon != std::string::npos) {
        text.replace(colon + 2, text.find_first_of(",\n", colon) - colon - 2,
                     values[below(std::size(values))]);
      }
      try {
        const ModelArch arch = parse_model_config(text, "damaged.json", "damaged");
        EXPECT_TRUE(std::isfinite(parameter_count(arch)));
        EXPECT_GT(kv_values_per_token_and_layer(arch), 0);
        read += 1;
      } catch (const SpecError& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
        EXPECT_THAT(error.what(), testing::StartsWith("damaged.json: "));
        refused += 1;
      }
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST(ModelFiles, AreReadFromAPathOrItsFolder) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "kneepoint_model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << llama_with("head_dim", "64");
  EXPECT_EQ(load_model(folder.string()).head_size, 64);
  EXPECT_EQ(load_model((folder / "config.json").string()).hidden_size, 512);
}

TEST(ModelFiles, UnknownNamesGetTheClosestKnownOne) {
  const auto said = [](const std::string& name) -> std::string {
    try {
      (void)load_model(name);
    } catch (const SpecError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(said("llama-3.1-8"), testing::HasSubstr("did you mean 'llama-3.1-8b'?"));
  EXPECT_THAT(said("meta-llama/Llama-3.1-8B-Instuct"),
              testing::HasSubstr("did you mean 'meta-llama/Llama-3.1-8B-Instruct'?"));
  EXPECT_THAT(said("missing/config.json"), testing::HasSubstr("missing/config.json: cannot be read"));
  EXPECT_EQ(said("a\nb").find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kneepoint::hw
