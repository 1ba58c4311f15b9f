// Keys of a prompt's blocks, chained: equal keys, equal tokens from the start on.
//
// The same rule as sim/content_keys.h, which names a server's KV blocks: the key
// of block j hashes the key before it and the stretches of content in the block,
// neighbouring stretches joined.
#pragma once

#include <cstdint>
#include <vector>

#include "traces/trace_record.h"

namespace kneepoint::traces {

struct ChainKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const ChainKey&, const ChainKey&) = default;
};

/// Keys of the blocks of `record`'s prompt at `block_size`, into `keys`; of the
/// full ones, or with `partial` of the last one too. With `answer`, of prompt and
/// answer together, as far as their contents are named. Nothing if the prompt is
/// unshared.
void chain_keys(const TraceRecord& record, std::int64_t block_size, bool partial, bool answer,
                std::vector<ChainKey>& keys);

/// A growing table from keys to small numbers, in the order of their coming:
/// open addressing, so that millions of blocks take 24 bytes each, not 60.
class ChainTable {
 public:
  ChainTable();
  /// The number of `key`, given anew if it was not there; `fresh` says which.
  std::uint64_t number(const ChainKey& key, bool& fresh);
  [[nodiscard]] bool contains(const ChainKey& key) const;
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  struct Slot {
    ChainKey key;
    std::uint64_t number = 0;  // From 1; 0 is a free slot.
  };
  [[nodiscard]] std::size_t find(const ChainKey& key) const;
  void grow();

  std::vector<Slot> slots_;
  std::uint64_t size_ = 0;
};

}  // namespace kneepoint::traces
