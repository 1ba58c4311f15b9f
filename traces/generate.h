// Workloads from distributions.
//
// Plain: each request by itself, sharing nothing, or all beginning with one of K
// system prompts. Sessions: the arrivals are those of people; each has turns, the
// next one sent when the answer before was read and thought about, its prompt the
// whole conversation so far and the new text. Within a turn an agent may call
// tools: each call is an answer, each result a new prompt after the tool's time.
//
// Every purpose has its own random stream of the one seed (traces/random_stream.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "traces/arrivals.h"
#include "traces/lengths.h"
#include "traces/record_source.h"

namespace kneepoint::traces {

/// The first tokens of every prompt: one of `count` texts, the k-th chosen with
/// weight k^-zipf.
struct SystemPrompts {
  std::int64_t count = 0;  ///< 0: none, and unshared prompts.
  std::int64_t tokens = 0;
  double zipf = 1;
};

struct SessionOptions {
  std::unique_ptr<LengthModel> turns;        ///< Turns of a session; null: no sessions.
  double think_s = 10;                       ///< Mean of the exponential time from answer to next turn.
  std::unique_ptr<LengthModel> tool_calls;   ///< Tool calls within a turn; null: none.
  std::unique_ptr<LengthModel> tool_tokens;  ///< Tokens of a tool's result.
  double tool_s = 1;                         ///< Mean of the exponential time a tool takes.
  std::int64_t max_context = 0;  ///< A session ends before prompt and answer exceed it; 0: no limit.
  /// Where the server's speed is not known yet, a later turn's place in the file
  /// is found with so many seconds per token of the answer before.
  double nominal_tpot_s = 0.02;
};

struct GenerateOptions {
  ArrivalOptions arrivals;  ///< Its num_requests and seed are those of the workload.
  std::unique_ptr<LengthPairs> lengths;
  SystemPrompts system_prompts;
  SessionOptions sessions;
};

/// `options.arrivals.num_requests` records. Throws TraceError for a wrong option.
[[nodiscard]] std::unique_ptr<RecordSource> generate(GenerateOptions options);

}  // namespace kneepoint::traces
