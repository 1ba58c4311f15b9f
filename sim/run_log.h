// What one run of a knee search leaves: a line per request, no more.
//
// Kept in the order in which requests were sent, so that a warm-up can be cut
// afterwards, and the queue as each of them found it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/observer.h"
#include "sim/run_summary.h"
#include "sim/stop_signal.h"

namespace kneepoint::sim {

inline constexpr std::int64_t kNotKnown = -1;

struct RequestLine {
  std::int64_t sent_ns = kNotKnown;  ///< kNotKnown: never sent.
  std::int64_t ttft_ns = kNotKnown;  ///< From the send; so the next two.
  std::int64_t e2e_ns = kNotKnown;
  std::int64_t queue_ns = kNotKnown;  ///< At the scheduler, until its first step.
  std::int32_t output_tokens = 0;
  std::int32_t waiting = 0;  ///< Requests in the scheduler's queue when it was sent.
  RequestEnd end = RequestEnd::kLength;
  bool over = false;

  [[nodiscard]] bool completed() const { return over && is_completed(end); }
};

/// What the server did, averaged over steps.
struct StepAverages {
  double kv_usage = 0;  ///< Weighted by the time to the next step's end.
  double decodes = 0;   ///< Requests computing one token, per step; so the next two.
  double prompts = 0;   ///< Requests without output yet.
  double prompt_tokens = 0;
};

struct RunLog {
  double load = 0;
  std::size_t seed = 0;
  std::int64_t requests = 0;  ///< Planned.
  std::vector<RequestLine> lines;
  std::vector<std::pair<std::int32_t, std::int64_t>>
      gaps;  ///< (request, ns between its tokens); only for an ITL SLO.
  StepAverages steps;
  RunSummary summary;
  bool stopped = false;  ///< The backlog had made the SLO unreachable.
};

/// When a run has shown that too many requests miss a TTFT limit.
struct StopRule {
  std::int64_t ttft_limit_ns = 0;
  std::int64_t misses = 0;  ///< So many requests over the limit settle it.
};

/// Fills a RunLog, and stops the run by the rule, if there is one.
class RunLogger final : public RunObserver {
 public:
  RunLogger(RunLog& log, bool keep_gaps, const std::optional<StopRule>& rule);

  [[nodiscard]] bool wants_every_token() const override { return keep_gaps_; }
  void on_send(const RequestRecord& request) override;
  void on_tokens(const RequestRecord& request, SimTime previous, SimTime at_client,
                 std::int64_t num_tokens) override;
  void on_request_end(const RequestRecord& request) override;
  void on_step(const StepRecord& step) override;
  void on_load(SimTime now, const engine::EngineLoad& load) override;

  [[nodiscard]] const StopSignal& stop() const { return stop_; }
  /// After the run.
  void finish(const RunSummary& summary);

 private:
  RequestLine& line_of(std::uint64_t index);

  RunLog& log_;
  bool keep_gaps_;
  std::optional<StopRule> rule_;
  StopSignal stop_;
  std::int32_t waiting_ = 0;
  std::vector<std::int64_t> send_times_;  // In the order of sending; only with a rule.
  std::size_t recent_ = 0;                // First of them not older than the limit.
  std::int64_t misses_ = 0;               // Of requests that are over.

  std::int64_t steps_ = 0;
  SimTime last_step_end_ = kNever;
  double kv_seconds_ = 0;
  double seconds_ = 0;
  std::int64_t decodes_ = 0;
  std::int64_t prompts_ = 0;
  std::int64_t prompt_tokens_ = 0;
};

}  // namespace kneepoint::sim
