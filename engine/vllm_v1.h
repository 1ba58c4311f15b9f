// The scheduler of vLLM V1, release 0.32.0, decision for decision.
//
// A step is planned in two passes over one token budget:
//
//     running pass   everyone who runs, in order of admission: close the gap
//                    between computed and known tokens; who finds no block
//                    evicts the last of the queue (or the least urgent)
//     waiting pass   only if nobody was evicted: admit from the head, with what
//                    the prefix cache knows, until something is short; nobody
//                    overtakes a head that does not fit
//
// So decodes and prompt chunks share each step, running requests always come
// before waiting ones, and a preempted request starts again from nothing but
// the cache. What a plan promises is counted as computed at once; the result,
// which may come several steps later, takes rejected drafts back.
//
// The passes are in vllm_v1_running.cc and vllm_v1_waiting.cc, the result in
// vllm_v1_update.cc. engine/README.md tells the rules and their sources.
//
// All that is the plain way. With walk_decodes off, those who only decode are kept
// as a cohort (engine/cohort.h) that no step walks; vllm_v1_cohort.cc says when
// that may be done, and dissolves the cohort when it may not. Decisions are equal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/cohort.h"
#include "engine/kv_cache.h"
#include "engine/request_queue.h"
#include "engine/request_table.h"
#include "engine/scheduler.h"

namespace kneepoint::engine {

class VllmV1 final : public Scheduler {
 public:
  /// Before  validate(config) did not throw; `keys` outlives the scheduler.
  VllmV1(const SchedulerConfig& config, BlockKeySource& keys);

  void add_request(const NewRequest& request) override;
  void abort_request(RequestId id) override;
  [[nodiscard]] bool preset_free_queue(std::span<const FreeBlock> queue) override;
  void set_engine_turn(std::int64_t turn) override { next_turn_ = turn; }
  void plan_step(StepPlan& plan) override;
  void update(const StepResult& result, StepOutcome& outcome) override;
  [[nodiscard]] std::int64_t steady_turns(std::int64_t limit) override;
  void advance(std::int64_t num_turns) override;
  [[nodiscard]] CohortUse cohort_use() const override { return use_; }
  [[nodiscard]] bool has_requests() const override;
  [[nodiscard]] EngineLoad load() const override;
  [[nodiscard]] PrefixCacheStats prefix_cache_stats() const override { return stats_; }
  [[nodiscard]] std::int64_t blocks_needed_by_head() const override;
  [[nodiscard]] RequestId waiting_head() const override;
  void for_each_walked(const std::function<void(const ScheduledRequest&)>& visit) const override;
  void for_each_scheduled(const std::function<void(const ScheduledRequest&)>& visit) const override;

  // What a trace shows; read-only, for tests and vllm_conformance.

  /// Those who run, in order of admission.
  [[nodiscard]] std::vector<RequestId> running() const;

  /// One who waits, and whether a waiting pass has set it aside.
  struct Waiting {
    RequestId id = kNoRequest;
    bool deferred = false;
  };
  /// Those who wait, head first.
  [[nodiscard]] std::vector<Waiting> waiting() const;

  /// Blocks of a live request, null blocks included; empty for any other id.
  [[nodiscard]] std::span<const BlockId> block_table(RequestId id) const;
  [[nodiscard]] const BlockPool& pool() const { return kv_.pool(); }

 private:
  /// One request's share of a step, with where to find it.
  struct Planned {
    ScheduledRequest share;
    Slot slot = kNoSlot;
    std::int64_t order = 0;
  };

  /// A planned step; waits here for its result.
  struct Batch {
    std::int64_t step = 0;
    std::vector<Planned> planned;      // Who was walked, in order.
    std::int64_t num_unwalked = 0;     // Members of the cohort; who leaves it moves into `planned`.
    std::vector<Planned> joined;       // Members of which this is the first step.
  };

  /// What is left of a step's limits while it is planned.
  struct Limits {
    std::int64_t budget = 0;  // Tokens.
    std::int64_t room = 0;    // Input positions of the model: tokens and draft slots.
    std::int64_t cap = 0;     // Tokens of one request; 0: none.
    bool defers_prefills = false;
  };

  [[nodiscard]] Limits begin_step() const;
  [[nodiscard]] std::int64_t left(const Limits& limits) const;
  void spend(Limits& limits, std::int64_t tokens) const;
  void give_back(Limits& limits, std::int64_t tokens) const;
  Planned& put_into(Batch& batch, Slot slot, std::int32_t tokens);
  void finish_plan(StepPlan& plan, Batch& batch);

  // vllm_v1_running.cc
  void plan_running(Limits& limits, StepPlan& plan, Batch& batch);
  [[nodiscard]] bool sits_out(const Request& r, const Limits& limits) const;
  [[nodiscard]] std::int32_t gap_to_close(const Request& r, const Limits& limits) const;
  [[nodiscard]] Slot take_victim(std::size_t& position, Limits& limits, Batch& batch);
  void preempt(Slot slot, StepPlan& plan);

  // vllm_v1_waiting.cc
  struct Admission {
    std::int32_t hit_tokens = 0;
    std::int32_t tokens = 0;  // To compute in this step, drafts included.
    std::int32_t drafts = 0;  // Padding.
  };
  void plan_waiting(Limits& limits, StepPlan& plan, Batch& batch);
  [[nodiscard]] AdmissionStop admit_from_queue(Limits& limits, Batch& batch);
  [[nodiscard]] AdmissionStop why_set_aside(const Request& r) const;
  [[nodiscard]] AdmissionStop size_admission(const Request& r, const Limits& limits, bool decodes_only,
                                             bool any_planned, Admission& admission) const;
  void admit(Slot slot, const Admission& admission, Batch& batch);
  void note_adapter(AdapterId adapter);

  // vllm_v1_cohort.cc
  [[nodiscard]] bool plan_cohort(Limits& limits, StepPlan& plan, Batch& batch);
  void join_fresh(Batch& batch);
  [[nodiscard]] bool size_loose(Limits& limits, std::int64_t CohortUse::*& short_of);
  void serve_in_order(StepPlan& plan, Batch& batch);
  [[nodiscard]] bool serve_loose(std::size_t index, StepPlan& plan, Batch& batch);
  [[nodiscard]] bool make_room(std::int32_t blocks, std::int64_t order, StepPlan& plan, Batch& batch);
  void take_member_blocks();
  [[nodiscard]] bool only_cohort_runs() const;
  [[nodiscard]] bool waiting_stays() const;
  void eject_ended(std::int64_t last_step);
  void leave_cohort(CohortMember member);
  void dissolve_cohort(std::int64_t CohortUse::*reason);
  [[nodiscard]] Planned spell_out(const CohortMember& member, std::int64_t step) const;
  void settle(const CohortMember& member);
  [[nodiscard]] bool move_into_batches(const CohortMember& member);
  void note_paused(StepPlan& plan, const Batch& batch);
  [[nodiscard]] std::int64_t unwalked_before(std::int64_t order) const;
  void leave_running(Slot slot);
  [[nodiscard]] Batch& batch_in_flight(std::size_t age) { return batches_[(oldest_ + age) % batches_.size()]; }

  // vllm_v1_update.cc
  [[nodiscard]] std::size_t attach_exceptions(const StepResult& result);
  [[nodiscard]] SampledTokens claim_sample(const Planned& planned, const StepResult& result);
  void take_output(const Planned& planned, const SampledTokens& sampled, StepOutcome& outcome);
  [[nodiscard]] FinishReason append_tokens(Request& r, const SampledTokens& sampled,
                                           std::int32_t& kept) const;
  void offer_drafts(const Batch& batch);
  void leave(Slot slot);

  // The config, narrowed once to what the passes use.
  std::int64_t max_num_batched_tokens_;
  std::int64_t max_num_scheduled_tokens_;
  std::size_t max_num_active_seqs_;
  std::size_t max_loras_;
  std::int32_t max_model_len_;
  std::int64_t long_prefill_token_threshold_;
  bool long_prefill_adaptive_;
  bool chunked_prefill_;
  std::int64_t prefill_schedule_interval_;
  SchedulingPolicy policy_;
  bool async_;
  std::int64_t decode_spacing_;  // Steps between two decodes of one request; 0 unless async on the V2 runner.
  std::int32_t num_drafts_;      // Drafts per request and step.
  std::int64_t draft_slots_;
  bool keeps_cohort_;  // What the config asks for allows it.

  RequestTable requests_;
  RequestQueue waiting_;
  std::vector<Slot> running_;
  KvCache kv_;
  PrefixCacheStats stats_;
  std::int64_t step_ = -1;       // Number of the newest plan.
  std::int64_t next_turn_ = 0;   // Of the engine loop: see set_engine_turn().
  AdmissionStop admission_stop_ = AdmissionStop::kQueueEmpty;  // Of the newest plan.
  bool capacity_bound_ = false;  // Who waits does so for lack of room, says the last full waiting pass.

  // Plans in flight: a ring of `depth` batches, oldest first.
  std::vector<Batch> batches_;
  std::size_t oldest_ = 0;
  std::size_t num_in_flight_ = 0;
  std::size_t newest_ = 0;

  std::vector<RequestId> ended_;  // Ended since the last plan.

  // Those who run: members of the cohort and loose ones. Only with keeps_cohort_.
  Cohort cohort_;
  std::vector<Slot> loose_;  // By order.
  std::vector<CohortMember> unlisted_;  // Left the cohort since the last plan without a result on its way.
  std::vector<Planned> fresh_;  // Sampled for in the newest step while loose: they may join in the next.
  std::int64_t next_order_ = 0;
  CohortUse use_;
  std::int64_t cohort_planned_ = -1;  // Newest step that planned the cohort, and newest whose result counted it.
  std::int64_t cohort_updated_ = -1;

  // Scratch, kept for its storage.
  std::vector<BlockId> hit_;
  std::vector<Slot> set_aside_;
  bool enough_blocks_ = true;  // For all who are served in this step.
  std::vector<std::int32_t> loose_tokens_;  // Of each in loose_, 0: nothing in this step.
  std::vector<AdapterId> adapters_;  // Distinct adapters of the step so far.
};

[[nodiscard]] std::unique_ptr<Scheduler> make_vllm_v1(const SchedulerConfig& config, BlockKeySource& keys);

}  // namespace kneepoint::engine
