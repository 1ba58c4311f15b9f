// Prompts as hash ids of blocks, to and from prompt segments.
//
// Mooncake and its like name each block of B tokens by an id that stands for its
// content and all before it: equal id, equal prefix. Block j of a prompt becomes
// the segment (content id + 1, offset 0, its tokens); the last one may be short.
// So a request that shares k ids shares their tokens at any block size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "traces/trace_record.h"

namespace kneepoint::traces {

/// Fills `record.prompt` from the ids of its blocks: one for each block begun,
/// or one for each full block (then the rest is content `tail`, the record's
/// own). Returns what is wrong, or "".
[[nodiscard]] std::string segments_from_hash_ids(const std::vector<std::uint64_t>& ids,
                                                 std::int64_t block_size, ContentId tail,
                                                 TraceRecord& record);

}  // namespace kneepoint::traces
