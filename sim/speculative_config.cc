#include "sim/speculative_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "hw/model_arch.h"
#include "sim/json_flag.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const std::string& what) { throw UsageError("--speculative-config: " + what); }

struct Method {
  std::string_view name;
  engine::SpeculativeMethod engine;
  hw::Drafter drafter;
};

constexpr std::array kMethods{
    Method{"ngram", engine::SpeculativeMethod::kNgram, hw::Drafter::kLookUp},
    Method{"eagle", engine::SpeculativeMethod::kEagle, hw::Drafter::kHead},
    Method{"eagle3", engine::SpeculativeMethod::kEagle, hw::Drafter::kHead},
    Method{"mtp", engine::SpeculativeMethod::kEagle, hw::Drafter::kHead},
    Method{"draft_model", engine::SpeculativeMethod::kDraftModel, hw::Drafter::kModel},
};

const Method& method_of(const Json& config) {
  const auto name = config.find("method");
  if (name == config.end() || !name->is_string()) {
    fail("key 'method' is missing: ngram, eagle, eagle3, mtp or draft_model");
  }
  const auto method = std::ranges::find(kMethods, name->get<std::string>(), [](const Method& m) { return std::string(m.name); });
  if (method == kMethods.end()) {
    fail(fmt::format("method '{}' is not modelled: ngram, eagle, eagle3, mtp and draft_model are", name->get<std::string>()));
  }
  return *method;
}

std::vector<double> rates_of(const Json& config) {
  std::vector<double> rates;
  const auto given = config.find("synthetic_acceptance_rates");
  if (given == config.end()) {
    return rates;
  }
  if (!given->is_array()) {
    fail("synthetic_acceptance_rates must be a list of rates from 0 to 1");
  }
  for (const Json& rate : *given) {
    if (!rate.is_number() || rate.get<double>() < 0 || rate.get<double>() > 1 ||
        (!rates.empty() && rate.get<double>() > rates.back())) {
      fail("synthetic_acceptance_rates must lie in 0 to 1 and not rise: rate i is that of drafts 1 to i all accepted");
    }
    rates.push_back(rate.get<double>());
  }
  return rates;
}

}  // namespace

void read_speculative_config(const std::string& text, RunConfig& config) {
  if (text.empty()) {
    return;
  }
  const Json json = parse_flat_json(text);
  if (!json.is_object()) {
    fail(R"(not a JSON object; write {"method": "ngram", "num_speculative_tokens": 4})");
  }
  static constexpr std::array kKeys = {"method", "num_speculative_tokens", "model", "disable_eagle_block_drop",
                                       "rejection_sample_method", "synthetic_acceptance_rates", "prompt_lookup_max",
                                       "prompt_lookup_min"};
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kKeys, std::string_view(key)) == kKeys.end()) {
      fail(fmt::format("key '{}' is not modelled; modelled are {}", key, fmt::join(kKeys, ", ")));
    }
  }
  const Method& method = method_of(json);
  const auto count = json.find("num_speculative_tokens");
  if (count == json.end() || !count->is_number_integer() || *count < 1 || *count > 64) {
    fail("num_speculative_tokens must be a whole number from 1 to 64");
  }
  config.engine.spec_method = method.engine;
  config.engine.num_speculative_tokens = count->get<std::int64_t>();
  const auto drop = json.find("disable_eagle_block_drop");
  if (drop != json.end() && !drop->is_boolean()) {
    fail("disable_eagle_block_drop is true or false");
  }
  config.engine.disable_eagle_block_drop = drop != json.end() && drop->get<bool>();
  config.deployment.drafter = method.drafter;
  config.draft_acceptance_rates = rates_of(json);
  if (method.drafter == hw::Drafter::kModel) {
    if (!json.contains("model") || !json["model"].is_string()) {
      fail("method draft_model needs 'model', a bundled name or the path of a config.json");
    }
    config.deployment.draft_model = hw::load_model(json["model"].get<std::string>());
  }
  if (config.draft_acceptance_rates.empty()) {
    config.provenance.push_back("drafts: every one is accepted; give synthetic_acceptance_rates for a real drafter");
  }
}

}  // namespace kneepoint::sim
