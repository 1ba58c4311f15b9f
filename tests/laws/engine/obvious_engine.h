// vLLM V1's rules once more, slow and obvious.
//
// Written from the rules as told in engine/README.md and sharing no code with
// engine/: lists are vectors that are searched and shifted, keys are looked up by
// scanning, nothing is remembered that can be counted anew. It runs beside the
// real engine on random workloads (engine_selfcheck_test.cc), and every decision
// and every list must be equal after every step.
//
// Each Mutation reverses one rule, most of them a rule about order. A comparison
// that did not notice one would prove nothing, so the test tries them all.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/block_keys.h"
#include "engine/request.h"
#include "engine/scheduler_config.h"
#include "engine/step_plan.h"

namespace kneepoint::laws {

enum class Mutation {
  kNone,
  kFreesHeadFirst,          ///< A table is freed from its first block to its last.
  kFreesKeyedToHead,        ///< Blocks with a key go to the head of the free queue.
  kFreesUnkeyedToTail,      ///< Blocks without a key go to the tail, as before 0.32.
  kFreesUnkeyedOneByOne,    ///< Each block without a key ahead of the one freed before it.
  kTakesFromTail,           ///< The free queue is used from its tail.
  kFindsLatestDuplicate,    ///< Of several blocks with a key the newest is found.
  kRegistersAfterStep,      ///< Full blocks get their keys when the result is in.
  kHitKeepsItsAge,          ///< A block that was hit returns ahead of all other cached ones.
  kLookupRefreshes,         ///< A lookup moves free blocks to the tail, admitted or not.
  kHitsWholePrompt,         ///< The last token need not be computed.
  kVictimIsFirst,           ///< The first of those who run is preempted.
  kPreemptedToBack,         ///< A victim queues behind all others.
  kSetAsideToBack,          ///< Those set aside return to the back.
  kSetAsideReversed,        ///< Those set aside return to the front, last one first.
  kVictimAheadOfNobody,     ///< A victim queues behind those set aside.
  kPriorityTieTakesLast,    ///< Of equally unimportant ones the last is preempted.
  kPriorityIgnoresArrival,  ///< Equal priorities queue by id alone.
  kAdmitsAfterPreemption,   ///< The waiting pass runs in a step that preempted.
  kOvertakesHead,           ///< Who does not fit is passed by others.
  kStopsAtIdle,             ///< A running request with nothing to do ends the running pass.
  kWaitingBeforeRunning,    ///< The waiting pass comes first.
  kIgnoresWatermark,
  kIgnoresWholeSequenceGate,
  kCapsTheOnlyOne,  ///< The long-prefill cap also binds the only known request.
  kDraftSlotsFree,  ///< Draft slots cost nothing.
  kResumesWithOutputInFlight,
  kStaleOutputDropped,
  kDecodesPastTheEnd,        ///< Async: plans a decode although the last token is in flight.
  kWindowFreesAscending,     ///< Passed blocks are freed from the lowest up.
  kWindowKeepsInFlight,      ///< Passed blocks are counted with tokens still in flight.
  kWindowRetainsAll,         ///< Sparse retention is ignored.
  kThrottleForgetsCapacity,  ///< A throttled step defers prefills even when requests were left behind.
  kAdaptersUnlimited,
};

inline constexpr int kNumMutations = static_cast<int>(Mutation::kAdaptersUnlimited);

/// The free queue and the keys of all blocks.
class ObviousPool {
 public:
  ObviousPool(int num_blocks, Mutation mutation);

  [[nodiscard]] int num_free() const { return static_cast<int>(free_.size()); }
  [[nodiscard]] const std::vector<int>& free_queue() const { return free_; }
  [[nodiscard]] bool is_free(int block) const { return holders_[index(block)] == 0; }
  [[nodiscard]] int find(const engine::BlockKey& key) const;  ///< 0: nobody has it.
  int take();
  void hold(int block);
  void free_in_order(const std::vector<int>& blocks);
  void register_key(int block, const engine::BlockKey& key);
  void refresh(int block);

 private:
  [[nodiscard]] static std::size_t index(int block) { return static_cast<std::size_t>(block); }

  Mutation mutation_;
  std::vector<int> free_;
  std::vector<int> holders_;
  std::vector<std::optional<engine::BlockKey>> keys_;
  std::vector<int> registered_;  // Blocks with a key, earliest first.
  std::vector<bool> was_hit_;
};

/// What the model planned; compared with the engine's plan.
struct ObviousPlan {
  std::vector<engine::ScheduledRequest> scheduled;
  std::vector<engine::RequestId> preempted;
  std::vector<engine::RequestId> finished;
  engine::AdmissionStop stop = engine::AdmissionStop::kQueueEmpty;
  engine::RequestId not_admitted = engine::kNoRequest;
};

class ObviousEngine {
 public:
  ObviousEngine(const engine::SchedulerConfig& config, engine::BlockKeySource& keys, Mutation mutation);

  void add(const engine::NewRequest& request);
  void abort(engine::RequestId id);
  [[nodiscard]] ObviousPlan plan(std::int64_t turn);
  [[nodiscard]] std::vector<engine::EmittedTokens> update(const engine::StepResult& result);

  struct Waiting {
    engine::RequestId id;
    bool deferred;
  };
  [[nodiscard]] bool has_requests() const { return !requests_.empty() || !ended_.empty(); }
  [[nodiscard]] const std::vector<engine::RequestId>& running() const { return running_; }
  [[nodiscard]] std::vector<Waiting> waiting() const;
  [[nodiscard]] std::vector<int> table(engine::RequestId id) const;
  [[nodiscard]] const ObviousPool& pool() const { return pool_; }
  /// Of first admissions, and of resumptions.
  [[nodiscard]] std::int64_t query_tokens(bool resumed) const { return query_tokens_[resumed ? 1 : 0]; }
  [[nodiscard]] std::int64_t hit_tokens(bool resumed) const { return hit_tokens_[resumed ? 1 : 0]; }

 private:
  struct Request {
    engine::NewRequest in;
    int outputs = 0;
    int computed = 0;
    int drafts = 0;
    int placeholders = 0;
    int in_flight = 0;
    int stale = 0;
    int preemptions = 0;
    std::int64_t next_eligible_step = 0;
    bool mid_prefill = false;
    bool deferred = false;
    bool runs = false;
    bool cached_something = false;  // Registered or hit since its admission.
    std::vector<int> table;
    int registered = 0;
    [[nodiscard]] int num_tokens() const { return in.prompt_tokens + outputs; }
  };

  struct Step {
    std::int64_t budget = 0;
    std::int64_t room = 0;
    std::int64_t cap = 0;
    bool defers = false;
  };

  [[nodiscard]] bool is(Mutation mutation) const { return mutation_ == mutation; }
  [[nodiscard]] Step start_step(std::int64_t turn) const;
  void run_those_who_run(Step& step, ObviousPlan& plan);
  void admit_those_who_wait(Step& step, ObviousPlan& plan);
  [[nodiscard]] engine::AdmissionStop try_to_admit(engine::RequestId id, Step& step, ObviousPlan& plan,
                                                   std::size_t planned_by_running_pass);
  [[nodiscard]] bool adapter_has_slot(const ObviousPlan& plan, std::uint32_t adapter) const;
  void after_planning(ObviousPlan& plan);
  [[nodiscard]] engine::EmittedTokens take_output(Request& r, const engine::ScheduledRequest& share,
                                                  const engine::SampledTokens& sampled);
  engine::RequestId choose_victim() const;
  void preempt(engine::RequestId id, ObviousPlan& plan);
  void enqueue_back(engine::RequestId id);
  void enqueue_front(engine::RequestId id);
  void end(engine::RequestId id);

  [[nodiscard]] std::vector<int> lookup(const Request& r);
  [[nodiscard]] std::vector<int> window_lookup(const Request& r);
  [[nodiscard]] bool allocate(Request& r, int n, const std::vector<int>& hit, bool admission);
  [[nodiscard]] int blocks_needed(const Request& r, int tokens, int computed, const std::vector<int>& hit,
                                  bool in_gate) const;
  void free_passed_blocks(Request& r, int settled);
  void register_blocks(Request& r, int tokens);
  [[nodiscard]] bool retained(const Request& r, int block) const;
  void release(Request& r);
  [[nodiscard]] int gone(int tokens) const;
  [[nodiscard]] int run_length() const;
  [[nodiscard]] int block_size() const { return static_cast<int>(config_.block_size); }
  [[nodiscard]] bool eagle() const { return config_.spec_method == engine::SpeculativeMethod::kEagle; }
  [[nodiscard]] int slots() const;

  engine::SchedulerConfig config_;
  engine::BlockKeySource& keys_;
  Mutation mutation_;
  ObviousPool pool_;
  std::map<engine::RequestId, Request> requests_;
  std::vector<engine::RequestId> running_;
  std::vector<engine::RequestId> waiting_;
  std::vector<engine::RequestId> ended_;
  std::vector<std::vector<engine::ScheduledRequest>> in_flight_;  // Oldest first.
  std::int64_t step_ = -1;
  bool capacity_bound_ = false;
  std::array<std::int64_t, 2> query_tokens_{};
  std::array<std::int64_t, 2> hit_tokens_{};
};

}  // namespace kneepoint::laws
