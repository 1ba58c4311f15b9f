// vLLM's defaults (spec of 0.32.0, section 6): what a `vllm serve` line leaves
// open, and what follows from it.
//
// The order is vLLM's: model and types, then the scheduler, then its limits from
// the device, then the number of KV blocks from what memory is left. Every value
// that was not given leaves a line in config.provenance that says why it is so.
#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/scheduler.h"
#include "hw/deployment.h"
#include "hw/operator_graph.h"
#include "sim/choices.h"
#include "sim/defaults_parts.h"
#include "sim/options.h"
#include "sim/speculative_config.h"

namespace kneepoint::sim {
namespace {

using google::protobuf::FieldDescriptor;

constexpr std::array kPolicies{
    Choice<engine::SchedulingPolicy>{"fcfs", engine::SchedulingPolicy::kFcfs},
    Choice<engine::SchedulingPolicy>{"priority", engine::SchedulingPolicy::kPriority}};
constexpr std::array kReserves{Choice<engine::OrcaReserve>{"max", engine::OrcaReserve::kMax},
                               Choice<engine::OrcaReserve>{"pow2", engine::OrcaReserve::kPow2},
                               Choice<engine::OrcaReserve>{"oracle", engine::OrcaReserve::kOracle}};
constexpr std::array kPreemptionModes{Choice<bool>{"recompute", false}, Choice<bool>{"swap", true}};

enum class PerformanceMode : std::uint8_t { kBalanced, kThroughput, kInteractivity };
constexpr std::array kPerformanceModes{
    Choice<PerformanceMode>{"balanced", PerformanceMode::kBalanced},
    Choice<PerformanceMode>{"throughput", PerformanceMode::kThroughput},
    Choice<PerformanceMode>{"interactivity", PerformanceMode::kInteractivity}};

constexpr const char* kDefaultScheduler = "vllm-v1";

// Products of two counts must not overflow; the engine counts in 32 bits anyway.
void check_magnitudes(const pb::RunConfig& asked) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
  const auto* reflection = pb::RunConfig::GetReflection();
  const auto* type = pb::RunConfig::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_INT64 || !reflection->HasField(asked, field)) {
      continue;
    }
    const std::int64_t value = reflection->GetInt64(asked, field);
    const std::int64_t most = field->name() == "kv_cache_memory_bytes" ? kMostBytes : kMost;
    if (value < -1 || value > most) {
      std::string flag = field->name();
      std::replace(flag.begin(), flag.end(), '_', '-');
      throw UsageError(fmt::format("--{} is {}; give at most {}", flag, value, most));
    }
  }
}

void choose_scheduler(const pb::RunConfig& asked, RunConfig& config) {
  config.scheduler = asked.has_scheduler() ? asked.scheduler() : kDefaultScheduler;
  if (engine::find_scheduler(config.scheduler) != nullptr) {
    return;
  }
  std::vector<std::string> known;
  for (const engine::SchedulerRow& row : engine::schedulers()) {
    known.emplace_back(row.name);
  }
  const std::string closest = hw::closest_name(config.scheduler, known);
  throw UsageError(fmt::format("--scheduler '{}' is not known{}; known are {}", config.scheduler,
                               closest.empty() ? "" : fmt::format(": did you mean '{}'?", closest),
                               fmt::join(known, ", ")));
}

// Flags of one scheduler only.
void resolve_policies(const pb::RunConfig& asked, RunConfig& config) {
  engine::SchedulerConfig& e = config.engine;
  e.orca_reserve =
      choose("--orca-reserve", asked.has_orca_reserve() ? asked.orca_reserve() : "max", kReserves);
  if (asked.has_orca_reserve() && config.scheduler != "orca") {
    throw CannotRun("--orca-reserve is for --scheduler orca only; leave it out");
  }
  e.preemption_mode_swap =
      choose("--preemption-mode", asked.has_preemption_mode() ? asked.preemption_mode() : "recompute",
             kPreemptionModes);
  if ((asked.has_preemption_mode() || asked.has_swap_space()) && config.scheduler != "vllm-v0") {
    throw CannotRun(
        "--preemption-mode and --swap-space are for --scheduler vllm-v0 only; vLLM V1 recomputes");
  }
  if (asked.has_swap_space() && !e.preemption_mode_swap) {
    throw CannotRun("--swap-space is for --preemption-mode swap only; leave it out");
  }
}

// Asynchronous scheduling is vLLM's default, except where the next plan must wait
// for drafts made on the host, or for a stage of the V1 runner's pipeline.
bool async_by_default(const RunConfig& config) {
  const engine::SchedulerConfig& e = config.engine;
  return config.scheduler == kDefaultScheduler && e.spec_method != engine::SpeculativeMethod::kNgram &&
         (e.use_v2_model_runner || e.pipeline_parallel_size == 1);
}

// The other schedulers are simpler than vLLM's; what they do not have must not be
// taken in silence.
void refuse_what_scheduler_lacks(const RunConfig& config) {
  if (config.scheduler == kDefaultScheduler) {
    return;
  }
  const engine::SchedulerConfig& e = config.engine;
  const bool v0 = config.scheduler == "vllm-v0";
  const bool orca = config.scheduler == "orca";
  struct Lack {
    const char* flag;
    bool asked_for;
  };
  for (const Lack& lack : {
           Lack{"--async-scheduling", e.async_scheduling},
           Lack{"--pipeline-parallel-size above 1", e.pipeline_parallel_size > 1},
           Lack{"--speculative-config", e.spec_method != engine::SpeculativeMethod::kNone},
           Lack{"--enable-prefix-caching", e.enable_prefix_caching && !v0},
           Lack{"--enable-chunked-prefill", e.enable_chunked_prefill && orca},
           Lack{"--no-enable-chunked-prefill", !e.enable_chunked_prefill && config.scheduler == "sarathi"},
           Lack{"--watermark", e.watermark > 0 && orca},
           Lack{"--long-prefill-token-threshold", e.long_prefill_token_threshold > 0},
           Lack{"--long-prefill-token-threshold-adaptive", e.long_prefill_token_threshold_adaptive},
           Lack{"--prefill-schedule-interval", e.prefill_schedule_interval != 1},
           Lack{"--no-scheduler-reserve-full-isl", !e.scheduler_reserve_full_isl},
           Lack{"--max-loras above 1", e.max_loras != 1},
           Lack{"--no-use-v2-model-runner", !e.use_v2_model_runner},
           Lack{"a model with a sliding window", e.sliding_window.has_value()},
       }) {
    if (lack.asked_for) {
      throw CannotRun(
          fmt::format("scheduler {} has no {}; leave it out, or take vllm-v1", config.scheduler, lack.flag));
    }
  }
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
  d.subtract_cuda_graphs = !asked.has_subtract_cuda_graphs() || asked.subtract_cuda_graphs();
  d.max_model_len = e.max_model_len;
  d.max_num_batched_tokens = e.max_num_batched_tokens;
  d.max_num_seqs = e.max_num_seqs;
  d.async_scheduling = e.async_scheduling;
  d.num_speculative_tokens = e.num_speculative_tokens;
  d.enforce_eager = asked.enforce_eager();
  if (asked.has_optimization_level()) {
    const std::int64_t level = asked.optimization_level();
    if (level < 0 || level == 1 || level > 3) {
      throw UsageError(
          fmt::format("--optimization-level {} is not modelled; give 2 (default), 3 or 0", level));
    }
    d.enforce_eager = d.enforce_eager || level == 0;
  }
}

}  // namespace

void resolve_scheduler(const pb::RunConfig& asked, RunConfig& config) {
  choose_scheduler(asked, config);
  const bool v1 = config.scheduler == kDefaultScheduler;
  engine::SchedulerConfig& e = config.engine;
  e.long_prefill_token_threshold = asked.long_prefill_token_threshold();
  e.long_prefill_token_threshold_adaptive = asked.long_prefill_token_threshold_adaptive();
  e.prefill_schedule_interval = asked.has_prefill_schedule_interval() ? asked.prefill_schedule_interval() : 1;
  e.policy = choose("--scheduling-policy", asked.has_scheduling_policy() ? asked.scheduling_policy() : "fcfs",
                    kPolicies);
  e.watermark = asked.watermark();
  e.scheduler_reserve_full_isl =
      !asked.has_scheduler_reserve_full_isl() || asked.scheduler_reserve_full_isl();
  e.max_loras = asked.has_max_loras() ? asked.max_loras() : 1;
  e.block_size = asked.has_block_size() ? asked.block_size() : 16;
  e.enable_prefix_caching = asked.has_enable_prefix_caching() ? asked.enable_prefix_caching() : v1;
  if (asked.has_prefix_cache_retention_interval()) {
    e.prefix_cache_retention_interval = asked.prefix_cache_retention_interval();
    if (asked.prefix_cache_retention_interval() == -1) {
      e.prefix_cache_retention_interval.reset();  // None: every block is kept.
    }
  }
  e.enable_chunked_prefill = asked.has_enable_chunked_prefill() ? asked.enable_chunked_prefill()
                                                                : v1 || config.scheduler == "sarathi";
  e.pipeline_parallel_size = config.deployment.pipeline_parallel_size;
  e.use_v2_model_runner = !asked.has_use_v2_model_runner() || asked.use_v2_model_runner();
  read_speculative_config(asked.speculative_config(), config);
  e.async_scheduling = asked.has_async_scheduling() ? asked.async_scheduling() : async_by_default(config);
  resolve_policies(asked, config);
  refuse_what_scheduler_lacks(config);
  config.provenance.push_back(
      fmt::format("scheduler {}: {} scheduling, prefix caching {}, chunked prefill {}", config.scheduler,
                  e.async_scheduling ? "asynchronous" : "synchronous", e.enable_prefix_caching ? "on" : "off",
                  e.enable_chunked_prefill ? "on" : "off"));
}

void resolve_context(const pb::RunConfig& asked, RunConfig& config) {
  const hw::ModelArch& model = config.deployment.model;
  std::int64_t& length = config.engine.max_model_len;
  const bool largest =
      asked.has_max_model_len() && asked.max_model_len() == -1;  // Lowered once memory is known.
  length = asked.has_max_model_len() && !largest ? asked.max_model_len() : model.max_position_embeddings;
  if (!config.server_file.empty()) {
    if (!asked.has_max_model_len() || largest) {
      throw UsageError(
          "--server has no context length: give --max-model-len (`calibrate read-log` prints it)");
    }
    return;
  }
  if (length < 2) {
    throw UsageError(
        fmt::format("--max-model-len is {}; give at least 2, or -1 for the largest that fits", length));
  }
  if (length > std::max(model.max_position_embeddings, model.yarn_context)) {
    throw CannotRun(fmt::format("--max-model-len {} is beyond the {} positions of {}; give at most that",
                                 length, model.max_position_embeddings, config.model_name));
  }
  if (length > model.max_position_embeddings) {
    config.provenance.push_back(
        fmt::format("max_model_len {}: the model's YaRN context; vLLM itself needs the rope "
                    "scaling in --hf-overrides for more than {}",
                    length, model.max_position_embeddings));
  }
}

void resolve_limits(const pb::RunConfig& asked, RunConfig& config) {
  engine::SchedulerConfig& e = config.engine;
  const PerformanceMode mode =
      choose("--performance-mode", asked.has_performance_mode() ? asked.performance_mode() : "balanced",
             kPerformanceModes);
  config.deployment.capture_every_small_batch = mode == PerformanceMode::kInteractivity;
  const std::int64_t factor = mode == PerformanceMode::kThroughput ? 2 : 1;
  const char* doubled = factor > 1 ? ", doubled by --performance-mode throughput" : "";
  const DeviceDefaults device = device_defaults(config.deployment.gpu);
  if (asked.has_max_num_seqs() && asked.max_num_seqs() < 1) {  // Else the other limit would be blamed.
    throw UsageError(fmt::format("--max-num-seqs is {}; give at least 1", asked.max_num_seqs()));
  }
  e.max_num_seqs = asked.has_max_num_seqs() ? asked.max_num_seqs() : device.seqs * factor;
  if (asked.has_max_num_batched_tokens()) {
    e.max_num_batched_tokens = asked.max_num_batched_tokens();
  } else {
    const std::int64_t wanted = device.batched_tokens * factor;
    const std::int64_t whole = e.enable_chunked_prefill ? wanted : std::max(wanted, e.max_model_len);
    e.max_num_batched_tokens = std::min(whole, e.max_num_seqs * e.max_model_len);
    config.provenance.push_back(
        fmt::format("max_num_batched_tokens {}: {}{}{}", e.max_num_batched_tokens, device.because, doubled,
                    e.max_num_batched_tokens > wanted   ? ", raised to max_model_len without chunked prefill"
                    : e.max_num_batched_tokens < wanted ? ", cut to max_num_seqs x max_model_len"
                                                        : ""));
  }
  if (!asked.has_max_num_seqs()) {
    const std::int64_t wanted = e.max_num_seqs;
    e.max_num_seqs = std::min(wanted, e.max_num_batched_tokens);
    config.provenance.push_back(
        fmt::format("max_num_seqs {}: {}{}{}", e.max_num_seqs, device.because, doubled,
                    e.max_num_seqs < wanted ? ", cut to max_num_batched_tokens" : ""));
  }
  if (asked.has_max_num_scheduled_tokens()) {
    e.max_num_scheduled_tokens = asked.max_num_scheduled_tokens();
  }
  if (asked.has_max_num_active_seqs()) {
    e.max_num_active_seqs = asked.max_num_active_seqs();
  }
}

DeviceDefaults device_defaults(const hw::GpuSpec& gpu) {
  const auto memory = static_cast<double>(gpu.memory_bytes);
  if (memory >= 160 * kGiB) {
    return {16384, 1024, "vLLM's default for API servers on GPUs of 160 GiB and more"};
  }
  if (memory >= 70 * kGiB && !gpu.a100) {
    return {8192, 1024, "vLLM's default for API servers on GPUs of 70 GiB and more"};
  }
  return {2048, 256,
          gpu.a100 ? "vLLM's default for API servers on the A100"
                   : "vLLM's default for API servers on GPUs below 70 GiB"};
}

// Whether the engine may keep those who only decode as a cohort: nobody asks for
// their tokens one by one, or can end one between two steps, and a step's time asks
// for no member's own context.
void resolve_steps(const pb::RunConfig& asked, RunConfig& config) {
  config.plain_steps = asked.plain_steps();
  const bool asks_for_each = config.report.save_detailed || config.client.timeout.has_value();
  const bool times_need_each = config.server_file.empty() && !hw::attention_windows_of(config.deployment.model).empty();
  engine::SchedulerConfig& e = config.engine;
  e.walk_decodes = false;
  e.walk_decodes = config.plain_steps || asks_for_each || times_need_each || config.scheduler != kDefaultScheduler ||
                   !engine::can_keep_cohort(e);
  e.name_blocks = e.walk_decodes;
}

RunConfig resolve(const pb::RunConfig& asked) {
  check_magnitudes(asked);
  RunConfig config;
  config.trace = asked.trace();
  config.seed = asked.sim_seed();
  config.strict = asked.strict();
  resolve_deployment(asked, config);
  resolve_scheduler(asked, config);
  resolve_context(asked, config);
  resolve_limits(asked, config);
  fill_deployment(asked, config);
  resolve_memory(asked, config);
  engine::validate(config.engine);
  resolve_client(asked, config);
  resolve_limits_of_run(asked, config);
  resolve_report(asked, config);
  resolve_steps(asked, config);
  return config;
}

}  // namespace kneepoint::sim
