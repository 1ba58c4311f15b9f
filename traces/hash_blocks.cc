#include "traces/hash_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace kneepoint::traces {

std::string segments_from_hash_ids(const std::vector<std::uint64_t>& ids, std::int64_t block_size,
                                   ContentId tail, TraceRecord& record) {
  record.prompt.clear();
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::int64_t full = record.prompt_tokens / block_size;
  const std::int64_t begun = (record.prompt_tokens + block_size - 1) / block_size;
  if (count != full && count != begun) {
    return fmt::format(
        "has {} hash ids for {} prompt tokens, which are {} blocks of {}; --block-size says how long a block "
        "is",
        count, record.prompt_tokens, begun, block_size);
  }
  if (count == 0) return {};
  std::int64_t left = record.prompt_tokens;
  for (const std::uint64_t id : ids) {
    if (id == std::numeric_limits<std::uint64_t>::max()) return fmt::format("hash id {} is too large", id);
    const std::int64_t length = std::min(left, block_size);
    record.prompt.push_back({.content = id + 1, .offset = 0, .length = length});
    left -= length;
  }
  if (left > 0) record.prompt.push_back({.content = tail, .offset = 0, .length = left});
  return {};
}

}  // namespace kneepoint::traces
