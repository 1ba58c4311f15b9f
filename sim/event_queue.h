// What happens next: events ordered by (time, phase, sequence).
//
// Simulated time only moves when an event is taken. Where several stand at one
// instant the phase decides, and within a phase the order of their making, so
// that a run is the same on every machine.
#pragma once

#include <boost/assert.hpp>
#include <cstdint>
#include <queue>
#include <tuple>
#include <vector>

#include "sim/sim_time.h"

namespace kneepoint::sim {

/// What comes first at equal times, and why.
enum class Phase : std::uint8_t {
  kStepEnd,    ///< Results first: they free blocks and client slots that others of this instant may use.
  kArrival,    ///< Then what clients do: a request that arrives as a step ends joins the next step.
  kStepBegin,  ///< Then the engine plans, having seen all of the above.
  kSample,     ///< Observers last: they see the instant as it is left behind.
};

enum class EventKind : std::uint8_t {
  kOldestStepEnds,   ///< The oldest batch in flight is done.
  kClientSends,      ///< The client may have a request to send.
  kReachesEngine,    ///< A sent request has passed the front end. `subject`: request.
  kClientTimesOut,   ///< The client gives up, unless it has its answer. `subject`: request.
  kClientHasAnswer,  ///< The last token is at the client. `subject`: request.
  kAbortReachesEngine,  ///< `subject`: request.
  kEngineTurns,      ///< The engine looks at its inputs and plans.
};

struct Event {
  SimTime time{};
  Phase phase = Phase::kStepEnd;
  EventKind kind = EventKind::kEngineTurns;
  std::uint64_t subject = 0;
};

class EventQueue {
 public:
  /// Before  `event.time` is not before the last event taken (CLOCK_FORWARD).
  void push(const Event& event) {
    BOOST_ASSERT_MSG(event.time >= now_, "CLOCK_FORWARD: an event in the past");
    heap_.push({event, pushed_++});
  }

  [[nodiscard]] bool empty() const { return heap_.empty(); }

  /// Takes the next event and moves the clock to it.
  [[nodiscard]] Event pop() {
    const Event next = heap_.top().event;
    heap_.pop();
    now_ = next.time;
    ++popped_;
    return next;
  }

  /// When the next event is; kNever if there is none.
  [[nodiscard]] SimTime next_time() const { return heap_.empty() ? kNever : heap_.top().event.time; }

  /// Moves the clock without an event. Before: `time` is not before now, nor after the next event.
  void advance_to(SimTime time) {
    BOOST_ASSERT_MSG(time >= now_ && time <= next_time(), "CLOCK_FORWARD: passed an event over");
    now_ = time;
  }

  [[nodiscard]] SimTime now() const { return now_; }
  [[nodiscard]] std::uint64_t num_popped() const { return popped_; }

 private:
  struct Entry {
    Event event;
    std::uint64_t sequence;
    // std::priority_queue hands out the largest, so "less" is "later".
    friend bool operator<(const Entry& a, const Entry& b) {
      return std::tie(a.event.time, a.event.phase, a.sequence) > std::tie(b.event.time, b.event.phase, b.sequence);
    }
  };

  std::priority_queue<Entry> heap_;
  SimTime now_{};
  std::uint64_t pushed_ = 0;
  std::uint64_t popped_ = 0;
};

}  // namespace kneepoint::sim
