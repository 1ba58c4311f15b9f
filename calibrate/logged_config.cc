#include "calibrate/logged_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace kneepoint::calibrate {

namespace {

// Values that the log gives under a name, from the most telling place: the
// engine's own line shows what arguments and defaults came to.
class Told {
 public:
  Told(const LoggedServer& server, LoggedConfig& config) : server_(server), config_(config) {}

  std::optional<std::string> text(const std::string& name) {
    for (const auto* values : {&server_.args, &server_.config}) {
      const auto found = values->find(name);
      if (found != values->end() && found->second != "None") return found->second;
    }
    return std::nullopt;
  }

  std::optional<std::int64_t> integer(const std::string& name) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (error != std::errc{} || end != value->data() + value->size()) return std::nullopt;
    return number;
  }

  std::optional<double> real(const std::string& name) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    double number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    static_cast<void>(end);
    return error == std::errc{} ? std::optional(number) : std::nullopt;
  }

  std::optional<bool> flag(const std::string& name) {
    const auto value = text(name);
    if (!value || (*value != "True" && *value != "False")) return std::nullopt;
    return *value == "True";
  }

  /// `slot` becomes `told` if the log gave it; else it keeps its default, and the config says so.
  template <typename Slot, typename Value>
  void set(const char* name, Slot& slot, const std::optional<Value>& told) {
    if (told) {
      slot = static_cast<Slot>(*told);
      config_.said.push_back(fmt::format("{} {}", name, slot));
    } else {
      config_.assumed.push_back(fmt::format("{} {}", name, slot));
    }
  }

 private:
  const LoggedServer& server_;
  LoggedConfig& config_;
};

std::string bare_dtype(std::string text) {
  constexpr std::string_view kTorch = "torch.";
  if (text.starts_with(kTorch)) text.erase(0, kTorch.size());
  return text;
}

std::optional<std::int64_t> first_of(std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
  return a ? a : b;
}

// One KV group: "KV cache size" tokens = int(blocks / ceil(max_model_len / block_size) * max_model_len).
std::optional<std::int64_t> blocks_of_tokens(const LoggedServer& server,
                                             const engine::SchedulerConfig& engine) {
  if (!server.kv_cache_tokens || engine.max_model_len <= 0) return std::nullopt;
  const double per_request =
      std::ceil(static_cast<double>(engine.max_model_len) / static_cast<double>(engine.block_size));
  return std::llround(static_cast<double>(*server.kv_cache_tokens) * per_request /
                      static_cast<double>(engine.max_model_len));
}

}  // namespace

LoggedConfig logged_config(const LoggedServer& server) {
  LoggedConfig config;
  engine::SchedulerConfig& engine = config.engine;
  Told told(server, config);
  config.model = server.model;
  config.architecture = server.architecture;
  if (!server.version.empty()) config.release = fmt::format("vLLM {}", server.version);
  config.device = told.text("device_config").value_or("");
  config.dtype = bare_dtype(told.text("dtype").value_or(""));
  config.kv_cache_dtype = told.text("kv_cache_dtype").value_or("auto");
  config.quantization = told.text("quantization").value_or("");
  config.enforce_eager = told.flag("enforce_eager").value_or(false);
  config.tensor_parallel_size = told.integer("tensor_parallel_size").value_or(1);
  config.data_parallel_size = told.integer("data_parallel_size").value_or(1);
  const bool cpu = config.device == "cpu";

  told.set(
      "max_model_len", engine.max_model_len,
      first_of(server.max_model_len, first_of(told.integer("max_seq_len"), told.integer("max_model_len"))));
  told.set("max_num_batched_tokens", engine.max_num_batched_tokens,
           first_of(server.max_num_batched_tokens, told.integer("max_num_batched_tokens")));
  engine.max_num_seqs =
      cpu ? 128 : 256;  // spec.md 6; a large GPU has 1024 and the log does not say which it is.
  told.set("max_num_seqs", engine.max_num_seqs, told.integer("max_num_seqs"));
  engine.block_size = cpu ? 128 : 16;
  told.set("block_size", engine.block_size, first_of(server.block_size, told.integer("block_size")));
  told.set("enable_prefix_caching", engine.enable_prefix_caching, told.flag("enable_prefix_caching"));
  told.set("enable_chunked_prefill", engine.enable_chunked_prefill,
           told.flag("enable_chunked_prefill") ? told.flag("enable_chunked_prefill")
                                               : told.flag("chunked_prefill_enabled"));
  told.set("long_prefill_token_threshold", engine.long_prefill_token_threshold,
           told.integer("long_prefill_token_threshold"));
  told.set("long_prefill_token_threshold_adaptive", engine.long_prefill_token_threshold_adaptive,
           told.flag("long_prefill_token_threshold_adaptive"));
  told.set("watermark", engine.watermark, told.real("watermark"));
  told.set("scheduler_reserve_full_isl", engine.scheduler_reserve_full_isl,
           told.flag("scheduler_reserve_full_isl"));
  told.set("pipeline_parallel_size", engine.pipeline_parallel_size, told.integer("pipeline_parallel_size"));
  engine.max_num_active_seqs = told.integer("max_num_active_seqs");
  engine.max_num_scheduled_tokens = told.integer("max_num_scheduled_tokens");
  if (told.text("scheduling_policy").value_or("fcfs") == "priority")
    engine.policy = engine::SchedulingPolicy::kPriority;

  // The CPU platform forces synchronous scheduling; elsewhere it is the default to be asynchronous.
  engine.async_scheduling = !cpu;
  told.set("async_scheduling", engine.async_scheduling,
           server.async_scheduling ? server.async_scheduling : told.flag("async_scheduling"));
  engine.use_v2_model_runner = !cpu;
  told.set("use_v2_model_runner", engine.use_v2_model_runner, server.v2_model_runner);

  const auto blocks = first_of(first_of(server.num_blocks, told.integer("num_gpu_blocks_override")),
                               blocks_of_tokens(server, engine));
  if (blocks) {
    told.set("num_blocks", engine.num_blocks, blocks);
  } else {
    config.missing.emplace_back("num_blocks: no line 'KV cache size' or 'num_gpu_blocks_override'");
  }
  if (!server.max_model_len && !told.integer("max_seq_len") && !told.integer("max_model_len")) config.missing.emplace_back("max_model_len");
  if (!server.max_num_batched_tokens && !told.integer("max_num_batched_tokens")) {
    config.missing.emplace_back("max_num_batched_tokens");
  }
  return config;
}

}  // namespace kneepoint::calibrate
