#include "engine/vllm_v0_blocks.h"

#include <boost/assert.hpp>

namespace kneepoint::engine {

VllmV0Blocks::VllmV0Blocks(std::int32_t num_blocks, std::int32_t block_size, bool caching, BlockKeySource& keys)
    : block_size_(block_size), caching_(caching), keys_(keys), blocks_(static_cast<std::size_t>(num_blocks)) {
  for (BlockId block = num_blocks - 1; block >= 0; --block) {
    never_cached_.push_back(block);
  }
}

VllmV0Blocks::EvictionOrder VllmV0Blocks::order_of(BlockId block) const {
  const Block& b = blocks_[static_cast<std::size_t>(block)];
  return {b.last_use, -b.depth, block};
}

BlockId VllmV0Blocks::take() {
  BOOST_ASSERT_MSG(num_free() > 0, "CONSERVE_BLOCKS: took a block from an empty pool");
  BlockId block = kNullBlock;
  if (!never_cached_.empty()) {
    block = never_cached_.back();
    never_cached_.pop_back();
  } else {
    block = std::get<2>(*evictable_.begin());
    evictable_.erase(evictable_.begin());
  }
  Block& b = blocks_[static_cast<std::size_t>(block)];
  if (b.has_key) {
    by_key_.erase(b.key);
    b.has_key = false;
  }
  b.ref_cnt = 1;
  return block;
}

void VllmV0Blocks::hold_cached(BlockId block) {
  Block& b = blocks_[static_cast<std::size_t>(block)];
  if (b.ref_cnt++ == 0) {
    evictable_.erase(order_of(block));
  }
}

std::int32_t VllmV0Blocks::take_whole(Request& request) {
  std::int32_t hits = 0;
  const std::int32_t most_hits = (request.num_tokens - 1) / block_size_;
  while (caching_ && hits < most_hits) {
    const BlockId* known = by_key_.find(keys_.block_key(request.id, hits));
    if (known == nullptr) {
      break;
    }
    hold_cached(*known);
    request.blocks.push_back(*known);
    ++hits;
  }
  request.num_registered = hits;
  grow(request, request.num_tokens);
  return hits * block_size_;
}

void VllmV0Blocks::grow(Request& request, std::int32_t tokens) {
  while (static_cast<std::int32_t>(request.blocks.size()) < blocks_for(tokens, block_size_)) {
    request.blocks.push_back(take());
  }
}

void VllmV0Blocks::register_computed(Request& request) {
  while (caching_ && (request.num_registered + 1) * block_size_ <= request.num_computed_tokens) {
    const std::int32_t index = request.num_registered++;
    const BlockId block = request.blocks[static_cast<std::size_t>(index)];
    Block& b = blocks_[static_cast<std::size_t>(block)];
    const BlockKey key = keys_.block_key(request.id, index);
    if (!b.has_key && by_key_.find(key) == nullptr) {
      b.has_key = true;
      b.key = key;
      b.depth = index;
      by_key_.insert(key, block);
    }
  }
}

void VllmV0Blocks::release(Request& request, std::int64_t now) {
  for (const BlockId block : request.blocks) {
    Block& b = blocks_[static_cast<std::size_t>(block)];
    b.last_use = now;
    BOOST_ASSERT_MSG(b.ref_cnt > 0, "CONSERVE_BLOCKS: freed a block that nobody holds");
    if (--b.ref_cnt > 0) {
      continue;
    }
    if (b.has_key) {
      evictable_.insert(order_of(block));
    } else {
      never_cached_.push_back(block);
    }
  }
  request.blocks.clear();
  request.num_registered = 0;
}

}  // namespace kneepoint::engine
