// KV blocks request by request: what a plan needs, what a prefix hit saves.
//
// The pool (engine/block_pool.h) knows blocks; this knows how many of them a
// request's tokens need, which of them are hits, and when full blocks get their
// keys. It is asked once for each request of each step, in planned order, and
// says yes (the blocks are taken) or no (nothing was taken).
//
// Blocks are registered when a step is *planned*, before it runs: a request
// admitted later in the same step already hits them.
//
// Worked example (block_size 16). A prompt of 55 tokens needs 4 blocks and
// registers 3. Its twin, admitted next, hits 3 blocks = 48 tokens, computes 7
// and takes one block. A prompt of exactly 48 tokens would hit only 32: its last
// token must be computed, as only that yields a next token.
//
// Source  vLLM 0.32.0; the rules and their order are told in engine/README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/block_keys.h"
#include "engine/block_pool.h"
#include "engine/request_table.h"
#include "engine/scheduler_config.h"
#include "engine/sliding_window.h"

namespace kneepoint::engine {

class KvCache {
 public:
  /// Before  validate(config) did not throw; `keys` outlives the cache.
  KvCache(const SchedulerConfig& config, BlockKeySource& keys);

  /// Looks for the known start of a request that holds no blocks. `hit` becomes
  /// the blocks found, null blocks where a window needs none; returns the tokens
  /// they cover. Changes nothing, not even the order of eviction.
  [[nodiscard]] std::int32_t find_hit(const Request& request, std::vector<BlockId>& hit) const;

  /// Blocks for `new_tokens` tokens of a request that holds none, behind `hit`.
  /// `others_running`: the watermark applies. False: it does not fit, nothing changed.
  [[nodiscard]] bool admit(Request& request, std::span<const BlockId> hit, std::int32_t new_tokens,
                           bool others_running);

  /// Blocks for `new_tokens` more tokens of a running request. False: none were taken.
  [[nodiscard]] bool extend(Request& request, std::int32_t new_tokens);

  // The cohort's part (engine/cohort.h): one token each, and never a window or drafts.

  /// A new block for a running request whose blocks are full. Before: one is free.
  void begin_block(Request& request);
  /// A request's blocks were counted for it up to `tokens` tokens without it being told.
  void settle_unnamed(Request& request, std::int32_t tokens);
  void take_unnamed(std::int32_t count) { pool_.take_unnamed(count); }
  [[nodiscard]] bool names_blocks() const { return names_; }
  /// Blocks that extend() would take.
  [[nodiscard]] std::int32_t blocks_to_extend(const Request& request, std::int32_t new_tokens) const;

  /// Gives keys to the full blocks among the first `tokens` tokens that have none.
  /// Does nothing without prefix caching.
  void register_full_blocks(Request& request, std::int32_t tokens);

  /// To be told of each request before anything else is done for it. (A window leaves blocks behind at any time, so
  /// there the table keeps all keys.)
  void meet(Request& request) const {
    request.private_keys = caching_ && !window_ && keys_.is_private(request.id);
  }

  /// Frees the whole table, tail first.
  void release(Request& request);
  /// The same for a request that will come back.
  void release_for_now(Request& request);

  /// Blocks that the request, admitted with `first_chunk` tokens, must have had at once before it gets its next
  /// token: all that it knows, or what its window holds and the first chunk.
  [[nodiscard]] std::int64_t blocks_on_empty_pool(const Request& request, std::int32_t first_chunk) const;

  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  void preset_free_queue(std::span<const FreeBlock> queue) { pool_.preset_free_queue(queue); }
  /// Whether prefixes are cached, and so lookups count (PrefixCacheStats).
  [[nodiscard]] bool caching() const { return caching_; }

 private:
  [[nodiscard]] BlockId find_block(const Request& request, std::int32_t index) const;
  void find_full_hit(const Request& request, std::vector<BlockId>& hit) const;
  void find_window_hit(const Request& request, std::vector<BlockId>& hit) const;
  [[nodiscard]] std::int32_t gate_blocks(const Request& request) const;
  void drop_passed_blocks(Request& request);
  void take_up_to(Request& request, std::int32_t num_blocks);
  [[nodiscard]] std::int32_t held(const Request& request) const;

  BlockPool pool_;
  BlockKeySource& keys_;
  std::int32_t block_size_;
  std::int32_t max_model_len_;
  std::int32_t lookahead_;  // Slots behind the planned tokens into which drafts are written.
  std::int32_t watermark_blocks_;
  bool caching_;
  bool names_;  // Else blocks are counted: nobody can ask which is whose.
  bool gate_whole_sequence_;
  bool drop_last_hit_block_;
  std::optional<SlidingWindow> window_;
};

}  // namespace kneepoint::engine
