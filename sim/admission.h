// The front end's door: what it turns away before the scheduler sees it
// (spec.md 1.3). Both limits are off by default; a prompt as long as the model's
// context is always refused.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/request_record.h"
#include "sim/run_config.h"

namespace kneepoint::sim {

class AdmissionControl {
 public:
  AdmissionControl(const AdmissionConfig& limits, std::int64_t max_model_len)
      : limits_(limits), max_model_len_(max_model_len) {}

  /// Why a request with such a prompt is refused now; nothing if it is let in.
  [[nodiscard]] std::optional<RequestEnd> refuses(std::int64_t prompt_tokens) const {
    if (prompt_tokens >= max_model_len_) {
      return RequestEnd::kPromptTooLong;
    }
    if (limits_.max_num_queued_reqs && unfinished_ + 1 > *limits_.max_num_queued_reqs) {
      return RequestEnd::kQueuedReqsLimit;
    }
    if (limits_.max_num_queued_tokens && prompts_without_output_ >= *limits_.max_num_queued_tokens) {
      return RequestEnd::kQueuedTokensLimit;
    }
    return std::nullopt;
  }

  void on_accepted(std::int64_t prompt_tokens) {
    ++unfinished_;
    prompts_without_output_ += prompt_tokens;
  }
  /// The first output is there, or the request ended without any.
  void on_first_output(std::int64_t prompt_tokens) { prompts_without_output_ -= prompt_tokens; }
  void on_over() { --unfinished_; }

 private:
  AdmissionConfig limits_;
  std::int64_t max_model_len_;
  std::int64_t unfinished_ = 0;               // Accepted and not over, running ones included.
  std::int64_t prompts_without_output_ = 0;   // Full prompt lengths; chunks done and hits are not deducted.
};

}  // namespace kneepoint::sim
