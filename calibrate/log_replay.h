// Replays a real run through our engine, step for step beside its log.
//
// The log says how many requests without output each step held; so it shows in
// which step a request joined. With every arrival placed there (simultaneous
// ones in the order in which the client got their first tokens, which is the
// order of their admission under FCFS) nothing is left to choose: chunks, prefix
// hits, preemptions and KV blocks of every step follow from the rules, and each
// logged number can be held against ours.
//
// What the fit needs falls out on the way: for every logged time, what its step
// was made of request by request, which the log line does not tell.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/logged_config.h"
#include "calibrate/run_input.h"
#include "sim/step_replay.h"

namespace kneepoint::calibrate {

/// A step on which log and replay agree.
struct AlignedStep {
  IterationLine logged;
  sim::ReplayedStep ours;
};

struct StepMismatch {
  std::size_t index = 0;  ///< Of the step among the run's logged ones.
  IterationLine logged;
  std::optional<sim::ReplayedStep> ours;  ///< Nothing: ours had nothing to run.
  std::string rule;                       ///< Which decision differs.
};

/// A prefix hit that only blocks of an earlier run explain.
struct InferredHit {
  std::size_t request = 0;
  std::int64_t blocks = 0;
};

struct LogReplay {
  std::vector<AlignedStep> steps;  ///< Up to the first that differs.
  std::size_t logged_steps = 0;
  std::vector<std::size_t> joined;  ///< By request: index of the step it joined in; logged_steps: never.
  std::optional<StepMismatch> mismatch;
  std::vector<InferredHit> inferred;
  std::size_t unfinished = 0;  ///< Requests of the trace still unfinished at the log's end.

  [[nodiscard]] bool agrees() const { return !mismatch && unfinished == 0; }
};

/// Throws CalibrateError if the run has no log, no lengths, or a log or
/// configuration that cannot be replayed (missing lines, speculative decoding).
[[nodiscard]] LogReplay replay_log(const Run& run);

/// The run's own engine configuration, from config= or the log. Throws CalibrateError if the log does not
/// say enough, says drafts are used, or contradicts the cache state.
[[nodiscard]] engine::SchedulerConfig replayable_config(const Run& run);

/// The records that a run's requests are to the engine: lengths, and the prompt
/// as one named content a block where the trace has hash_ids.
[[nodiscard]] std::vector<traces::TraceRecord> trace_records(const Run& run, std::int64_t block_size);

/// The pool's free queue in the run's cache state, contents as the block keys
/// of `records`; empty without a cache state.
[[nodiscard]] std::vector<engine::FreeBlock> free_queue_of(const Run& run,
                                                           const std::vector<traces::TraceRecord>& records,
                                                           const engine::SchedulerConfig& config);

/// "5 context requests with 1023 tokens, 1 generation requests with 1, KV 7.2 %".
[[nodiscard]] std::string describe(const IterationLine& step);
[[nodiscard]] std::string describe(const sim::ReplayedStep& step);

}  // namespace kneepoint::calibrate
