#include "sim/content_keys.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <limits>
#include <utility>

namespace kneepoint::sim {
namespace {

using engine::BlockKey;
using traces::PromptSegment;

// Finaliser of MurmurHash3 (A. Appleby, 2011, public domain): every input bit
// moves every output bit.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

// Two lanes that start apart and multiply by different odd constants.
BlockKey absorb(BlockKey key, std::uint64_t word) {
  key.high = mix(key.high ^ word) * 0x9e3779b97f4a7c15ULL + key.low;
  key.low = mix((key.low + word) * 0xd6e8feb86659fd93ULL) ^ key.high;
  return key;
}

constexpr BlockKey kChainStart{0x243f6a8885a308d3ULL, 0x13198a2e03707344ULL};  // First digits of pi.
// Keeps the contents that only one request has away from those the workload names.
constexpr std::uint64_t kOwnPrompt = 0x8a91a6d40bf42040ULL;
constexpr std::uint64_t kOwnAnswer = 0x83d8fd9f4e4fa4dbULL;

std::uint64_t own_content(std::uint64_t tag, engine::RequestId id) { return mix(tag ^ mix(id + 1)); }

void append_joined(std::vector<PromptSegment>& segments, const PromptSegment& next) {
  if (!segments.empty()) {
    PromptSegment& last = segments.back();
    if (last.content == next.content && last.offset + last.length == next.offset) {
      last.length += next.length;
      return;
    }
  }
  segments.push_back(next);
}

}  // namespace

ContentKeys::ContentKeys(std::int64_t block_size) : block_size_(block_size) {}

void ContentKeys::add(engine::RequestId id, const traces::TraceRecord& record) {
  if (record.prompt.empty() && record.output_content == 0) {
    return;  // All its own: block_key() needs no state.
  }
  Sequence sequence;
  sequence.seed = absorb(absorb(kChainStart, record.salt), record.adapter);
  if (record.prompt.empty()) {
    sequence.segments.push_back({own_content(kOwnPrompt, id), 0, record.prompt_tokens});
  }
  for (const PromptSegment& segment : record.prompt) {
    append_joined(sequence.segments, segment);
  }
  constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max() / 2;
  const traces::ContentId answer =
      record.output_content != 0 ? record.output_content : own_content(kOwnAnswer, id);
  append_joined(sequence.segments, {answer, 0, kNoEnd});
  shared_.insert_or_assign(id, std::move(sequence));
}

void ContentKeys::remove(engine::RequestId id) { shared_.erase(id); }

BlockKey ContentKeys::block_key(engine::RequestId id, std::int32_t index) {
  const auto found = shared_.find(id);
  if (found == shared_.end()) {
    return absorb(absorb(kChainStart, own_content(kOwnPrompt, id)), static_cast<std::uint64_t>(index));
  }
  Sequence& sequence = found->second;
  while (sequence.keys.size() <= static_cast<std::size_t>(index)) {
    derive_next(sequence);
  }
  return sequence.keys[static_cast<std::size_t>(index)];
}

void ContentKeys::derive_next(Sequence& sequence) const {
  BlockKey key = sequence.keys.empty() ? sequence.seed : sequence.keys.back();
  for (std::int64_t left = block_size_; left > 0;) {
    const PromptSegment& segment = sequence.segments[sequence.next_segment];
    const std::int64_t taken = std::min(left, segment.length - sequence.next_offset);
    key = absorb(key, segment.content);
    key = absorb(key, static_cast<std::uint64_t>(segment.offset + sequence.next_offset));
    key = absorb(key, static_cast<std::uint64_t>(taken));
    left -= taken;
    sequence.next_offset += taken;
    if (sequence.next_offset == segment.length) {
      ++sequence.next_segment;
      sequence.next_offset = 0;
    }
  }
  sequence.keys.push_back(key);
}

}  // namespace kneepoint::sim
