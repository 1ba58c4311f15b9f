// Scripts: the config, requests and aborts of a recorded case, with the recorder's defaults.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tests/golden/recorded_case.h"

namespace kneepoint::golden {

namespace {

using engine::SchedulerConfig;
using nlohmann::json;

// Tokens of a prompt given by its length alone: shared with nobody.
constexpr Token kFirstUnsharedToken = Token{1} << 40;

/// Takes options out of a JSON object and complains about those nobody took.
class Options {
 public:
  Options(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) {
      throw RecordingError(fmt::format("{}: not an object", where_));
    }
  }

  /// `fallback` if the option is absent or null.
  template <typename T>
  T take(const char* key, T fallback) {
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? fallback : found->template get<T>();
  }

  /// Nothing if the option is null; `absent` if it is not there.
  std::optional<std::int64_t> take_optional(const char* key,
                                            std::optional<std::int64_t> absent = std::nullopt) {
    known_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) {
      return absent;
    }
    return found->is_null() ? std::nullopt : std::optional{found->get<std::int64_t>()};
  }

  void complain_about_the_rest() const {
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key)) {
        throw RecordingError(fmt::format("{}: option '{}' is not known here", where_, key));
      }
    }
  }

 private:
  const json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

engine::SpeculativeMethod parse_method(const std::string& name, const std::string& where) {
  static const std::map<std::string, engine::SpeculativeMethod> kMethods{
      {"", engine::SpeculativeMethod::kNone},
      {"ngram", engine::SpeculativeMethod::kNgram},
      {"eagle", engine::SpeculativeMethod::kEagle},
      {"draft_model", engine::SpeculativeMethod::kDraftModel}};
  const auto found = kMethods.find(name);
  if (found == kMethods.end()) {
    throw RecordingError(fmt::format("{}: unknown spec_method '{}'", where, name));
  }
  return found->second;
}

/// A recording may hold configs that a server would refuse at startup, but none that mean nothing.
void refuse_the_meaningless(const SchedulerConfig& config, const std::string& where) {
  const std::int64_t retention = config.prefix_cache_retention_interval.value_or(0);
  const bool positive = config.block_size > 0 && config.num_blocks > 1 && config.max_num_seqs > 0 &&
                        config.max_num_batched_tokens > 0 && config.max_model_len > 1 &&
                        config.prefill_schedule_interval > 0 && config.pipeline_parallel_size > 0 &&
                        config.depth.value_or(1) > 0 && config.sliding_window.value_or(1) > 0;
  if (!positive || config.num_speculative_tokens < 0 || retention < 0 || retention % config.block_size != 0) {
    throw RecordingError(
        fmt::format("{}: a count is zero or negative, or the retention interval is no multiple of "
                    "block_size",
                    where));
  }
}

void parse_config(const json& object, const std::string& where, Script& script) {
  Options options(object, where);
  SchedulerConfig& config = script.config;
  config.block_size = options.take<std::int64_t>("block_size", 16);
  config.num_blocks = options.take<std::int64_t>("num_blocks", 1000);
  config.max_num_seqs = options.take<std::int64_t>("max_num_seqs", 16);
  config.max_num_batched_tokens = options.take<std::int64_t>("max_num_batched_tokens", 8192);
  config.max_num_scheduled_tokens = options.take_optional("max_num_scheduled_tokens");
  config.max_model_len = options.take<std::int64_t>("max_model_len", 8192);
  config.enable_chunked_prefill = options.take("enable_chunked_prefill", true);
  config.enable_prefix_caching = options.take("enable_prefix_caching", true);
  config.long_prefill_token_threshold = options.take<std::int64_t>("long_prefill_token_threshold", 0);
  config.long_prefill_token_threshold_adaptive = options.take("long_prefill_token_threshold_adaptive", false);
  config.max_num_active_seqs = options.take_optional("max_num_active_seqs");
  config.prefill_schedule_interval = options.take<std::int64_t>("prefill_schedule_interval", 1);
  config.prefix_cache_retention_interval = options.take_optional("prefix_cache_retention_interval", 0);
  config.watermark = options.take("watermark", 0.0);
  config.scheduler_reserve_full_isl = options.take("scheduler_reserve_full_isl", true);
  config.pipeline_parallel_size = options.take<std::int64_t>("pipeline_parallel_size", 1);
  config.async_scheduling = options.take("async_scheduling", false);
  config.use_v2_model_runner = options.take("use_v2_model_runner", false);
  config.depth = options.take_optional("depth");
  config.num_speculative_tokens = options.take<std::int64_t>("num_speculative_tokens", 0);
  config.spec_method = parse_method(options.take<std::string>("spec_method", ""), where);
  config.sliding_window = options.take_optional("sliding_window");
  script.eos_token = options.take<Token>("eos_token_id", 2);
  static_cast<void>(
      options.take("seed_queue_dump", false));  // Says what the trace holds; the trace shows it.
  const std::string policy = options.take<std::string>("policy", "fcfs");
  if (policy != "fcfs" && policy != "priority") {
    throw RecordingError(fmt::format("{}: unknown policy '{}'", where, policy));
  }
  config.policy =
      policy == "priority" ? engine::SchedulingPolicy::kPriority : engine::SchedulingPolicy::kFcfs;
  options.complain_about_the_rest();
  refuse_the_meaningless(config, where);
}

std::vector<Token> parse_prompt(const json& prompt, Token& next_unshared, const std::string& where) {
  std::vector<Token> tokens;
  if (prompt.is_array()) {
    return prompt.get<std::vector<Token>>();
  }
  if (prompt.is_number_integer()) {
    for (auto left = prompt.get<std::int64_t>(); left > 0; --left) {
      tokens.push_back(next_unshared++);
    }
    return tokens;
  }
  Options options(prompt, where + ".prompt");
  if (prompt.contains("parts")) {
    for (const json& part : options.take("parts", json::array())) {
      tokens.insert(tokens.end(), part.at(1).get<std::size_t>(), part.at(0).get<Token>());
    }
  } else {
    tokens.assign(options.take<std::size_t>("len", 0), options.take<Token>("tok", 7));
  }
  options.complain_about_the_rest();
  return tokens;
}

/// `arrival` is left to rank_arrivals().
ScriptRequest parse_request(const json& object, const std::string& where, const SchedulerConfig& config,
                            Token& next_unshared) {
  ScriptRequest r;
  Options options(object, where);
  r.name = object.at("id").get<std::string>();
  static_cast<void>(options.take<std::string>("id", ""));
  r.at = options.take<std::int64_t>("at", 0);
  r.prompt = parse_prompt(options.take("prompt", json::array()), next_unshared, where);
  r.request.prompt_tokens = static_cast<std::int32_t>(r.prompt.size());
  r.request.max_tokens = options.take("max_tokens", 16);
  r.request.priority = options.take("priority", 0);
  static_cast<void>(options.take("arrival", 0.0));
  static_cast<void>(options.take("min_tokens", 0));  // The sampler's business; the scheduler ignores it.
  r.salt = options.take<std::string>("salt", "");
  r.ignore_eos = options.take("ignore_eos", true);
  r.stop_tokens = options.take("stop_token_ids", std::vector<Token>{});
  r.outputs = options.take("out", std::vector<Token>{});
  r.accepted = options.take("accept", std::vector<std::int32_t>{});
  options.complain_about_the_rest();
  if (r.prompt.empty() || r.request.prompt_tokens >= config.max_model_len || r.request.max_tokens < 1) {
    throw RecordingError(
        fmt::format("{}: needs 1 to max_model_len - 1 prompt tokens and max_tokens of at least 1", where));
  }
  return r;
}

/// Arrivals may be fractions, and are only compared: the engine gets their ranks.
void rank_arrivals(std::vector<ScriptRequest>& requests, const std::vector<double>& arrivals) {
  const std::set<double> distinct(arrivals.begin(), arrivals.end());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].request.arrival = std::distance(distinct.begin(), distinct.find(arrivals[i]));
  }
}

void parse_requests(const json& list, const std::string& where, Script& script) {
  Token next_unshared = kFirstUnsharedToken;
  std::vector<json> in_order = list.get<std::vector<json>>();
  std::ranges::stable_sort(in_order, {}, [](const json& r) { return r.value("at", std::int64_t{0}); });
  std::vector<double> arrivals;
  std::map<std::string, engine::RequestId> ids;
  for (const json& object : in_order) {
    const std::string here = fmt::format("{}, request {}", where, script.requests.size());
    arrivals.push_back(object.value("arrival", static_cast<double>(arrivals.size())));
    script.requests.push_back(parse_request(object, here, script.config, next_unshared));
    if (!ids.emplace(script.requests.back().name, 0).second) {
      throw RecordingError(fmt::format("{}: id '{}' is used twice", here, script.requests.back().name));
    }
  }
  rank_arrivals(script.requests, arrivals);
  for (auto& [name, id] : ids) {
    id = static_cast<engine::RequestId>(script.names.size());
    script.names.push_back(name);
  }
  for (ScriptRequest& request : script.requests) {
    request.request.id = ids.at(request.name);
  }
}

void parse_aborts(const json& list, const std::string& where, Script& script) {
  for (const json& entry : list) {
    Options options(entry, where + ", aborts");
    const auto name = options.take<std::string>("id", "");
    const auto found = std::ranges::find(script.names, name);
    if (found == script.names.end()) {
      throw RecordingError(fmt::format("{}: abort of unknown request '{}'", where, name));
    }
    script.aborts.push_back({.at = options.take<std::int64_t>("at", 0),
                             .id = static_cast<engine::RequestId>(found - script.names.begin())});
    options.complain_about_the_rest();
  }
  std::ranges::stable_sort(script.aborts, {}, &ScriptAbort::at);
}

}  // namespace

Script parse_script(const json& object, const std::string& where) {
  Script script;
  Options options(object, where);
  parse_config(options.take("config", json::object()), where + ", config", script);
  script.max_iterations = options.take<std::int64_t>("max_iters", 10000);
  parse_requests(options.take("requests", json::array()), where, script);
  parse_aborts(options.take("aborts", json::array()), where, script);
  options.complain_about_the_rest();
  return script;
}

}  // namespace kneepoint::golden
