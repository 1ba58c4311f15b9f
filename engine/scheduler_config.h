// The engine's part of a `vllm serve` line.
//
// Names and defaults are vLLM 0.32.0's; where vLLM derives a default from the
// device (max_num_batched_tokens, max_num_seqs) the caller has done so before.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace kneepoint::engine {

/// Wrong input found by the engine: says which option, and what would do.
struct ConfigError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class SchedulingPolicy : std::uint8_t { kFcfs, kPriority };

enum class SpeculativeMethod : std::uint8_t {
  kNone,
  kNgram,       ///< Synchronous, no lookahead slots.
  kEagle,       ///< Also eagle3 and mtp: lookahead slots, one block dropped from a prefix hit.
  kDraftModel,  ///< Lookahead slots, and one draft slot charged per planned request.
};

/// How many tokens orca reserves for a request's answer (OSDI 2022, section 6).
enum class OrcaReserve : std::uint8_t { kMax, kPow2, kOracle };

struct SchedulerConfig {
  // Limits of a step.
  std::int64_t max_num_batched_tokens = 2048;
  std::optional<std::int64_t> max_num_scheduled_tokens;  ///< Default: max_num_batched_tokens.
  std::int64_t max_num_seqs = 128;
  std::optional<std::int64_t> max_num_active_seqs;  ///< Default and ceiling: max_num_seqs.
  std::int64_t max_model_len = 8192;
  bool enable_chunked_prefill = true;
  std::int64_t long_prefill_token_threshold = 0;  ///< 0: none.
  bool long_prefill_token_threshold_adaptive = false;
  std::int64_t prefill_schedule_interval = 1;

  // Order and admission.
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  double watermark = 0.0;                  ///< Share of all blocks kept free at admission.
  bool scheduler_reserve_full_isl = true;  ///< The whole known sequence must fit to be admitted.
  std::int64_t max_loras = 1;

  // KV blocks.
  std::int64_t block_size = 16;
  std::int64_t num_blocks = 0;  ///< The null block included.
  bool enable_prefix_caching = true;
  std::optional<std::int64_t> sliding_window;  ///< The one KV group is a window of so many tokens.
  /// 0: semantic checkpoints only; nothing: dense. Acts with a sliding window.
  std::optional<std::int64_t> prefix_cache_retention_interval = 0;

  // Batches in flight.
  bool async_scheduling = false;
  bool use_v2_model_runner = false;
  std::int64_t pipeline_parallel_size = 1;
  std::optional<std::int64_t> depth;  ///< Default: batches_in_flight() of the rest.

  // Drafts.
  SpeculativeMethod spec_method = SpeculativeMethod::kNone;
  std::int64_t num_speculative_tokens = 0;
  bool disable_eagle_block_drop = false;

  // How the work is done; decisions are the same. vllm-v1 alone asks.
  bool walk_decodes = true;  ///< Every running request is walked in every step; false: plain decodes are a cohort.
  bool name_blocks = true;   ///< Block tables are kept; false: blocks are only counted where no prefix is cached.

  // Other policies than vllm-v1.
  OrcaReserve orca_reserve = OrcaReserve::kMax;
  std::int64_t num_cpu_blocks = 0;      ///< vllm-v0: swap space.
  bool preemption_mode_swap = false;    ///< vllm-v0: swap instead of recompute.
  double scheduler_delay_factor = 0.0;  ///< vllm-v0; needs a clock, so only 0 is accepted.
};

/// Planned steps that may await their result at once (spec.md 6): sync pp;
/// async pp + 1 with the V2 runner, else 2 if pp = 1, else pp.
[[nodiscard]] std::int64_t batches_in_flight(const SchedulerConfig& config);

/// Draft-input positions that each planned request costs beside its tokens (spec.md 2.0).
[[nodiscard]] std::int64_t draft_slots(const SchedulerConfig& config);

/// Whether a prefix hit loses its last block, so that drafting sees it recomputed (spec.md 4.4).
[[nodiscard]] bool drops_last_hit_block(const SchedulerConfig& config);

/// Whether vllm-v1 may keep those who only decode as a cohort (engine/cohort.h): each of them gets one token
/// from every step, so that there are no drafts, no window, no step without it, and nobody waits for its turn.
[[nodiscard]] bool can_keep_cohort(const SchedulerConfig& config);

/// Throws ConfigError, naming option and way out, if `config` contradicts
/// itself as vLLM would find at startup.
void validate(const SchedulerConfig& config);

}  // namespace kneepoint::engine
