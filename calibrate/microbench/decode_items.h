// How the contexts of a decode batch are cut into items of about equal length, so
// that every SM has the same share and the last ones do not wait for one long
// context. Plain C++: planned by the host, read by the kernel.
//
//     two sequences of 100 and 1000 tokens, parts of at most 256:
//     [0, 100) of the first; [0, 256) [256, 512) [512, 768) [768, 1000) of the second
#pragma once

#include <cstdint>
#include <vector>

namespace kneepoint::microbench {

constexpr int kBlockSize = 16;  ///< Tokens of a KV block.

struct DecodeItem {
  std::int32_t sequence;
  std::int32_t begin;  ///< A multiple of 64.
  std::int32_t end;    ///< Exclusive.
};

struct DecodePlan {
  std::vector<DecodeItem> items;         ///< In the order of sequences.
  std::vector<std::int32_t> first_item;  ///< One more than sequences.
  bool merge = false;                    ///< Some sequence has more than one item.
};

/// Length of a part: the batch's work over `num_sms`, two blocks of threads on
/// each, eight rounds; at least 128 tokens, at most what makes 64 parts.
[[nodiscard]] std::int32_t decode_part_tokens(const std::vector<std::int32_t>& contexts, int num_kv_heads,
                                              int num_sms);

/// Contexts are positive.
[[nodiscard]] DecodePlan plan_decode(const std::vector<std::int32_t>& contexts, std::int32_t part_tokens);

}  // namespace kneepoint::microbench
