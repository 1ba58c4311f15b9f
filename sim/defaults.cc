// vLLM's defaults (spec of 0.32.0): what a `vllm serve` line leaves open, and
// what follows from it for memory.
//
// The order is vLLM's: model and types, then the scheduler's limits from the
// device, then the number of KV blocks from what memory is left.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "engine/scheduler.h"
#include "hw/closest_name.h"
#include "hw/deployment.h"
#include "sim/options.h"
#include "sim/speculative_config.h"

namespace kneepoint::sim {
namespace {

constexpr double kGiB = 1073741824.0;

// A word out of a few.
template <typename Value>
struct Choice {
  std::string_view word;
  Value value;
};

template <typename Value, std::size_t N>
Value choose(const char* flag, const std::string& word, const std::array<Choice<Value>, N>& choices) {
  std::vector<std::string> known;
  for (const Choice<Value>& choice : choices) {
    if (word == choice.word) {
      return choice.value;
    }
    known.emplace_back(choice.word);
  }
  const std::string closest = hw::closest_name(word, known);
  throw UsageError(fmt::format("--{} '{}' is not known{}; known are {}", flag, word,
                               closest.empty() ? "" : fmt::format(": did you mean '{}'?", closest),
                               fmt::join(known, ", ")));
}

void at_least(const char* flag, bool given, double value, double least) {
  if (given && !(value >= least)) {
    throw UsageError(fmt::format("--{} is {}; a value of at least {} is needed", flag, value, least));
  }
}

constexpr std::array kQuantizations{
    Choice<hw::Precision>{"fp8", hw::Precision::kFp8},           Choice<hw::Precision>{"fbgemm_fp8", hw::Precision::kFp8},
    Choice<hw::Precision>{"modelopt", hw::Precision::kFp8},      Choice<hw::Precision>{"compressed-tensors", hw::Precision::kFp8},
    Choice<hw::Precision>{"awq", hw::Precision::kInt4},          Choice<hw::Precision>{"awq_marlin", hw::Precision::kInt4},
    Choice<hw::Precision>{"gptq", hw::Precision::kInt4},         Choice<hw::Precision>{"gptq_marlin", hw::Precision::kInt4},
    Choice<hw::Precision>{"int4", hw::Precision::kInt4},         Choice<hw::Precision>{"none", hw::Precision::kBf16},
};
constexpr std::array kKvTypes{
    Choice<hw::Precision>{"auto", hw::Precision::kBf16},     Choice<hw::Precision>{"bfloat16", hw::Precision::kBf16},
    Choice<hw::Precision>{"float16", hw::Precision::kBf16},  Choice<hw::Precision>{"bf16", hw::Precision::kBf16},
    Choice<hw::Precision>{"fp8", hw::Precision::kFp8},       Choice<hw::Precision>{"fp8_e4m3", hw::Precision::kFp8},
    Choice<hw::Precision>{"fp8_e5m2", hw::Precision::kFp8},
};
constexpr std::array kDtypes{Choice<int>{"auto", 0}, Choice<int>{"bfloat16", 0}, Choice<int>{"float16", 0},
                             Choice<int>{"half", 0}};
constexpr std::array kPolicies{
    Choice<engine::SchedulingPolicy>{"fcfs", engine::SchedulingPolicy::kFcfs},
    Choice<engine::SchedulingPolicy>{"priority", engine::SchedulingPolicy::kPriority}};
constexpr std::array kReserves{Choice<engine::OrcaReserve>{"max", engine::OrcaReserve::kMax},
                               Choice<engine::OrcaReserve>{"pow2", engine::OrcaReserve::kPow2},
                               Choice<engine::OrcaReserve>{"oracle", engine::OrcaReserve::kOracle}};
constexpr std::array kPreemptionModes{Choice<bool>{"recompute", false}, Choice<bool>{"swap", true}};
constexpr std::array kFormats{Choice<OutputFormat>{"table", OutputFormat::kTable},
                              Choice<OutputFormat>{"json", OutputFormat::kJson}};
constexpr std::array kPerformanceModes{Choice<bool>{"balanced", false}, Choice<bool>{"throughput", true}};

void resolve_hardware(const pb::RunConfig& asked, RunConfig& config) {
  hw::Deployment& d = config.deployment;
  config.model_name = asked.has_model() ? asked.model() : "llama-3.1-8b";
  config.gpu_name = asked.has_gpu() ? asked.gpu() : "h100";
  config.rates_file = asked.rates();
  config.server_file = asked.server();
  if (!config.server_file.empty()) {
    config.provenance.push_back(fmt::format("step times: measured server {}; --model only names it", config.server_file));
    return;
  }
  d.model = hw::load_model(config.model_name);
  d.gpu = hw::load_gpu(config.gpu_name);
  (void)choose("dtype", asked.has_dtype() ? asked.dtype() : "auto", kDtypes);
  const std::string quantization = asked.has_quantization() ? asked.quantization() : d.model.weights_note;
  d.weights = quantization.empty() ? hw::Precision::kBf16 : choose("quantization", quantization, kQuantizations);
  d.static_fp8_scales = quantization == "modelopt" || quantization == "compressed-tensors";
  config.provenance.push_back(fmt::format("weights: {}, from {}", quantization.empty() ? "bfloat16" : quantization,
                                          asked.has_quantization() ? "--quantization" : "the model"));
  const std::string kv = asked.has_kv_cache_dtype() ? asked.kv_cache_dtype() : "auto";
  d.kv_cache = choose("kv-cache-dtype", kv, kKvTypes);
  config.provenance.push_back(fmt::format("KV cache: {}, from --kv-cache-dtype {}{}",
                                          d.kv_cache == hw::Precision::kFp8 ? "fp8" : "bfloat16", kv,
                                          kv == "auto" ? " and the model" : ""));
  d.tensor_parallel_size = asked.has_tensor_parallel_size() ? asked.tensor_parallel_size() : 1;
  d.pipeline_parallel_size = asked.has_pipeline_parallel_size() ? asked.pipeline_parallel_size() : 1;
  d.enable_expert_parallel = asked.enable_expert_parallel();
  const bool windows = std::ranges::any_of(d.model.layers, [](const hw::LayerGroup& g) { return g.attention_window > 0; });
  if (windows) {
    config.provenance.push_back(
        "KV blocks: one full-attention group for all layers (hybrid KV cache manager off); times use the windows");
  }
}

void resolve_context(const pb::RunConfig& asked, RunConfig& config) {
  engine::SchedulerConfig& e = config.engine;
  const std::int64_t of_model = config.deployment.model.max_position_embeddings;
  e.max_model_len = asked.has_max_model_len() ? asked.max_model_len() : of_model;
  if (asked.has_max_model_len() && asked.max_model_len() == -1) {
    e.max_model_len = of_model;  // Lowered once memory is known.
  }
  if (e.max_model_len < 2) {
    throw UsageError(config.server_file.empty()
                         ? fmt::format("--max-model-len is {}; give at least 2, or -1 for the largest that fits", e.max_model_len)
                         : std::string("--server has no context length: give --max-model-len (`calibrate read-log` prints it)"));
  }
  if (of_model > 0 && e.max_model_len > of_model) {
    throw UsageError(fmt::format("--max-model-len {} is beyond the {} positions of {}; give at most that", e.max_model_len,
                                 of_model, config.model_name));
  }
}

void resolve_limits(const pb::RunConfig& asked, RunConfig& config) {
  engine::SchedulerConfig& e = config.engine;
  const bool v1 = config.scheduler == "vllm-v1";
  e.enable_chunked_prefill = asked.has_enable_chunked_prefill() ? asked.enable_chunked_prefill()
                                                                : v1 || config.scheduler == "sarathi";
  const bool throughput =
      choose("performance-mode", asked.has_performance_mode() ? asked.performance_mode() : "balanced", kPerformanceModes);
  const DeviceDefaults device = device_defaults(config.deployment.gpu);
  const std::int64_t factor = throughput ? 2 : 1;
  e.max_num_seqs = asked.has_max_num_seqs() ? asked.max_num_seqs() : device.seqs * factor;
  e.max_num_batched_tokens = asked.max_num_batched_tokens();
  if (!asked.has_max_num_batched_tokens()) {
    e.max_num_batched_tokens = std::min(device.batched_tokens * factor, e.max_num_seqs * e.max_model_len);
    if (!e.enable_chunked_prefill) {
      e.max_num_batched_tokens = std::max(e.max_num_batched_tokens, e.max_model_len);
    }
    config.provenance.push_back(fmt::format("max_num_batched_tokens {}: {}", e.max_num_batched_tokens, device.because));
  }
  if (!asked.has_max_num_seqs()) {
    e.max_num_seqs = std::min(e.max_num_seqs, e.max_num_batched_tokens);
    config.provenance.push_back(fmt::format("max_num_seqs {}: {}", e.max_num_seqs, device.because));
  }
  if (asked.has_max_num_scheduled_tokens()) {
    e.max_num_scheduled_tokens = asked.max_num_scheduled_tokens();
  }
  if (asked.has_max_num_active_seqs()) {
    e.max_num_active_seqs = asked.max_num_active_seqs();
  }
}

void resolve_scheduler(const pb::RunConfig& asked, RunConfig& config) {
  config.scheduler = asked.has_scheduler() ? asked.scheduler() : "vllm-v1";
  if (engine::find_scheduler(config.scheduler) == nullptr) {
    std::vector<std::string> known;
    for (const engine::SchedulerRow& row : engine::schedulers()) {
      known.emplace_back(row.name);
    }
    const std::string closest = hw::closest_name(config.scheduler, known);
    throw UsageError(fmt::format("--scheduler '{}' is not known{}; known are {}", config.scheduler,
                                 closest.empty() ? "" : fmt::format(": did you mean '{}'?", closest), fmt::join(known, ", ")));
  }
  const bool v1 = config.scheduler == "vllm-v1";
  engine::SchedulerConfig& e = config.engine;
  e.long_prefill_token_threshold = asked.long_prefill_token_threshold();
  e.long_prefill_token_threshold_adaptive = asked.long_prefill_token_threshold_adaptive();
  e.prefill_schedule_interval = asked.has_prefill_schedule_interval() ? asked.prefill_schedule_interval() : 1;
  e.policy = choose("scheduling-policy", asked.has_scheduling_policy() ? asked.scheduling_policy() : "fcfs", kPolicies);
  e.watermark = asked.watermark();
  e.scheduler_reserve_full_isl = !asked.has_scheduler_reserve_full_isl() || asked.scheduler_reserve_full_isl();
  e.max_loras = asked.has_max_loras() ? asked.max_loras() : 1;
  e.block_size = asked.has_block_size() ? asked.block_size() : 16;
  e.enable_prefix_caching = asked.has_enable_prefix_caching() ? asked.enable_prefix_caching() : v1;
  if (asked.has_prefix_cache_retention_interval()) {
    e.prefix_cache_retention_interval = asked.prefix_cache_retention_interval();
  }
  e.pipeline_parallel_size = config.deployment.pipeline_parallel_size;
  e.use_v2_model_runner = !asked.has_use_v2_model_runner() || asked.use_v2_model_runner();
  read_speculative_config(asked.speculative_config(), config);
  const bool drafts_on_cpu = e.spec_method == engine::SpeculativeMethod::kNgram;
  const bool can_overlap = v1 && !drafts_on_cpu && (e.use_v2_model_runner || e.pipeline_parallel_size == 1);
  e.async_scheduling = asked.has_async_scheduling() ? asked.async_scheduling() : can_overlap;
  e.orca_reserve = choose("orca-reserve", asked.has_orca_reserve() ? asked.orca_reserve() : "max", kReserves);
  if (asked.has_orca_reserve() && config.scheduler != "orca") {
    throw UsageError("--orca-reserve is for --scheduler orca only; leave it out");
  }
  e.preemption_mode_swap =
      choose("preemption-mode", asked.has_preemption_mode() ? asked.preemption_mode() : "recompute", kPreemptionModes);
  if ((asked.has_preemption_mode() || asked.has_swap_space()) && config.scheduler != "vllm-v0") {
    throw UsageError("--preemption-mode and --swap-space are for --scheduler vllm-v0 only; vLLM V1 recomputes");
  }
  config.provenance.push_back(fmt::format("scheduler {}: {} scheduling, prefix caching {}, chunked prefill {}",
                                          config.scheduler, e.async_scheduling ? "asynchronous" : "synchronous",
                                          e.enable_prefix_caching ? "on" : "off", e.enable_chunked_prefill ? "on" : "off"));
}

void fill_deployment(const pb::RunConfig& asked, RunConfig& config) {
  hw::Deployment& d = config.deployment;
  const engine::SchedulerConfig& e = config.engine;
  d.block_size = e.block_size;
  d.gpu_memory_utilization = asked.has_gpu_memory_utilization() ? asked.gpu_memory_utilization() : 0.92;
  if (asked.has_kv_cache_memory_bytes()) {
    d.kv_cache_memory_bytes = asked.kv_cache_memory_bytes();
  }
  if (asked.has_num_gpu_blocks_override()) {
    d.num_gpu_blocks_override = asked.num_gpu_blocks_override();
  }
  d.max_model_len = e.max_model_len;
  d.max_num_batched_tokens = e.max_num_batched_tokens;
  d.max_num_seqs = e.max_num_seqs;
  d.async_scheduling = e.async_scheduling;
  d.enforce_eager = asked.enforce_eager();
  d.num_speculative_tokens = e.num_speculative_tokens;
}

std::int64_t fewest_gpus(hw::Deployment d) {
  for (std::int64_t tp = 2; tp <= 64; tp *= 2) {
    d.tensor_parallel_size = tp;
    if (d.model.num_heads % tp == 0 && size_memory(d).num_blocks > 1) {
      return tp;
    }
  }
  return 0;
}

void size_blocks(const pb::RunConfig& asked, RunConfig& config) {
  engine::SchedulerConfig& e = config.engine;
  if (!config.server_file.empty()) {
    if (!asked.has_num_gpu_blocks_override()) {
      throw UsageError("--server needs --num-gpu-blocks-override: a measured server's memory is not modelled "
                       "(`calibrate read-log` prints the number)");
    }
    e.num_blocks = asked.num_gpu_blocks_override();
    config.provenance.push_back(fmt::format("{} blocks of {} tokens: from --num-gpu-blocks-override", e.num_blocks, e.block_size));
    return;
  }
  hw::validate(config.deployment);
  config.memory = hw::size_memory(config.deployment);
  if (config.memory.num_blocks < 2) {
    const std::int64_t gpus = fewest_gpus(config.deployment);
    throw UsageError(fmt::format(
        "{} does not fit: {:.1f} GiB of weights and {:.1f} GiB beside them on a GPU that gives {:.1f} GiB; {}", config.model_name,
        config.memory.weights / kGiB,
        (config.memory.activations + config.memory.cuda_graphs + config.memory.other) / kGiB, config.memory.requested / kGiB,
        gpus > 0 ? fmt::format("give -tp {} or --quantization fp8", gpus) : std::string("give more GPUs or --quantization fp8")));
  }
  e.num_blocks = config.memory.num_blocks;
  // One request of the longest kind must fit beside the null block.
  const std::int64_t largest = (e.num_blocks - 1) * e.block_size;
  if (asked.has_max_model_len() && asked.max_model_len() == -1) {
    e.max_model_len = std::min(e.max_model_len, largest);
    config.deployment.max_model_len = e.max_model_len;
    config.provenance.push_back(fmt::format("max_model_len {}: the largest that fits", e.max_model_len));
  } else if (e.max_model_len > largest && !asked.has_num_gpu_blocks_override()) {
    throw UsageError(fmt::format("one request of --max-model-len {} needs {} KV blocks and there are {}; give "
                                 "--max-model-len {} or less, or raise --gpu-memory-utilization",
                                 e.max_model_len, (e.max_model_len + e.block_size - 1) / e.block_size + 1, e.num_blocks, largest));
  }
  config.provenance.push_back(config.memory.provenance);
}

void resolve_swap(const pb::RunConfig& asked, RunConfig& config) {
  if (!config.engine.preemption_mode_swap) {
    return;
  }
  const double swap_gib = asked.has_swap_space() ? asked.swap_space() : 4.0;
  at_least("swap-space", true, swap_gib, 0);
  const auto block_bytes = static_cast<double>(std::max<std::int64_t>(1, config.memory.block_bytes));
  config.engine.num_cpu_blocks = static_cast<std::int64_t>(std::min(swap_gib * kGiB / block_bytes, 1e9));
}

GoodputLimits parse_goodput(const pb::RunConfig& asked) {
  GoodputLimits limits;
  for (const std::string& text : asked.goodput()) {
    const std::size_t colon = text.find(':');
    char* end = nullptr;
    const double ms = colon == std::string::npos ? -1 : std::strtod(text.c_str() + colon + 1, &end);
    const std::string metric = text.substr(0, colon);
    if (!(ms >= 0) || end == nullptr || *end != '\0' || end == text.c_str() + colon + 1 || std::isinf(ms) || ms > 1e12) {
      throw UsageError(fmt::format("--goodput '{}': write METRIC:MS, as in ttft:500", text));
    }
    const SimDuration limit = to_sim_duration(ms * 1e-3);
    if (metric == "ttft") {
      limits.ttft = limit;
    } else if (metric == "tpot") {
      limits.tpot = limit;
    } else if (metric == "e2el") {
      limits.e2el = limit;
    } else {
      throw UsageError(fmt::format("--goodput '{}': the metric is ttft, tpot or e2el", text));
    }
  }
  return limits;
}

void resolve_client(const pb::RunConfig& asked, RunConfig& config) {
  ClientConfig& c = config.client;
  if (asked.has_request_rate()) {
    if (!(asked.request_rate() > 0)) {
      throw UsageError(fmt::format("--request-rate is {}; a rate above 0, or inf, is needed", asked.request_rate()));
    }
    c.request_rate = asked.request_rate();
  }
  if (asked.has_burstiness()) {
    if (!(asked.burstiness() > 0) || std::isinf(asked.burstiness())) {
      throw UsageError(fmt::format("--burstiness is {}; a finite value above 0 is needed", asked.burstiness()));
    }
    if (!asked.has_request_rate()) {
      throw UsageError("--burstiness shapes the arrivals of --request-rate; give that too, or leave it out");
    }
    c.burstiness = asked.burstiness();
  }
  if (asked.has_max_concurrency()) {
    at_least("max-concurrency", true, static_cast<double>(asked.max_concurrency()), 1);
    c.max_concurrency = std::min<std::int64_t>(asked.max_concurrency(), 10'000'000);
  }
  if (asked.has_client_timeout()) {
    if (!(asked.client_timeout() > 0) || asked.client_timeout() > 1e9) {
      throw UsageError(fmt::format("--client-timeout is {}; seconds above 0, at most 1e9, are needed", asked.client_timeout()));
    }
    c.timeout = to_sim_duration(asked.client_timeout());
  }
  at_least("max-num-queued-reqs", asked.has_max_num_queued_reqs(), static_cast<double>(asked.max_num_queued_reqs()), 0);
  at_least("max-num-queued-tokens", asked.has_max_num_queued_tokens(), static_cast<double>(asked.max_num_queued_tokens()), 0);
  if (asked.has_max_num_queued_reqs()) {
    config.admission.max_num_queued_reqs = asked.max_num_queued_reqs();
  }
  if (asked.has_max_num_queued_tokens()) {
    config.admission.max_num_queued_tokens = asked.max_num_queued_tokens();
  }
}

}  // namespace

DeviceDefaults device_defaults(const hw::GpuSpec& gpu) {
  const auto memory = static_cast<double>(gpu.memory_bytes);
  if (memory >= 160 * kGiB) {
    return {16384, 1024, "vLLM's default on GPUs of 160 GiB and more"};
  }
  if (memory >= 70 * kGiB && !gpu.a100) {
    return {8192, 1024, "vLLM's default on GPUs of 70 GiB and more"};
  }
  return {};
}

RunConfig resolve(const pb::RunConfig& asked) {
  RunConfig config;
  config.trace = asked.trace();
  config.seed = asked.sim_seed();
  config.strict = asked.strict();
  resolve_hardware(asked, config);
  resolve_scheduler(asked, config);
  resolve_context(asked, config);
  resolve_limits(asked, config);
  fill_deployment(asked, config);
  size_blocks(asked, config);
  resolve_swap(asked, config);
  engine::validate(config.engine);
  resolve_client(asked, config);
  config.report.format = choose("format", asked.has_format() ? asked.format() : "table", kFormats);
  config.report.out_dir = asked.out();
  config.report.save_detailed = asked.save_detailed();
  config.report.requests_csv = !asked.has_requests_csv() || asked.requests_csv();
  config.report.step_log = asked.step_log();
  config.report.goodput = parse_goodput(asked);
  return config;
}

pb::RunConfig as_proto(const RunConfig& config, const pb::RunConfig& asked) {
  pb::RunConfig p = asked;
  const engine::SchedulerConfig& e = config.engine;
  p.set_model(config.model_name);
  if (config.server_file.empty()) {
    p.set_gpu(config.gpu_name);
    p.set_kv_cache_dtype(config.deployment.kv_cache == hw::Precision::kFp8 ? "fp8" : "bfloat16");
    p.set_tensor_parallel_size(config.deployment.tensor_parallel_size);
    p.set_pipeline_parallel_size(config.deployment.pipeline_parallel_size);
    p.set_gpu_memory_utilization(config.deployment.gpu_memory_utilization);
    if (!asked.has_quantization() && !config.deployment.model.weights_note.empty()) {
      p.set_quantization(config.deployment.model.weights_note);
    }
  }
  p.set_num_gpu_blocks_override(e.num_blocks);
  p.set_block_size(e.block_size);
  p.set_enable_prefix_caching(e.enable_prefix_caching);
  p.set_scheduler(config.scheduler);
  p.set_max_model_len(e.max_model_len);
  p.set_max_num_seqs(e.max_num_seqs);
  p.set_max_num_batched_tokens(e.max_num_batched_tokens);
  p.set_enable_chunked_prefill(e.enable_chunked_prefill);
  p.set_long_prefill_token_threshold(e.long_prefill_token_threshold);
  p.set_prefill_schedule_interval(e.prefill_schedule_interval);
  p.set_scheduling_policy(e.policy == engine::SchedulingPolicy::kFcfs ? "fcfs" : "priority");
  p.set_async_scheduling(e.async_scheduling);
  p.set_use_v2_model_runner(e.use_v2_model_runner);
  p.set_watermark(e.watermark);
  p.set_scheduler_reserve_full_isl(e.scheduler_reserve_full_isl);
  p.set_max_loras(e.max_loras);
  p.set_sim_seed(config.seed);
  return p;
}

}  // namespace kneepoint::sim
