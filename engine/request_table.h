// What the engine remembers of each live request, in dense slots.
//
// A run may see ten million requests, but only the live ones cost memory: a
// request gets a slot when it arrives and gives it back when it ends. A slot
// keeps the storage of its block table for the next request, so a busy server
// stops allocating after a while. Slots are for the engine alone; across doors
// a request is its RequestId.
//
// There is no prefill or decode phase. Each step tries to close the gap
//
//     num_tokens + num_draft_tokens + num_output_placeholders - num_computed_tokens
//
// A decode is a gap of one, a prompt a larger one; a request that was preempted
// has a gap of its prompt and all its outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/block_pool.h"
#include "engine/flat_map.h"
#include "engine/request.h"

namespace kneepoint::engine {

/// Index of a live request.
using Slot = std::int32_t;

inline constexpr Slot kNoSlot = -1;

/// Instead of the step of joining the cohort.
inline constexpr std::int64_t kNotMember = -1;

enum class RequestStatus : std::uint8_t {
  kWaiting,    ///< Arrived, never admitted.
  kRunning,    ///< Holds blocks.
  kPreempted,  ///< Lost its blocks, waits to start again.
  kFinished,   ///< Gone; its slot is about to be reused.
};

struct Request {
  RequestId id = kNoRequest;
  std::int32_t prompt_tokens = 0;
  std::int32_t max_tokens = 0;
  std::int32_t reserve_output_tokens = 0;
  AdapterId adapter = 0;
  std::int32_t priority = 0;
  std::int64_t arrival = 0;

  std::int32_t num_tokens = 0;               ///< Prompt and outputs so far.
  std::int32_t num_computed_tokens = 0;      ///< Counted as soon as planned, before the step has run.
  std::int32_t num_draft_tokens = 0;         ///< Proposed for the next step.
  std::int32_t num_output_placeholders = 0;  ///< Async: sampled positions planned, not yet returned.
  std::int32_t num_in_flight_tokens = 0;     ///< Planned in steps whose result is not in yet.
  std::int32_t num_stale_tokens = 0;         ///< Of those, planned before a preemption.
  std::int32_t num_preemptions = 0;
  std::int64_t next_eligible_step = 0;  ///< V2 runner and async: earliest step of the next decode.
  std::int64_t order = 0;               ///< Its place among those who run: larger than all before it.
  std::int64_t joined = kNotMember;     ///< First step as a member of the cohort.

  RequestStatus status = RequestStatus::kWaiting;
  bool mid_prefill = false;    ///< As of its last planning, the known end is not reached.
  bool deferred = false;       ///< A waiting pass set it aside.
  bool has_exception = false;  ///< While a result is taken: it holds `exception`.
  bool may_stop = true;
  bool private_keys = false;   ///< BlockKeySource::is_private().

  std::vector<BlockId> blocks;      ///< Block table; null blocks where a sliding window has passed.
  /// Private keys: for each block index, where the request left one with its key when it was preempted.
  std::vector<std::vector<BlockId>> left_behind;
  std::int32_t num_unnamed = 0;     ///< Blocks held, where a pool does not name them.
  std::int32_t num_registered = 0;  ///< Leading blocks that are registered, or were left out for good.
  std::int32_t num_passed = 0;      ///< Leading null blocks.
  std::int32_t exception = 0;       ///< Index into StepResult::exceptions.

  [[nodiscard]] std::int32_t num_output_tokens() const { return num_tokens - prompt_tokens; }
};

class RequestTable {
 public:
  /// Takes a slot for a new request. Before: its id is not in the table.
  [[nodiscard]] Slot add(const NewRequest& request);

  /// Gives the slot back. The block table must have been released.
  void remove(Slot slot);

  [[nodiscard]] Request& operator[](Slot slot) { return requests_[static_cast<std::size_t>(slot)]; }
  [[nodiscard]] const Request& operator[](Slot slot) const {
    return requests_[static_cast<std::size_t>(slot)];
  }

  /// The slot of a live request, or kNoSlot.
  [[nodiscard]] Slot find(RequestId id) const;

  [[nodiscard]] std::size_t size() const { return by_id_.size(); }

 private:
  struct IdHash {
    std::uint64_t operator()(RequestId id) const { return spread_bits(id); }
  };

  std::vector<Request> requests_;
  std::vector<Slot> vacant_;
  FlatMap<RequestId, Slot, IdHash> by_id_;
};

}  // namespace kneepoint::engine
