// Which blocks a model with sliding-window attention needs, and which of them
// are worth remembering.
//
// A token attends to itself and the window - 1 tokens before it. Of t computed
// tokens the next one therefore no longer sees the first t - window + 1, and the
// blocks that lie wholly among those are passed: they are freed while the
// request runs, and a null block stands in their place.
//
// Worked example: window 32, blocks of 16, 100 computed tokens. The next token
// sees tokens 69 .. 100; the first 69 are passed, that is 4 whole blocks.
//
// A prefix hit needs only a run of blocks as long as the window, wherever the
// blocks before it went. So most blocks need never be found again, and with
// `prefix_cache_retention_interval` = R vLLM registers only the run before each
// multiple of R tokens and before the end of the prompt.
//
// Units   tokens and blocks. All functions are pure.
// Source  vLLM 0.32.0, pull request #52216 (sparse retention).
#pragma once

#include <cstdint>
#include <optional>

#include "engine/scheduler_config.h"

namespace kneepoint::engine {

class SlidingWindow {
 public:
  /// Before  config.sliding_window is set and validate() accepts the config.
  explicit SlidingWindow(const SchedulerConfig& config);

  /// Leading blocks that no later token needs once `computed` tokens are there.
  [[nodiscard]] std::int32_t passed_blocks(std::int32_t computed) const;

  /// Consecutive cached blocks after which a lookup is satisfied.
  [[nodiscard]] std::int32_t hit_run() const { return hit_run_; }

  /// Whether full block `index` of a prompt of that length is registered.
  [[nodiscard]] bool retains(std::int32_t index, std::int32_t prompt_tokens) const;

  /// Blocks that a request holds at most at once, as the admission gate assumes.
  [[nodiscard]] std::int32_t most_held_blocks() const { return most_held_blocks_; }

 private:
  [[nodiscard]] bool ends_a_replay(std::int32_t index, std::int32_t prompt_blocks) const;

  std::int32_t window_;
  std::int32_t block_size_;
  std::int32_t extra_;  // 1 where drafting drops the last block of a hit, so that one more must be there.
  std::int32_t hit_run_;
  std::int32_t most_held_blocks_;
  std::optional<std::int32_t> retained_every_;  // In blocks; 0: prompt ends only; nothing: every block.
};

}  // namespace kneepoint::engine
