// Names of KV blocks from the content of prompts and answers.
//
// A workload says what a prompt is made of: stretches of named contents
// (traces/trace_record.h). vLLM shares a KV block between requests whose tokens
// are equal from the start up to the block's end, under equal salt and adapter.
// So the key of block j is a hash chained over the keys before it:
//
//     key(-1) = H(salt, adapter)
//     key(j)  = H(key(j - 1), the stretches that lie in block j)
//
// with neighbouring stretches joined, so that a prompt cut in two at another
// place has the same keys. The answer is the stretch that follows the prompt.
// What is not named is a content of the request's own: no other request has it,
// but the request itself finds it again after a preemption.
//
// Keys are derived when they are asked for, so the engine learns nothing of the
// answer's length.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/block_keys.h"
#include "traces/trace_record.h"

namespace kneepoint::sim {

class ContentKeys : public engine::BlockKeySource {
 public:
  explicit ContentKeys(std::int64_t block_size);

  /// Must come before the engine asks for a key of `id`.
  void add(engine::RequestId id, const traces::TraceRecord& record);
  void remove(engine::RequestId id);

  [[nodiscard]] bool is_private(engine::RequestId id) const override { return !shared_.contains(id); }
  [[nodiscard]] engine::BlockKey block_key(engine::RequestId id, std::int32_t index) override;

 private:
  struct Sequence {
    std::vector<traces::PromptSegment> segments;  // Joined; the answer is the last, without an end.
    std::vector<engine::BlockKey> keys;           // Of the blocks 0, 1, ... derived so far.
    engine::BlockKey seed;
    std::size_t next_segment = 0;                 // Where block keys.size() begins:
    std::int64_t next_offset = 0;                 // so many tokens into that segment.
  };

  void derive_next(Sequence& sequence) const;

  std::int64_t block_size_;
  std::unordered_map<engine::RequestId, Sequence> shared_;
};

}  // namespace kneepoint::sim
