#include "traces/prefix_chain.h"

#include <algorithm>
#include <utility>

namespace kneepoint::traces {
namespace {

// Finaliser of SplitMix64 (S. Vigna, 2015): every input bit moves every output bit.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

ChainKey absorb(ChainKey key, std::uint64_t word) {
  key.high = mix(key.high + word + 0x9e3779b97f4a7c15ULL) ^ key.low;
  key.low = mix((key.low ^ word) + 0xd1b54a32d192ed03ULL) + key.high;
  return key;
}

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

void chain_keys(const TraceRecord& record, std::int64_t block_size, bool partial, bool answer,
                std::vector<ChainKey>& keys) {
  keys.clear();
  if (record.prompt.empty()) return;
  std::vector<PromptSegment> segments;
  for (const PromptSegment& segment : record.prompt) append_joined(segments, segment);
  if (answer && record.output_content != 0)
    append_joined(segments, {record.output_content, 0, record.output_tokens});
  ChainKey key = absorb(absorb({}, record.salt), record.adapter);
  std::int64_t room = block_size;
  for (const PromptSegment& segment : segments) {
    for (std::int64_t done = 0; done < segment.length;) {
      const std::int64_t taken = std::min(room, segment.length - done);
      key = absorb(key, segment.content);
      key = absorb(key, static_cast<std::uint64_t>(segment.offset + done));
      key = absorb(key, static_cast<std::uint64_t>(taken));
      done += taken;
      room -= taken;
      if (room == 0) {
        keys.push_back(key);
        room = block_size;
      }
    }
  }
  if (partial && room != block_size) keys.push_back(key);
}

ChainTable::ChainTable() : slots_(1024) {}

std::size_t ChainTable::find(const ChainKey& key) const {
  std::size_t i = key.low & (slots_.size() - 1);
  while (slots_[i].number != 0 && !(slots_[i].key == key)) i = (i + 1) & (slots_.size() - 1);
  return i;
}

bool ChainTable::contains(const ChainKey& key) const {
  return slots_[find(key)].number != 0;
}

std::uint64_t ChainTable::number(const ChainKey& key, bool& fresh) {
  if (4 * (size_ + 1) > 3 * slots_.size()) grow();
  Slot& slot = slots_[find(key)];
  fresh = slot.number == 0;
  if (fresh) slot = {key, ++size_};
  return slot.number - 1;
}

void ChainTable::grow() {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  for (const Slot& slot : old) {
    if (slot.number != 0) slots_[find(slot.key)] = slot;
  }
}

}  // namespace kneepoint::traces
