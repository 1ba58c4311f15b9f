#include "engine/kv_cache.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <utility>

namespace kneepoint::engine {

KvCache::KvCache(const SchedulerConfig& config, BlockKeySource& keys)
    : pool_(static_cast<std::int32_t>(config.num_blocks)),
      keys_(keys),
      block_size_(static_cast<std::int32_t>(config.block_size)),
      max_model_len_(static_cast<std::int32_t>(config.max_model_len)),
      lookahead_(0),
      watermark_blocks_(static_cast<std::int32_t>(config.watermark * static_cast<double>(config.num_blocks))),
      caching_(config.enable_prefix_caching),
      names_(config.name_blocks || config.enable_prefix_caching || config.sliding_window),
      gate_whole_sequence_(config.scheduler_reserve_full_isl),
      drop_last_hit_block_(drops_last_hit_block(config)) {
  if (config.spec_method == SpeculativeMethod::kEagle ||
      config.spec_method == SpeculativeMethod::kDraftModel) {
    lookahead_ = static_cast<std::int32_t>(config.num_speculative_tokens);
  }
  if (config.sliding_window) {
    window_.emplace(config);
  }
}

std::int32_t KvCache::find_hit(const Request& request, std::vector<BlockId>& hit) const {
  hit.clear();
  if (!caching_) {
    return 0;
  }
  if (window_) {
    find_window_hit(request, hit);
  } else {
    find_full_hit(request, hit);
  }
  if (drop_last_hit_block_ && !hit.empty()) {
    hit.pop_back();
  }
  return static_cast<std::int32_t>(hit.size()) * block_size_;
}

BlockId KvCache::find_block(const Request& request, std::int32_t index) const {
  if (!request.private_keys) {
    return pool_.find(keys_.block_key(request.id, index));
  }
  BlockId found = kNullBlock;
  if (static_cast<std::size_t>(index) < request.left_behind.size()) {
    const BlockKey key = keys_.block_key(request.id, index);
    for (const BlockId block : request.left_behind[static_cast<std::size_t>(index)]) {
      if (pool_.carries_private(block, key)) {
        found = found == kNullBlock ? block : pool_.earlier(found, block);
      }
    }
  }
  return found;
}

void KvCache::find_full_hit(const Request& request, std::vector<BlockId>& hit) const {
  const std::int32_t most = (request.num_tokens - 1) / block_size_;
  for (std::int32_t index = 0; index < most; ++index) {
    const BlockId block = find_block(request, index);
    if (block == kNullBlock) {
      return;
    }
    hit.push_back(block);
  }
}

void KvCache::find_window_hit(const Request& request, std::vector<BlockId>& hit) const {
  const std::int32_t most = (request.num_tokens - 1) / block_size_;
  hit.assign(static_cast<std::size_t>(most), kNullBlock);
  // From the right: the rightmost run that is long enough, else the one that starts at block 0.
  std::int32_t run = 0;
  for (std::int32_t index = most - 1; index >= 0; --index) {
    const BlockId block = find_block(request, index);
    hit[static_cast<std::size_t>(index)] = block;
    run = block == kNullBlock ? 0 : run + 1;
    if (run > 0 && run >= window_->hit_run()) {  // A window of one token asks for a run of none.
      hit.resize(static_cast<std::size_t>(index) + static_cast<std::size_t>(run));
      std::fill(hit.begin(), hit.begin() + index, kNullBlock);
      return;
    }
  }
  hit.resize(static_cast<std::size_t>(run));
}

std::int32_t KvCache::gate_blocks(const Request& request) const {
  const std::int32_t blocks = blocks_for(std::min(request.num_tokens, max_model_len_), block_size_);
  return window_ ? std::min(blocks, window_->most_held_blocks()) : blocks;
}

bool KvCache::admit(Request& request, std::span<const BlockId> hit, std::int32_t new_tokens,
                    bool others_running) {
  BOOST_ASSERT_MSG(request.blocks.empty() && request.num_in_flight_tokens == 0,
                   "CONSERVE_BLOCKS: admitted a request that still holds blocks");
  const auto have = static_cast<std::int32_t>(hit.size());
  const std::int32_t computed = have * block_size_;
  const std::int32_t passed = window_ ? window_->passed_blocks(computed) : 0;
  const std::span<const BlockId> kept = hit.subspan(static_cast<std::size_t>(passed));
  // A hit that nobody holds leaves the free queue, so it costs a block like any other.
  const auto revived =
      static_cast<std::int32_t>(std::count_if(kept.begin(), kept.end(), [this](BlockId block) {
        return block != kNullBlock && pool_.ref_cnt(block) == 0;
      }));
  const std::int32_t room = pool_.num_free() - revived - (others_running ? watermark_blocks_ : 0);

  if (gate_whole_sequence_ && std::max(gate_blocks(request) - have, 0) > room) {
    return false;
  }
  const std::int32_t until = std::min(computed + new_tokens + lookahead_, max_model_len_);
  const std::int32_t wanted = blocks_for(until, block_size_);
  if (std::max(wanted - have, 0) > room) {
    return false;
  }

  request.blocks.assign(static_cast<std::size_t>(passed), kNullBlock);
  request.num_passed = passed;
  for (const BlockId block : kept) {
    if (block != kNullBlock) {
      pool_.touch(block);
    }
    request.blocks.push_back(block);
  }
  request.num_registered = have;
  take_up_to(request, wanted);
  register_full_blocks(request, std::min(computed + new_tokens, request.num_tokens));
  return true;
}

bool KvCache::extend(Request& request, std::int32_t new_tokens) {
  if (window_) {
    drop_passed_blocks(request);
  }
  const std::int32_t until_known = request.num_computed_tokens + new_tokens;
  const std::int32_t until = std::min(until_known + lookahead_, max_model_len_);
  const std::int32_t have = held(request);
  if (until > have * block_size_) {
    const std::int32_t wanted = blocks_for(until, block_size_);
    if (wanted - have > pool_.num_free()) {
      return false;
    }
    take_up_to(request, wanted);
  }
  register_full_blocks(request, std::min(until_known, request.num_tokens));
  return true;
}

void KvCache::register_full_blocks(Request& request, std::int32_t tokens) {
  if (!caching_) {
    return;
  }
  while ((request.num_registered + 1) * block_size_ <= tokens) {
    const std::int32_t index = request.num_registered++;
    const BlockId block = request.blocks[static_cast<std::size_t>(index)];
    if (block != kNullBlock && (!window_ || window_->retains(index, request.prompt_tokens))) {
      const BlockKey key = keys_.block_key(request.id, index);
      request.private_keys ? pool_.register_private(block, key) : pool_.register_key(block, key);
    }
  }
}

void KvCache::begin_block(Request& request) {
  if (names_) {
    request.blocks.push_back(pool_.take());
  } else {
    pool_.take_unnamed(1);
  }
}

void KvCache::settle_unnamed(Request& request, std::int32_t tokens) {
  if (!names_) {
    request.num_unnamed = blocks_for(tokens, block_size_);
  }
}

std::int32_t KvCache::blocks_to_extend(const Request& request, std::int32_t new_tokens) const {
  const std::int32_t until = std::min(request.num_computed_tokens + new_tokens + lookahead_, max_model_len_);
  return std::max(0, blocks_for(until, block_size_) - held(request));
}

std::int32_t KvCache::held(const Request& request) const {
  return names_ ? static_cast<std::int32_t>(request.blocks.size()) : request.num_unnamed;
}

void KvCache::release_for_now(Request& request) {
  if (request.private_keys) {
    const auto num_keys = std::min(static_cast<std::size_t>(request.num_registered), request.blocks.size());
    request.left_behind.resize(std::max(request.left_behind.size(), num_keys));
    for (std::size_t index = 0; index < num_keys; ++index) {
      const BlockKey key = keys_.block_key(request.id, static_cast<std::int32_t>(index));
      std::vector<BlockId>& blocks = request.left_behind[index];
      std::erase_if(blocks, [&](BlockId block) {
        return block == request.blocks[index] || !pool_.carries_private(block, key);
      });
      blocks.push_back(request.blocks[index]);
    }
  }
  release(request);
}

void KvCache::release(Request& request) {
  if (!names_) {
    pool_.free_unnamed(std::exchange(request.num_unnamed, 0));
    return;
  }
  pool_.free_tail_first(request.blocks);
  request.blocks.clear();
  request.num_registered = 0;
  request.num_passed = 0;
}

std::int64_t KvCache::blocks_on_empty_pool(const Request& request, std::int32_t first_chunk) const {
  const auto until = [this](std::int32_t tokens) {
    return blocks_for(std::min(tokens + lookahead_, max_model_len_), block_size_);
  };
  const std::int32_t whole = until(request.num_tokens);
  return window_ ? std::max(std::min(whole, window_->most_held_blocks()), until(first_chunk)) : whole;
}

void KvCache::drop_passed_blocks(Request& request) {
  // What is in flight may still be rejected or attended from: only results that are in count.
  const std::int32_t settled = request.num_computed_tokens - request.num_in_flight_tokens;
  const auto have = static_cast<std::int32_t>(request.blocks.size());
  const std::int32_t passed = std::min(window_->passed_blocks(settled), have);
  if (passed <= request.num_passed) {
    return;
  }
  const auto first = static_cast<std::size_t>(request.num_passed);
  const std::span<BlockId> dropped{request.blocks.data() + first, static_cast<std::size_t>(passed) - first};
  pool_.free_tail_first(dropped);
  std::fill(dropped.begin(), dropped.end(), kNullBlock);
  request.num_passed = passed;
}

void KvCache::take_up_to(Request& request, std::int32_t num_blocks) {
  if (!names_) {
    pool_.take_unnamed(num_blocks - request.num_unnamed);
    request.num_unnamed = num_blocks;
    return;
  }
  while (static_cast<std::int32_t>(request.blocks.size()) < num_blocks) {
    request.blocks.push_back(pool_.take());
  }
}

}  // namespace kneepoint::engine
