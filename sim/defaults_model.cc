// What is served: model, GPU, how the one is split over several of the other, and
// in which types weights and KV cache are kept.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hw/deployment.h"
#include "sim/choices.h"
#include "sim/defaults_parts.h"

namespace kneepoint::sim {
namespace {

constexpr std::array kDtypes{
    Choice<const char*>{"auto", "bfloat16"}, Choice<const char*>{"bfloat16", "bfloat16"},
    Choice<const char*>{"float16", "float16"}, Choice<const char*>{"half", "float16"}};
constexpr std::array kQuantizations{
    Choice<hw::Precision>{"fp8", hw::Precision::kFp8},
    Choice<hw::Precision>{"fbgemm_fp8", hw::Precision::kFp8},
    Choice<hw::Precision>{"ptpc_fp8", hw::Precision::kFp8},
    Choice<hw::Precision>{"modelopt", hw::Precision::kFp8},
    Choice<hw::Precision>{"awq", hw::Precision::kInt4},
    Choice<hw::Precision>{"awq_marlin", hw::Precision::kInt4},
    Choice<hw::Precision>{"gptq", hw::Precision::kInt4},
    Choice<hw::Precision>{"gptq_marlin", hw::Precision::kInt4},
    Choice<hw::Precision>{"mxfp4", hw::Precision::kInt4},
    Choice<hw::Precision>{"int4", hw::Precision::kInt4},
    Choice<hw::Precision>{"none", hw::Precision::kBf16},
};
constexpr std::array kKvTypes{
    Choice<hw::Precision>{"auto", hw::Precision::kBf16},
    Choice<hw::Precision>{"bfloat16", hw::Precision::kBf16},
    Choice<hw::Precision>{"float16", hw::Precision::kBf16},
    Choice<hw::Precision>{"fp8", hw::Precision::kFp8},
    Choice<hw::Precision>{"fp8_e4m3", hw::Precision::kFp8},
    Choice<hw::Precision>{"fp8_e5m2", hw::Precision::kFp8},
};

// The checkpoint's own type, or what --quantization makes of a plain one; vLLM
// refuses to load a quantised checkpoint as something else.
void resolve_weights(const pb::RunConfig& asked, RunConfig& config) {
  hw::Deployment& d = config.deployment;
  const std::string& own = d.model.weights_note;
  std::string given = asked.quantization();
  if (given == "compressed-tensors") {  // Names a file format; the config.json says which type.
    if (own.empty()) {
      throw CannotRun(
          fmt::format("--quantization compressed-tensors: {} is not quantised; give fp8, awq or gptq",
                      config.model_name));
    }
    given = own;
  }
  const hw::Precision of_model =
      own.empty() ? hw::Precision::kBf16
                  : choose(fmt::format("model {}: its quantisation", config.model_name), own, kQuantizations);
  d.weights = given.empty() ? of_model : choose("--quantization", given, kQuantizations);
  if (!own.empty() && d.weights != of_model) {
    throw CannotRun(
        fmt::format("--quantization {} contradicts the {} weights of {}; leave it out, or give the "
                    "model that is not quantised",
                    given, own, config.model_name));
  }
  d.static_fp8_scales =
      d.weights == hw::Precision::kFp8 && (d.model.static_activation_scales || given == "modelopt");
  config.quantization = !given.empty() ? given : own.empty() ? "none" : own;
  config.provenance.push_back(fmt::format(
      "weights: {}, from {}", d.weights == hw::Precision::kBf16 ? config.dtype : config.quantization,
      given.empty() ? "the model" : "--quantization"));
}

void resolve_kv_cache(const pb::RunConfig& asked, RunConfig& config) {
  const std::string given = asked.has_kv_cache_dtype() ? asked.kv_cache_dtype() : "auto";
  config.deployment.kv_cache = choose("--kv-cache-dtype", given, kKvTypes);
  config.kv_cache_dtype = given == "auto" ? config.dtype : given;
  const char* with = given != "auto" ? "" : asked.has_dtype() ? " and --dtype" : " and the model";
  config.provenance.push_back(
      fmt::format("KV cache: {}, from --kv-cache-dtype {}{}", config.kv_cache_dtype, given, with));
}

// vLLM keeps one block table per kind of layer; the engine here has one group.
void resolve_windows(RunConfig& config) {
  const std::vector<hw::LayerGroup>& layers = config.deployment.model.layers;
  const auto has_window = [](const hw::LayerGroup& g) { return g.attention_window > 0; };
  if (layers.empty() || std::ranges::none_of(layers, has_window)) {
    return;
  }
  const std::int64_t window = layers.front().attention_window;
  if (std::ranges::all_of(layers, [&](const hw::LayerGroup& g) { return g.attention_window == window; })) {
    config.engine.sliding_window = window;
    config.provenance.push_back(
        fmt::format("KV blocks: one group with a sliding window of {} tokens", window));
    return;
  }
  config.provenance.emplace_back(
      "KV blocks: one full-attention group for all layers, as with --disable-hybrid-kv-cache-manager; step "
      "times use "
      "the windows");
}

void refuse_beside_server(const pb::RunConfig& asked) {
  for (const auto& [flag, given] :
       {std::pair{"gpu", asked.has_gpu()}, std::pair{"rates", asked.has_rates()}}) {
    if (given) {
      throw UsageError(fmt::format("--{} and --server both say how long steps take; give one of them", flag));
    }
  }
}

}  // namespace

void resolve_deployment(const pb::RunConfig& asked, RunConfig& config) {
  hw::Deployment& d = config.deployment;
  config.model_name = asked.has_model() ? asked.model() : "llama-3.1-8b";
  config.dtype = choose("--dtype", asked.has_dtype() ? asked.dtype() : "auto", kDtypes);
  d.tensor_parallel_size = asked.has_tensor_parallel_size() ? asked.tensor_parallel_size() : 1;
  d.pipeline_parallel_size = asked.has_pipeline_parallel_size() ? asked.pipeline_parallel_size() : 1;
  d.enable_expert_parallel = asked.enable_expert_parallel();
  config.server_file = asked.server();
  if (!config.server_file.empty()) {
    refuse_beside_server(asked);
    config.provenance.push_back(
        fmt::format("measured server {}: --model only names it; types and GPUs are the server's own",
                    std::filesystem::path(config.server_file).filename().string()));
    return;
  }
  config.gpu_name = asked.has_gpu() ? asked.gpu() : "h100";
  config.rates_file = asked.rates();
  d.model = hw::load_model(config.model_name);
  d.gpu = hw::load_gpu(config.gpu_name);
  resolve_weights(asked, config);
  resolve_kv_cache(asked, config);
  resolve_windows(config);
}

}  // namespace kneepoint::sim
