#include "engine/sliding_window.h"

#include <algorithm>

#include "engine/block_pool.h"

namespace kneepoint::engine {

SlidingWindow::SlidingWindow(const SchedulerConfig& config)
    : window_(static_cast<std::int32_t>(*config.sliding_window)),
      block_size_(static_cast<std::int32_t>(config.block_size)),
      extra_(drops_last_hit_block(config) ? 1 : 0),
      hit_run_(blocks_for(window_ - 1, block_size_) + extra_) {
  const std::int64_t in_flight = batches_in_flight(config) * config.max_num_batched_tokens;
  const std::int64_t seen = std::min(window_ - 1 + in_flight, config.max_model_len);
  most_held_blocks_ = blocks_for(static_cast<std::int32_t>(seen), block_size_) + 1;
  if (config.prefix_cache_retention_interval) {
    retained_every_ = static_cast<std::int32_t>(*config.prefix_cache_retention_interval / config.block_size);
  }
}

std::int32_t SlidingWindow::passed_blocks(std::int32_t computed) const {
  return std::max(0, computed - window_ + 1) / block_size_;
}

bool SlidingWindow::retains(std::int32_t index, std::int32_t prompt_tokens) const {
  if (!retained_every_) {
    return true;
  }
  if (const std::int32_t period = *retained_every_; period > 0) {
    const bool before_checkpoint = index >= extra_ && (index - extra_) % period >= period - hit_run_;
    if (hit_run_ >= period || before_checkpoint) {
      return true;
    }
  }
  // A request with the same prompt replays it up to the last block that leaves one token to compute.
  // Drafting then steps back one block, and a prompt that is continued may end one block later.
  if (extra_ == 0) {
    return ends_a_replay(index, (prompt_tokens - 1) / block_size_);
  }
  return ends_a_replay(index, std::max((prompt_tokens - 1) / block_size_ - 1, 0)) ||
         ends_a_replay(index, std::max(prompt_tokens / block_size_ - 1, 0));
}

bool SlidingWindow::ends_a_replay(std::int32_t index, std::int32_t prompt_blocks) const {
  return index >= prompt_blocks + extra_ - hit_run_ && index < prompt_blocks + extra_;
}

}  // namespace kneepoint::engine
