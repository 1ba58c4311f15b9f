#include "engine/block_pool.h"

#include <boost/assert.hpp>

namespace kneepoint::engine {

BlockPool::BlockPool(std::int32_t num_blocks) : blocks_(static_cast<std::size_t>(num_blocks)) {
  BOOST_ASSERT_MSG(num_blocks >= 1, "CONSERVE_BLOCKS: a pool has at least its null block");
  at(kNullBlock).ref_cnt = 1;
  for (BlockId block = 1; block < num_blocks; ++block) {
    link_after(block - 1, block);
  }
}

BlockId BlockPool::take() {
  BOOST_ASSERT_MSG(num_free_ > 0, "CONSERVE_BLOCKS: no block left to take");
  const BlockId block = at(kNullBlock).next;
  unlink(block);
  forget_key(block);
  at(block).ref_cnt = 1;
  return block;
}

void BlockPool::take_unnamed(std::int32_t count) {
  BOOST_ASSERT_MSG(count <= num_free_, "CONSERVE_BLOCKS: no block left to take");
  num_free_ -= count;
}

void BlockPool::free_unnamed(std::int32_t count) {
  num_free_ += count;
  BOOST_ASSERT_MSG(num_free_ <= num_usable(), "CONSERVE_BLOCKS: freed a block that nobody holds");
}

void BlockPool::touch(BlockId block) {
  BOOST_ASSERT_MSG(block != kNullBlock && at(block).has_key,
                   "CONSERVE_BLOCKS: only cached blocks are shared");
  if (at(block).ref_cnt++ == 0) {
    unlink(block);
  }
}

void BlockPool::free_tail_first(std::span<const BlockId> table) {
  BlockId last_without_key = kNullBlock;  // Behind it the next of the group at the head is put.
  for (auto it = table.rbegin(); it != table.rend(); ++it) {
    const BlockId block = *it;
    if (block == kNullBlock) {
      continue;
    }
    BOOST_ASSERT_MSG(at(block).ref_cnt > 0, "CONSERVE_BLOCKS: freed a block that nobody holds");
    if (--at(block).ref_cnt > 0) {
      continue;
    }
    if (at(block).has_key) {
      link_after(at(kNullBlock).prev, block);
    } else {
      link_after(last_without_key, block);
      last_without_key = block;
    }
  }
}

void BlockPool::register_key(BlockId block, const BlockKey& key) {
  Block& entry = at(block);
  BOOST_ASSERT_MSG(block != kNullBlock && entry.ref_cnt > 0 && !entry.has_key,
                   "CONSERVE_BLOCKS: only a held block without a key is registered");
  entry.has_key = true;
  entry.key = key;
  entry.newer = kNullBlock;
  if (SameContent* same = by_key_.find(key)) {
    entry.older = same->newest;
    at(same->newest).newer = block;
    same->newest = block;
  } else {
    entry.older = kNullBlock;
    by_key_.insert(key, {block, block});
  }
}

void BlockPool::register_private(BlockId block, const BlockKey& key) {
  Block& entry = at(block);
  BOOST_ASSERT_MSG(block != kNullBlock && entry.ref_cnt > 0 && !entry.has_key,
                   "CONSERVE_BLOCKS: only a held block without a key is registered");
  entry.has_key = true;
  entry.is_private = true;
  entry.key = key;
  entry.registered = num_private_++;
}

BlockId BlockPool::find(const BlockKey& key) const {
  const SameContent* same = by_key_.find(key);
  return same == nullptr ? kNullBlock : same->oldest;
}

bool BlockPool::reset_prefix_cache() {
  if (num_free_ != num_usable()) {
    return false;
  }
  for (BlockId block = 1; block <= num_usable(); ++block) {
    forget_key(block);
  }
  return true;
}

void BlockPool::preset_free_queue(std::span<const FreeBlock> queue) {
  BOOST_ASSERT_MSG(static_cast<std::int32_t>(queue.size()) == num_usable(),
                   "CONSERVE_BLOCKS: a preset names every usable block");
  const bool idle = reset_prefix_cache();
  BOOST_ASSERT_MSG(idle, "CONSERVE_BLOCKS: only an idle pool is preset");
  static_cast<void>(idle);
  while (num_free_ > 0) {
    unlink(at(kNullBlock).next);
  }
  for (const FreeBlock& free : queue) {
    at(free.block).ref_cnt = 1;
    if (free.key) {
      register_key(free.block, *free.key);
    }
    at(free.block).ref_cnt = 0;
    link_after(at(kNullBlock).prev, free.block);
  }
}

std::vector<BlockId> BlockPool::free_queue() const {
  std::vector<BlockId> queue;
  queue.reserve(static_cast<std::size_t>(num_free_));
  for (BlockId block = at(kNullBlock).next; block != kNullBlock; block = at(block).next) {
    queue.push_back(block);
  }
  return queue;
}

void BlockPool::link_after(BlockId where, BlockId block) {
  const BlockId behind = at(where).next;
  at(block).prev = where;
  at(block).next = behind;
  at(where).next = block;
  at(behind).prev = block;
  ++num_free_;
}

void BlockPool::unlink(BlockId block) {
  at(at(block).prev).next = at(block).next;
  at(at(block).next).prev = at(block).prev;
  --num_free_;
}

void BlockPool::forget_key(BlockId block) {
  Block& entry = at(block);
  if (!entry.has_key) {
    return;
  }
  entry.has_key = false;
  if (entry.is_private) {
    entry.is_private = false;
    return;
  }
  if (entry.older == kNullBlock && entry.newer == kNullBlock) {
    by_key_.erase(entry.key);
    return;
  }
  if (entry.older != kNullBlock && entry.newer != kNullBlock) {
    at(entry.older).newer = entry.newer;
    at(entry.newer).older = entry.older;
    return;
  }
  // The first or the last of several: the map has to know.
  if (SameContent* same = by_key_.find(entry.key)) {
    const bool first = entry.older == kNullBlock;
    (first ? same->oldest : same->newest) = first ? entry.newer : entry.older;
    (first ? at(entry.newer).older : at(entry.older).newer) = kNullBlock;
  }
}

}  // namespace kneepoint::engine
