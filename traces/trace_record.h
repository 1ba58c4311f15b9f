// One request of a workload: when it comes, what its prompt shares, how long
// its answer is.
//
// Prompt identity. A prompt is a list of segments; a segment is a stretch of a
// named content: tokens [offset, offset + length) of content `content`. Equal
// stretches of equal contents are equal tokens. So any block size, shared
// prefixes that end off a block's edge, and answers that return in the next
// turn (output_content of one request, a segment of the next) can be said.
// A prompt without segments is unshared: nobody else has any of its tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

namespace kneepoint::traces {

/// Names token content; 0 is no content.
using ContentId = std::uint64_t;

struct PromptSegment {
  ContentId content = 0;
  std::int64_t offset = 0;
  std::int64_t length = 0;
  friend bool operator==(const PromptSegment&, const PromptSegment&) = default;
};

/// How the answer ends in a replay.
enum class EndsBy : std::uint8_t {
  kLength,  ///< As `vllm bench serve`: ignore_eos, max_tokens = output_tokens.
  kEos,     ///< The server is given max_tokens (or its own maximum) and learns of the end when it comes.
};

inline constexpr std::uint64_t kNoSession = 0;

struct TraceRecord {
  /// From the start of the trace. Non-decreasing from record to record.
  std::chrono::nanoseconds arrival{0};
  std::int64_t prompt_tokens = 0;     ///< At least 1.
  std::vector<PromptSegment> prompt;  ///< Empty: unshared. Else the lengths sum to prompt_tokens.
  std::int64_t output_tokens = 0;     ///< At least 1: the true length of the answer.
  /// What the client asks for; 0: output_tokens (kLength) or the server's maximum (kEos).
  std::int64_t max_tokens = 0;
  EndsBy ends_by = EndsBy::kLength;
  ContentId output_content = 0;  ///< Names the answer, so that a later prompt can contain it; 0: unshared.
  std::uint64_t session = kNoSession;  ///< Turns of one conversation.
  /// A turn after the first is sent think_time after the answer to the previous
  /// turn of its session has ended (`after` true); its `arrival` is then the
  /// earliest time, and what an open-loop replay uses.
  bool after_previous = false;
  std::chrono::nanoseconds think_time{0};
  std::int32_t priority = 0;
  std::uint64_t salt = 0;     ///< Prefixes are shared within equal salts only.
  std::uint32_t adapter = 0;  ///< LoRA; 0: base model.
  friend bool operator==(const TraceRecord&, const TraceRecord&) = default;
};

}  // namespace kneepoint::traces
