// What happened to one request: every time stamp, its end and the reason. The
// simulation hands one to the metrics when a request is over; nothing else
// crosses from the loop to the reports per request.
//
//     arrival <= sent <= queued <= scheduled <= first_token <= last_token
//
// (CAUSAL_TIMES). arrival is when the workload meant to send it, sent when the
// client did: with --max-concurrency they differ by the client's own queue, and
// the client's clock starts at sent, as in `vllm bench serve`.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/sim_time.h"

namespace kneepoint::sim {

/// How a request ended. The first two completed; the others failed.
enum class RequestEnd : std::uint8_t {
  kLength,             ///< max_tokens or max_model_len reached.
  kStop,               ///< End-of-sequence token.
  kPromptTooLong,      ///< Rejected: prompt >= max_model_len (HTTP 400).
  kQueuedReqsLimit,    ///< Rejected: --max-num-queued-reqs (HTTP 503).
  kQueuedTokensLimit,  ///< Rejected: --max-num-queued-tokens (HTTP 503).
  kClientTimeout,      ///< The client gave up; aborted at the server.
  kNeverFits,          ///< Needs more KV blocks than there are; vLLM would hang here.
  kIgnored,            ///< The policy can never run it (vllm-v0, orca).
};
inline constexpr std::size_t kNumRequestEnds = 8;

/// Name in results: "length", "stop", "prompt_too_long", ...
[[nodiscard]] std::string_view request_end_name(RequestEnd end);
[[nodiscard]] inline bool is_completed(RequestEnd end) {
  return end == RequestEnd::kLength || end == RequestEnd::kStop;
}

struct RequestRecord {
  std::uint64_t index = 0;  ///< Position in the workload, from 0.
  SimTime arrival{};
  SimTime sent = kNever;         ///< kNever: not sent (only with a run that was cut).
  SimTime queued = kNever;       ///< Seen by the scheduler.
  SimTime scheduled = kNever;    ///< First step that computes for it begins.
  SimTime first_token = kNever;  ///< At the client.
  SimTime last_token = kNever;   ///< At the client; for a request that failed, when the client knew.
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;    ///< Received. Of failed requests too, but never counted as throughput.
  std::int64_t wanted_output_tokens = 0;
  std::int64_t cached_tokens = 0;    ///< Prefix hit of the first admission.
  std::int32_t preemptions = 0;
  RequestEnd end = RequestEnd::kLength;
};

}  // namespace kneepoint::sim
