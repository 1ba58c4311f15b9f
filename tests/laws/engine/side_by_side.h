// The engine beside the slow, obvious model, on one random workload after the
// other: what each decides, step by step, until the two differ.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/vllm_v1.h"
#include "tests/laws/engine/obvious_engine.h"
#include "tests/laws/engine/random_workload.h"

namespace kneepoint::laws {

using engine::RequestId;
using engine::ScheduledRequest;

inline constexpr std::int64_t kTurnsPerCase = 160;

inline std::string to_text(const ScheduledRequest& s) {
  return fmt::format("{}:{}@{} cached {} drafts {} kind {} samples {} output {} padded {}", s.id,
                     s.num_scheduled_tokens, s.num_computed_tokens, s.num_cached_tokens, s.num_draft_tokens,
                     static_cast<int>(s.kind), s.samples, s.has_output, s.drafts_padded);
}

inline std::vector<std::string> to_text(const std::vector<ScheduledRequest>& step) {
  std::vector<std::string> lines;
  for (const ScheduledRequest& share : step) {
    lines.push_back(to_text(share));
  }
  return lines;
}

/// What happened in the steps, so that a rule nobody met does not count as checked.
struct Seen {
  std::map<std::string, std::int64_t> count;
  void note(const std::string& what, bool happened = true) { count[what] += happened ? 1 : 0; }
};

/// One random case, run in both; ends at the first difference.
class SideBySide {
 public:
  SideBySide(std::uint64_t seed, Mutation mutation, Seen& seen) : SideBySide(Dice(seed), mutation, seen) {}
  SideBySide(Dice dice, Mutation mutation, Seen& seen)
      : seen_(seen),
        dice_(std::move(dice)),
        config_(random_config(dice_)),
        workload_(config_, dice_),
        engine_(config_, workload_),
        model_(config_, workload_, mutation) {}

  /// Says what differs first, or nothing.
  std::optional<std::string> run() {
    for (turn_ = 0; turn_ < kTurnsPerCase && !difference_; ++turn_) {
      arrive();
      check("has_requests", engine_.has_requests(), model_.has_requests());
      if (engine_.has_requests() || !in_flight_.empty()) {
        turn();
      } else if (next_event_ == workload_.events().size()) {
        break;
      }
    }
    return difference_;
  }

  [[nodiscard]] std::int64_t steps() const { return steps_; }

 private:
  template <typename T>
  void check(const char* what, const T& ours, const T& model) {
    if (!difference_ && !(ours == model)) {
      difference_ = fmt::format("turn {}, {}: engine {}, model {}", turn_, what, ours, model);
    }
  }

  void arrive() {
    const auto& events = workload_.events();
    for (; next_event_ < events.size() && events[next_event_].turn <= turn_; ++next_event_) {
      const RandomWorkload::Event& event = events[next_event_];
      if (event.aborts) {
        engine_.abort_request(event.request.id);
        model_.abort(event.request.id);
      } else {
        engine_.add_request(event.request);
        model_.add(event.request);
      }
    }
  }

  void turn() {
    const auto depth = static_cast<std::size_t>(batches_in_flight(config_));
    if (engine_.has_requests()) {
      plan();
      if (depth > 1 && in_flight_.size() < depth && (plan_.num_tokens > 0 || engine_.has_requests())) {
        return;
      }
    }
    if (!difference_) {
      update();
    }
  }

  void plan() {
    ++steps_;
    engine_.set_engine_turn(turn_);
    engine_.plan_step(plan_);
    std::vector<ScheduledRequest> step;
    engine_.for_each_scheduled([&](const ScheduledRequest& share) { step.push_back(share); });
    const ObviousPlan model = model_.plan(turn_);
    check("scheduled", to_text(step), to_text(model.scheduled));
    check("preempted", plan_.preempted, model.preempted);
    check("finished", plan_.finished, model.finished);
    check("admission stop", engine::admission_stop_name(plan_.admission_stop),
          engine::admission_stop_name(model.stop));
    check("not admitted", plan_.not_admitted, model.not_admitted);
    check_state();
    if (!difference_) {
      check_samples(step);
      note(step);
      in_flight_.push_back(workload_.run(step));
    }
  }

  /// The engine must know beforehand whether a step samples. Left out: drafts offered to a request in
  /// flight (a pipeline without async), and a cap that cuts padded drafts; vLLM's own counts are off there.
  void check_samples(const std::vector<ScheduledRequest>& step) {
    const std::int64_t k = config_.num_speculative_tokens;
    const std::int64_t cap = config_.long_prefill_token_threshold;
    const bool drafts_in_flight = k > 0 && !config_.async_scheduling && batches_in_flight(config_) > 1;
    if (drafts_in_flight || (0 < cap && cap < 1 + k)) {
      return;
    }
    for (const ScheduledRequest& share : step) {
      check("samples", share.samples, workload_.reaches_end(share));
    }
  }

  void update() {
    engine_.update(in_flight_.front(), outcome_);
    const std::vector<engine::EmittedTokens> model = model_.update(in_flight_.front());
    in_flight_.pop_front();
    const auto text = [](const std::vector<engine::EmittedTokens>& all) {
      std::vector<std::string> lines;
      for (const engine::EmittedTokens& e : all) {
        lines.push_back(fmt::format("{}+{}{}", e.id, e.num_tokens, engine::finish_reason_name(e.finish)));
      }
      return lines;
    };
    check("outcome", text(outcome_.emitted), text(model));
    check_state();
  }

  void check_state() {
    check("running", engine_.running(), model_.running());
    std::vector<std::string> waits;
    std::vector<std::string> model_waits;
    for (const auto& entry : engine_.waiting()) {
      waits.push_back(fmt::format("{}{}", entry.id, entry.deferred ? "*" : ""));
    }
    for (const auto& entry : model_.waiting()) {
      model_waits.push_back(fmt::format("{}{}", entry.id, entry.deferred ? "*" : ""));
    }
    check("waiting", waits, model_waits);
    check("free queue", engine_.pool().free_queue(), model_.pool().free_queue());
    for (const RequestId id : model_.running()) {
      const auto table = engine_.block_table(id);
      check("block table", std::vector<int>(table.begin(), table.end()), model_.table(id));
    }
    const engine::PrefixCacheStats stats = engine_.prefix_cache_stats();
    check("query tokens", stats.query_tokens, model_.query_tokens(false));
    check("hit tokens", stats.hit_tokens, model_.hit_tokens(false));
    check("resumed query tokens", stats.resumed_query_tokens, model_.query_tokens(true));
    check("resumed hit tokens", stats.resumed_hit_tokens, model_.hit_tokens(true));
  }

  void note(const std::vector<ScheduledRequest>& step) {
    const std::string policy = config_.policy == engine::SchedulingPolicy::kFcfs ? "fcfs" : "priority";
    seen_.note(fmt::format("stop {}", engine::admission_stop_name(plan_.admission_stop)));
    seen_.note("preempted, " + policy, !plan_.preempted.empty());
    seen_.note("two preempted in a step", plan_.preempted.size() > 1);
    seen_.note("preempted, window", config_.sliding_window && !plan_.preempted.empty());
    for (const ScheduledRequest& share : step) {
      const bool resumed = share.kind == engine::ScheduledKind::kResumed;
      seen_.note("hit", share.num_cached_tokens > 0);
      seen_.note("resumed with a hit", resumed && share.num_cached_tokens > 0);
      seen_.note("hit behind a window", config_.sliding_window && share.num_cached_tokens > 0);
      seen_.note("padded drafts", share.drafts_padded);
      seen_.note("drafts cut short", !share.drafts_padded && share.num_draft_tokens > 0 &&
                                         share.num_draft_tokens < config_.num_speculative_tokens);
      seen_.note("async drafts, resumed",
                 config_.async_scheduling && resumed && config_.num_speculative_tokens > 0);
      seen_.note("async V2 pipeline, resumed", config_.async_scheduling && config_.use_v2_model_runner &&
                                                   config_.pipeline_parallel_size > 1 && resumed);
      seen_.note("throttled chunks", config_.prefill_schedule_interval > 1 && !share.samples);
    }
    for (const auto& entry : engine_.waiting()) {
      seen_.note("deferred, " + policy, entry.deferred);
      seen_.note("deferred, throttle", entry.deferred && config_.prefill_schedule_interval > 1);
    }
  }

  Seen& seen_;
  Dice dice_;
  engine::SchedulerConfig config_;
  RandomWorkload workload_;
  engine::VllmV1 engine_;
  ObviousEngine model_;
  engine::StepPlan plan_;
  engine::StepOutcome outcome_;
  std::deque<engine::StepResult> in_flight_;
  std::size_t next_event_ = 0;
  std::int64_t turn_ = 0;
  std::int64_t steps_ = 0;
  std::optional<std::string> difference_;
};

}  // namespace kneepoint::laws
