// The pool of KV blocks: who holds each block, which free block is used next,
// and which block holds which content.
//
// A block that nobody holds is in the free queue. It may still carry the key of
// the content it held last; a request with the same content can then take it
// back (a prefix hit), until somebody else takes it from the head of the queue
// and its content is gone. So the order of the free queue is the eviction order
// of the prefix cache:
//
//     head                                              tail
//     [ freed without a key | never used | freed with a key, oldest first ]
//       used next                                    survives longest
//
// Worked example (pool of 5, block 0 is the null block). A request takes 1, 2, 3
// and registers keys for 1 and 2. It ends, and its table is freed tail first:
// 3 has no key and goes to the head, 2 and then 1 go to the tail: 3 4 2 1. The
// start of the prompt, the part most likely to be shared, is evicted last.
//
// Never  hands out block 0, which stands in tables for blocks that a sliding
//        window has passed.
// Source  vLLM 0.32.0; the order for blocks without a key: pull requests #43447, #51482.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/block_keys.h"
#include "engine/flat_map.h"

namespace kneepoint::engine {

/// Index of a KV block in its pool.
using BlockId = std::int32_t;

inline constexpr BlockId kNullBlock = 0;

/// Blocks that hold `tokens` tokens.
[[nodiscard]] constexpr std::int32_t blocks_for(std::int32_t tokens, std::int32_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

class BlockPool {
 public:
  /// Blocks 0 .. num_blocks - 1, all free but the null block, in ascending order.
  explicit BlockPool(std::int32_t num_blocks);

  [[nodiscard]] std::int32_t num_free() const { return num_free_; }
  [[nodiscard]] std::int32_t num_usable() const { return static_cast<std::int32_t>(blocks_.size()) - 1; }
  [[nodiscard]] std::int32_t ref_cnt(BlockId block) const { return at(block).ref_cnt; }
  [[nodiscard]] bool has_key(BlockId block) const { return at(block).has_key; }

  /// Takes the head of the free queue for one holder; what it cached is forgotten.
  /// Before  num_free() > 0.
  [[nodiscard]] BlockId take();

  /// The same for `count` blocks without saying which. A pool either names its blocks or does not.
  /// Before  num_free() >= count.
  void take_unnamed(std::int32_t count);
  /// Gives so many back.
  void free_unnamed(std::int32_t count);

  /// One more holder for a block found by find().
  void touch(BlockId block);

  /// One holder fewer for each block of `table`, last one first; null blocks are
  /// passed over. Blocks that nobody holds any more and that carry a key go to the
  /// tail one by one; those without go to the head as a group, in the order freed.
  void free_tail_first(std::span<const BlockId> table);

  /// From now on `block`, held and without a key, is found under `key`.
  void register_key(BlockId block, const BlockKey& key);

  /// Of all blocks with this key the one registered earliest; kNullBlock if none.
  [[nodiscard]] BlockId find(const BlockKey& key) const;

  // Keys that only one request can ask for need no table: it remembers where its blocks were.

  /// register_key() for such a key; find() does not know it.
  void register_private(BlockId block, const BlockKey& key);
  /// Whether `block` still carries this private key.
  [[nodiscard]] bool carries_private(BlockId block, const BlockKey& key) const {
    return at(block).is_private && at(block).key == key;
  }
  /// Of two such blocks the one registered earlier.
  [[nodiscard]] BlockId earlier(BlockId a, BlockId b) const { return at(a).registered < at(b).registered ? a : b; }

  /// Forgets all content; the free queue keeps its order. False, and nothing
  /// happens, while a block is held.
  [[nodiscard]] bool reset_prefix_cache();

  /// Puts an idle pool into the state an earlier run left: its free queue, head first.
  /// Before  every block is free, and `queue` has each usable block once.
  void preset_free_queue(std::span<const FreeBlock> queue);

  /// The whole free queue, head first. For tests and traces.
  [[nodiscard]] std::vector<BlockId> free_queue() const;

 private:
  struct Block {
    std::int32_t ref_cnt = 0;
    bool has_key = false;
    bool is_private = false;
    BlockId prev = kNullBlock;  // Neighbours in the free queue, while free.
    BlockId next = kNullBlock;
    BlockId older = kNullBlock;  // Neighbours among the blocks of one key, while it has one.
    BlockId newer = kNullBlock;
    BlockKey key;
    std::int64_t registered = 0;  // When, counted in private registrations.
  };

  /// The blocks of one key, in the order in which they were registered.
  struct SameContent {
    BlockId oldest = kNullBlock;
    BlockId newest = kNullBlock;
  };

  struct KeyHash {
    std::uint64_t operator()(const BlockKey& key) const {
      return spread_bits(key.high ^ spread_bits(key.low));
    }
  };

  [[nodiscard]] Block& at(BlockId block) { return blocks_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] const Block& at(BlockId block) const { return blocks_[static_cast<std::size_t>(block)]; }

  void link_after(BlockId where, BlockId block);
  void unlink(BlockId block);
  void forget_key(BlockId block);

  // The free queue is a ring through the null block, which is never in it: its
  // next is the head, its prev the tail.
  std::vector<Block> blocks_;
  std::int32_t num_free_ = 0;
  std::int64_t num_private_ = 0;  // Registrations so far.
  FlatMap<BlockKey, SameContent, KeyHash> by_key_;
};

}  // namespace kneepoint::engine
