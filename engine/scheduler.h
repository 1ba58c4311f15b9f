// Scheduler: decides which tokens of which requests the next step computes, and
// which KV blocks they get.
//
// The loop around it, with D = batches_in_flight(config):
//
//     add_request(), abort_request()        what arrived since the last plan
//     plan_step(plan)                       at most D - 1 plans are unanswered
//     update(result, outcome)               the oldest plan's result
//
// A scheduler owns its queues and its block pool. It never reads a clock, a
// random source or a request's true output length: equal calls give equal
// plans.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "engine/block_keys.h"
#include "engine/request.h"
#include "engine/scheduler_config.h"
#include "engine/step_plan.h"

namespace kneepoint::engine {

/// How full the engine is; cheap to read at any time.
struct EngineLoad {
  std::int64_t num_running = 0;
  std::int64_t num_waiting = 0;    ///< All that wait, set-aside ones included.
  std::int64_t free_blocks = 0;    ///< Cached free blocks count as free.
  std::int64_t usable_blocks = 0;  ///< num_blocks without the null block.
  friend bool operator==(const EngineLoad&, const EngineLoad&) = default;
};

/// Counters since the start (spec.md 4.8). First admissions and resumptions are
/// kept apart, as vLLM's logged hit rate leaves the latter out.
struct PrefixCacheStats {
  std::int64_t query_tokens = 0;
  std::int64_t hit_tokens = 0;
  std::int64_t resumed_query_tokens = 0;
  std::int64_t resumed_hit_tokens = 0;
};

/// How steps were planned, for tests and benchmarks: it says nothing of what was decided.
struct CohortUse {
  std::int64_t steady = 0;    ///< Steps taken by advance().
  std::int64_t unwalked = 0;  ///< Planned one by one, with a cohort.
  std::int64_t walked = 0;    ///< Planned without, though somebody decoded.
  // Why it was dissolved.
  std::int64_t for_budget = 0;     ///< Not everybody could get a token.
  std::int64_t for_blocks = 0;     ///< Not everybody could get a block.
  std::int64_t for_pipeline = 0;   ///< Fewer steps in flight than usual.
  std::int64_t for_throttle = 0;   ///< prefill_schedule_interval.
  std::int64_t for_abort = 0;      ///< A running request was aborted.
  std::int64_t for_result = 0;     ///< A result was not what the plan expected of a member.
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  /// A request arrives, at the back of the queue (or in its place by priority).
  virtual void add_request(const NewRequest& request) = 0;

  /// The client is gone. Frees at once; the id is reported by the next plan.
  /// No effect on an unknown or finished id.
  virtual void abort_request(RequestId id) = 0;

  /// Starts from the cache that an earlier run left: `queue` is the free queue of
  /// an idle pool, head first, each usable block once. Before the first request.
  /// False, and nothing happens, if this scheduler has no such pool.
  [[nodiscard]] virtual bool preset_free_queue(std::span<const FreeBlock> queue) {
    static_cast<void>(queue);
    return false;
  }

  /// The next plan belongs to this turn of the engine loop, the one after it to
  /// the next turn, and so on until told again; without a word the first plan is
  /// turn 0. Only prefill_schedule_interval asks (spec.md 2.5).
  virtual void set_engine_turn(std::int64_t turn) { static_cast<void>(turn); }

  /// Plans one step into `plan`, whose storage is reused.
  ///
  /// Before  at most D - 1 planned steps await their result.
  /// After   each planned token has a block; the limits of the config hold; a
  ///         request is planned, waiting or preempted, and only one of these
  ///         (vllm-v0 with chunks may resume whom it preempted a moment ago); an
  ///         empty plan means that nothing could run, and says why.
  virtual void plan_step(StepPlan& plan) = 0;

  /// Takes the result of the oldest planned step.
  virtual void update(const StepResult& result, StepOutcome& outcome) = 0;

  /// How many turns of the loop (a result, then a plan), at most `limit`, would be alike from now on if every
  /// result is what the plan expects: as many batches in flight as may be, all of them the whole cohort and nothing
  /// else, nobody coming or going, the same reason not to admit anyone. 0 with schedulers that keep no cohort.
  [[nodiscard]] virtual std::int64_t steady_turns(std::int64_t limit) {
    static_cast<void>(limit);
    return 0;
  }
  /// Takes that many such turns at once. Before: steady_turns() promised them.
  virtual void advance(std::int64_t num_turns) { static_cast<void>(num_turns); }

  [[nodiscard]] virtual CohortUse cohort_use() const { return {}; }

  /// Whether there is a reason to plan: a request, or one just ended whose id
  /// no plan has reported yet.
  [[nodiscard]] virtual bool has_requests() const = 0;

  [[nodiscard]] virtual EngineLoad load() const = 0;
  [[nodiscard]] virtual PrefixCacheStats prefix_cache_stats() const = 0;

  /// Blocks that the request which must come next (the head of the waiting queue;
  /// under vllm-v0 the first one swapped out comes before it) needs to get its next
  /// token with nobody else there, 0 if nobody waits. More than
  /// load().usable_blocks: it never gets it, even if its first chunks fit.
  [[nodiscard]] virtual std::int64_t blocks_needed_by_head() const = 0;
  /// That request, or kNoRequest.
  [[nodiscard]] virtual RequestId waiting_head() const = 0;

  /// Those requests of the newest plan, in planned order, that were looked at one by one: all but
  /// StepPlan::num_unwalked members of the cohort.
  virtual void for_each_walked(const std::function<void(const ScheduledRequest&)>& visit) const {
    for_each_scheduled(visit);
  }

  /// Every request of the newest plan in planned order, plain decodes included.
  virtual void for_each_scheduled(const std::function<void(const ScheduledRequest&)>& visit) const = 0;
};

/// One row per scheduler. The row is the registration: --list-schedulers prints
/// the table, and tests/engine/scheduler_contract_test.cc runs over each row.
struct SchedulerRow {
  std::string_view name;     ///< As written in --scheduler.
  std::string_view summary;  ///< One line, printed to the user.
  std::unique_ptr<Scheduler> (*make)(const SchedulerConfig&, BlockKeySource&);
};

/// All schedulers, ordered by name.
[[nodiscard]] std::span<const SchedulerRow> schedulers();

/// The row of that name, or null.
[[nodiscard]] const SchedulerRow* find_scheduler(std::string_view name);

}  // namespace kneepoint::engine
