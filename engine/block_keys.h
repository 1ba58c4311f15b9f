// Who tells the engine which KV blocks hold the same content.
//
// vLLM names a full block by a hash over all tokens up to its end, the salt and
// the adapter. The engine has no tokens; it asks for the name of a block when a
// lookup or a registration needs it, and only ever compares names for equality.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/request.h"

namespace kneepoint::engine {

/// Identity of a full KV block: equal keys mean equal tokens from the start of
/// the sequence to the block's end, equal salt and equal adapter. Wide enough
/// that chance collisions do not happen (birthday bound at 2^64 blocks).
struct BlockKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

/// A block that nobody holds, and the content it still carries.
struct FreeBlock {
  std::int32_t block = 0;
  std::optional<BlockKey> key;
};

class BlockKeySource {
 public:
  virtual ~BlockKeySource() = default;

  /// Key of the full block `index` (0 is the first) of request `id`.
  ///
  /// Before  the request is known to the engine, and its prompt together with
  ///         its outputs covers the block; those of the result that update() is
  ///         taking count.
  /// Equal arguments give equal keys, also after a preemption.
  [[nodiscard]] virtual BlockKey block_key(RequestId id, std::int32_t index) = 0;

  /// Whether no other request ever has a key of this one. Asked once, when it arrives.
  [[nodiscard]] virtual bool is_private(RequestId id) const {
    static_cast<void>(id);
    return false;
  }
};

}  // namespace kneepoint::engine
