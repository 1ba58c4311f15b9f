// What crosses the door between engine and sim: the plan of one step, its
// result, and what the result meant.
//
// A step is one forward pass. The scheduler plans it (StepPlan), the simulator
// lets time pass and says what was sampled (StepResult), the scheduler says who
// got tokens and who ended (StepOutcome). Up to `depth` planned steps await
// their result at once; results come back in the order of the plans.
//
// Most of a busy server's step is plain decodes: running requests that compute
// exactly one token and sample one. They are one cohort here, a count and sums,
// so that a plan needs no line per running request. Scheduler::
// for_each_scheduled() spells them out where a test wants to see them.
//
// All three are reused from step to step and keep their storage.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace kneepoint::engine {

/// How a request came to be in a step.
enum class ScheduledKind : std::uint8_t {
  kNew,      ///< Admitted in this step for the first time.
  kResumed,  ///< Admitted again after a preemption.
  kRunning,  ///< Was running before this step.
};

/// One request's share of a step.
struct ScheduledRequest {
  RequestId id = kNoRequest;
  std::int32_t num_scheduled_tokens = 0;  ///< Tokens computed, drafts included; at least 1.
  std::int32_t num_computed_tokens = 0;   ///< Tokens whose KV is there before the step, prefix hits included.
  std::int32_t num_cached_tokens = 0;     ///< Of those, the prefix hit of this admission (kNew, kResumed).
  std::int32_t num_draft_tokens = 0;      ///< Drafts among the scheduled tokens.
  ScheduledKind kind = ScheduledKind::kRunning;
  bool samples = false;        ///< Reaches the known end of the sequence, so the step samples for it.
  bool has_output = false;     ///< Has at least one output token before this step's result is in
                               ///< (vLLM's step log counts such a request as "generation").
  bool drafts_padded = false;  ///< The drafts are placeholders that are never accepted.
};

/// The plain decodes of a step: one token computed, one sampled, no drafts, not
/// admitted in this step.
struct DecodeCohort {
  std::int64_t count = 0;
  std::int64_t context_sum = 0;  ///< Sum of num_computed_tokens + 1, the KV each reads.
  std::int64_t context_max = 0;
};

/// Why the waiting pass ended where it did.
enum class AdmissionStop : std::uint8_t {
  kQueueEmpty,      ///< Everyone who waited was admitted (or none waited).
  kPreempted,       ///< A request was preempted in this step, so nobody is admitted.
  kMaxNumSeqs,      ///< max_num_seqs or max_num_active_seqs are running.
  kTokenBudget,     ///< max_num_batched_tokens or max_num_scheduled_tokens is used up.
  kPromptTooLong,   ///< Chunked prefill is off and the whole prompt does not fit the rest of the budget.
  kKvBlocks,        ///< Too few free blocks for the head of the queue.
  kOutputInFlight,  ///< All that wait were preempted with output in flight, not yet back.
  kAdapterSlots,    ///< All that wait need a LoRA slot.
  kThrottled,       ///< prefill_schedule_interval defers prefills.
  kDraftRoom,       ///< No room for the padded drafts of a one-token prompt rest.
};

/// Name for reports: "kv_blocks", "token_budget", ...
[[nodiscard]] std::string_view admission_stop_name(AdmissionStop stop);

/// What one step computes.
struct StepPlan {
  std::int64_t step = 0;                      ///< Counts from 0, empty steps included.
  std::vector<ScheduledRequest> individual;   ///< All but the plain decodes, in planned order.
  DecodeCohort cohort;                        ///< The plain decodes.
  std::int64_t num_unwalked = 0;              ///< Of those, who was not even looked at (see for_each_walked()).
  std::int64_t num_tokens = 0;                ///< Scheduled tokens in all; 0 is an empty step.
  std::vector<RequestId> preempted;           ///< In the order in which they lost their blocks.
  std::vector<RequestId> paused;              ///< Unlisted in the newest outcome, and no result is on its way.
  std::vector<RequestId> finished;            ///< Ended since the last plan; the workers forget them.
  std::vector<FinishReason> finished_reason;  ///< Only for those the plan itself ends (kIgnored); else empty.
  AdmissionStop admission_stop = AdmissionStop::kQueueEmpty;
  RequestId not_admitted = kNoRequest;  ///< The head that stayed, if one did.
  std::int64_t blocks_swapped_in = 0;   ///< vllm-v0 only: copied from host memory before the step.
  std::int64_t blocks_swapped_out = 0;  ///< vllm-v0 only.

  [[nodiscard]] std::int64_t num_requests() const {
    return cohort.count + static_cast<std::int64_t>(individual.size());
  }
  void clear();
};

/// What the step sampled for one request, where that is not what the plan lets
/// expect.
struct SampledTokens {
  RequestId id = kNoRequest;
  std::int32_t num_tokens = 1;  ///< accepted drafts + 1; 0 for none.
  std::int32_t stop_at = -1;    ///< Index among them of the first end-of-sequence or stop token; -1: none.
};

/// The result of a step. A request that is not listed sampled exactly one token
/// if the plan said `samples` (a plain decode always does), else none; it did
/// not stop by itself.
struct StepResult {
  std::vector<SampledTokens> exceptions;  ///< At most one a request, any order.
  void clear() { exceptions.clear(); }
};

/// Tokens a request got from a step, and whether it ended.
struct EmittedTokens {
  RequestId id = kNoRequest;
  std::int32_t num_tokens = 0;  ///< What was kept: tokens after a stop are dropped.
  FinishReason finish = FinishReason::kNone;
  std::int64_t place = 0;  ///< How many got tokens before it in the order of the batch.
};

/// What the scheduler made of a result: requests with new tokens or an end, in
/// the order of the batch. Those of the cohort that go on are not listed: each
/// got one token, in the places between, and got one from the step before.
struct StepOutcome {
  std::int64_t step = 0;
  std::vector<EmittedTokens> emitted;
  std::int64_t num_emitted = 0;    ///< Requests with new tokens, listed or not.
  std::vector<RequestId> joined;   ///< Not listed in this step, but in the step before.
  void clear() {
    emitted.clear();
    num_emitted = 0;
    joined.clear();
  }
};

}  // namespace kneepoint::engine
