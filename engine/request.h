// What the engine is told of a request, and what it says when one ends.
//
// The engine never learns how long an answer will be (invariant
// SCHEDULER_BLIND): it knows max_tokens, and hears of an end-of-sequence token
// when a step has sampled it.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace kneepoint::engine {

/// Names a request between modules. The caller chooses the values, each used
/// once in a run; they also break ties under the priority policy, as vLLM's
/// request id does, smaller first.
using RequestId = std::uint32_t;

inline constexpr RequestId kNoRequest = std::numeric_limits<RequestId>::max();

/// Names a LoRA adapter; 0 is the base model.
using AdapterId = std::uint32_t;

/// What the engine is given on arrival. Checked before: 1 <= prompt_tokens <
/// max_model_len, max_tokens >= 1 (spec.md 1.3).
struct NewRequest {
  RequestId id = kNoRequest;
  std::int32_t prompt_tokens = 0;
  std::int32_t max_tokens = 16;  ///< Output tokens at most; the engine also stops at max_model_len.
  std::int32_t priority = 0;     ///< Policy "priority" only: smaller runs first.
  std::int64_t arrival = 0;      ///< Orders equal priorities; any unit, only compared.
  AdapterId adapter = 0;
  /// The answer's true length, for `orca --orca-reserve oracle|pow2` alone; 0 with every other scheduler, so
  /// that none of them can see it.
  std::int32_t reserve_output_tokens = 0;
  /// It may stop before max_tokens, or get another number of tokens than one from a step: results will name it.
  bool may_stop = true;
};

/// How a request left the engine.
enum class FinishReason : std::uint8_t {
  kNone,     ///< Still there.
  kStop,     ///< End-of-sequence or a stop token.
  kLength,   ///< max_tokens or max_model_len.
  kAborted,  ///< abort_request().
  kIgnored,  ///< Refused by a policy that can never run it (vllm-v0, orca).
};

/// The reason as vLLM's trace prints it: "STOP", "LENGTH", ...; "" for kNone.
[[nodiscard]] std::string_view finish_reason_name(FinishReason reason);

}  // namespace kneepoint::engine
