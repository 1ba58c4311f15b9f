// What the handler of a broken invariant prints besides the invariant: seed,
// simulated time and event number, so that the run can be repeated up to there.
#pragma once

#include <cstdint>
#include <string>

#include "sim/event_queue.h"

namespace kneepoint::sim {

/// While it lives, this thread's run is the one described.
class CrashContext {
 public:
  CrashContext(std::uint64_t seed, const EventQueue& events);
  ~CrashContext();
  CrashContext(const CrashContext&) = delete;
  CrashContext& operator=(const CrashContext&) = delete;

  /// "seed 1, simulated time 12.345678901 s, event 678", or "outside a run".
  [[nodiscard]] static std::string describe();

 private:
  std::uint64_t seed_;
  const EventQueue& events_;
  const CrashContext* outer_;
};

}  // namespace kneepoint::sim
