// The KV blocks of vllm-v0: one block per content, evicted by last use.
//
// Unlike V1's pool (engine/block_pool.h) this one never holds two blocks of the
// same content, makes a block a hit only when the step that computed it has run,
// and evicts by (step of last use, then depth in the prompt, deepest first).
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "engine/block_keys.h"
#include "engine/block_pool.h"
#include "engine/flat_map.h"
#include "engine/request_table.h"

namespace kneepoint::engine {

class VllmV0Blocks {
 public:
  /// `num_blocks` blocks, all free.
  VllmV0Blocks(std::int32_t num_blocks, std::int32_t block_size, bool caching, BlockKeySource& keys);

  /// Free blocks, those that still cache something included.
  [[nodiscard]] std::int32_t num_free() const { return static_cast<std::int32_t>(never_cached_.size() + evictable_.size()); }
  [[nodiscard]] std::int32_t num_blocks() const { return static_cast<std::int32_t>(blocks_.size()); }

  [[nodiscard]] bool caching() const { return caching_; }

  /// Gives a request that holds none the blocks of all its tokens, known ones
  /// shared; returns the tokens that need not be computed (never the last one).
  /// Before  num_free() covers the whole sequence.
  [[nodiscard]] std::int32_t take_whole(Request& request);

  /// Blocks for `tokens` tokens in all. Before: num_free() covers what is missing.
  void grow(Request& request, std::int32_t tokens);

  /// The request's full computed blocks are hits from now on.
  void register_computed(Request& request);

  /// All blocks of a request, last used in step `now`.
  void release(Request& request, std::int64_t now);

 private:
  struct Block {
    std::int32_t ref_cnt = 0;
    std::int32_t depth = 0;  // Index in the prompt, while it caches something.
    std::int64_t last_use = 0;
    bool has_key = false;
    BlockKey key;
  };
  struct KeyHash {
    std::uint64_t operator()(const BlockKey& key) const { return spread_bits(key.high ^ spread_bits(key.low)); }
  };
  // Oldest use first, of equals the deepest; the id decides the rest.
  using EvictionOrder = std::tuple<std::int64_t, std::int32_t, BlockId>;

  [[nodiscard]] EvictionOrder order_of(BlockId block) const;
  [[nodiscard]] BlockId take();
  void hold_cached(BlockId block);

  std::int32_t block_size_;
  bool caching_;
  BlockKeySource& keys_;
  std::vector<Block> blocks_;
  std::vector<BlockId> never_cached_;  // Free and without content; the last is next.
  std::set<EvictionOrder> evictable_;  // Free, with content.
  FlatMap<BlockKey, BlockId, KeyHash> by_key_;
};

}  // namespace kneepoint::engine
