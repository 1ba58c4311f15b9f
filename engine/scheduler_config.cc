#include "engine/scheduler_config.h"

#include <fmt/format.h>

#include <initializer_list>

namespace kneepoint::engine {

namespace {

// Counts are 32 bits wide inside the engine; half of that leaves room for sums of two.
constexpr std::int64_t kMost = std::int64_t{1} << 30;

struct Range {
  const char* option;
  std::int64_t value;
  std::int64_t least;
  std::int64_t most = kMost;
};

void check_ranges(const SchedulerConfig& config) {
  for (const Range& range : {
           Range{"max-num-batched-tokens", config.max_num_batched_tokens, 1},
           Range{"max-num-scheduled-tokens", config.max_num_scheduled_tokens.value_or(1), 1},
           Range{"max-num-seqs", config.max_num_seqs, 1},
           Range{"max-num-active-seqs", config.max_num_active_seqs.value_or(1), 1, config.max_num_seqs},
           Range{"max-model-len", config.max_model_len, 2},
           Range{"long-prefill-token-threshold", config.long_prefill_token_threshold, 0,
                 config.max_model_len},
           Range{"prefill-schedule-interval", config.prefill_schedule_interval, 1},
           Range{"max-loras", config.max_loras, 1},
           Range{"block-size", config.block_size, 1},
           Range{"num-gpu-blocks", config.num_blocks, 2},
           Range{"sliding window", config.sliding_window.value_or(1), 1},
           Range{"prefix-cache-retention-interval", config.prefix_cache_retention_interval.value_or(0), 0},
           Range{"pipeline-parallel-size", config.pipeline_parallel_size, 1, 1024},
           Range{"batches in flight", config.depth.value_or(1), 1, 1024},
           Range{"num-speculative-tokens", config.num_speculative_tokens, 0, 1024},
           Range{"swap space in blocks", config.num_cpu_blocks, 0},
       }) {
    if (range.value < range.least || range.value > range.most) {
      throw ConfigError(fmt::format("{} is {}; give a value from {} to {}", range.option, range.value,
                                    range.least, range.most));
    }
  }
  if (!(config.watermark >= 0.0 && config.watermark < 1.0)) {
    throw ConfigError(fmt::format("watermark is {}; give the share of blocks to keep free, from 0 to below 1",
                                  config.watermark));
  }
  if (config.scheduler_delay_factor != 0.0) {
    throw ConfigError(
        "scheduler-delay-factor needs the time between steps, which is not simulated; leave it 0");
  }
}

void check_limits(const SchedulerConfig& config) {
  if (!config.enable_chunked_prefill && config.max_num_batched_tokens < config.max_model_len) {
    throw ConfigError(
        fmt::format("without chunked prefill a step must hold a whole prompt: max-num-batched-tokens "
                    "({}) is below max-model-len ({}); raise the one or lower the other",
                    config.max_num_batched_tokens, config.max_model_len));
  }
  if (config.max_num_scheduled_tokens && *config.max_num_scheduled_tokens > config.max_num_batched_tokens) {
    throw ConfigError(
        fmt::format("max-num-scheduled-tokens ({}) is above max-num-batched-tokens ({}); lower it",
                    *config.max_num_scheduled_tokens, config.max_num_batched_tokens));
  }
}

void check_retention(const SchedulerConfig& config) {
  const std::int64_t interval = config.prefix_cache_retention_interval.value_or(0);
  if (interval == 0) {
    return;
  }
  if (!config.sliding_window) {
    throw ConfigError(
        fmt::format("prefix-cache-retention-interval is {}, but the model has no sliding window; "
                    "leave it out",
                    interval));
  }
  if (interval % config.block_size != 0) {
    throw ConfigError(
        fmt::format("prefix-cache-retention-interval ({}) is no multiple of block-size ({}); "
                    "give one",
                    interval, config.block_size));
  }
}

void check_drafts(const SchedulerConfig& config) {
  const bool drafts = config.spec_method != SpeculativeMethod::kNone;
  if (drafts != (config.num_speculative_tokens > 0)) {
    throw ConfigError(drafts ? "a speculative method is set, but num-speculative-tokens is 0; give at least 1"
                             : "num-speculative-tokens is set without a speculative method; name the method");
  }
  if (config.spec_method == SpeculativeMethod::kNgram && config.async_scheduling) {
    throw ConfigError(
        "ngram drafts on the CPU, which async scheduling does not wait for; turn one of them off");
  }
  if (config.max_num_batched_tokens <= draft_slots(config)) {
    throw ConfigError(
        fmt::format("max-num-batched-tokens ({}) leaves no token beside the draft slots of a "
                    "request ({}); raise it",
                    config.max_num_batched_tokens, draft_slots(config)));
  }
}

}  // namespace

std::int64_t batches_in_flight(const SchedulerConfig& config) {
  if (config.depth) {
    return *config.depth;
  }
  const std::int64_t pp = config.pipeline_parallel_size;
  if (!config.async_scheduling) {
    return pp;
  }
  if (config.use_v2_model_runner) {
    return pp + 1;
  }
  return pp == 1 ? 2 : pp;
}

std::int64_t draft_slots(const SchedulerConfig& config) {
  return config.spec_method == SpeculativeMethod::kDraftModel ? 1 : 0;
}

bool drops_last_hit_block(const SchedulerConfig& config) {
  return config.spec_method == SpeculativeMethod::kEagle && !config.disable_eagle_block_drop;
}

bool can_keep_cohort(const SchedulerConfig& config) {
  return !config.walk_decodes && config.num_speculative_tokens == 0 && !config.sliding_window &&
         batches_in_flight(config) == (config.async_scheduling ? 2 : 1);
}

void validate(const SchedulerConfig& config) {
  check_ranges(config);
  check_limits(config);
  check_retention(config);
  check_drafts(config);
}

}  // namespace kneepoint::engine
