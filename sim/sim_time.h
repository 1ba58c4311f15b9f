// The simulator's clock: whole nanoseconds since the start of the run.
//
// Seconds as double live where models are built and where results are printed;
// to_sim_duration() is the one place where they are rounded. Back, nanoseconds are
// divided, not multiplied by 1e-9, which is no exact double: 90 ms print as 0.09.
#pragma once

#include <chrono>
#include <cmath>

namespace kneepoint::sim {

struct SimClock {
  using rep = std::chrono::nanoseconds::rep;
  using period = std::chrono::nanoseconds::period;
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<SimClock>;
  static constexpr bool is_steady = true;  // No now(): only the event loop says what time it is.
};

using SimTime = SimClock::time_point;
using SimDuration = SimClock::duration;

/// Not yet, or never.
inline constexpr SimTime kNever = SimTime::max();

[[nodiscard]] inline SimDuration to_sim_duration(double seconds) {
  return SimDuration(std::llround(seconds * 1e9));
}

[[nodiscard]] inline double to_seconds(SimDuration duration) { return static_cast<double>(duration.count()) / 1e9; }
[[nodiscard]] inline double to_seconds(SimTime time) { return to_seconds(time.time_since_epoch()); }
[[nodiscard]] inline double to_ms(SimDuration duration) { return static_cast<double>(duration.count()) / 1e6; }

}  // namespace kneepoint::sim
