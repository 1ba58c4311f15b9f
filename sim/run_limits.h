// What stops a run before its end: --max-sim-time, --max-requests, --max-wall-time.
//
// A run that was stopped says so wherever its figures stand, and ends with exit
// status 3. The first two stop at the same event on every machine; the third
// reads the wall clock, so its results can be repeated by nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "sim/sim_time.h"

namespace kneepoint::sim {

struct RunLimits {
  std::optional<SimDuration> sim_time;   ///< Events up to and including this time happen.
  std::optional<double> wall_s;          ///< Seconds of the machine that simulates.
  std::optional<std::int64_t> requests;  ///< So many requests are over, however they ended.
};

class LimitWatch {
 public:
  explicit LimitWatch(const RunLimits& limits);

  /// Whether to stop ahead of an event at `next`, `over` requests being over. Asked for every event.
  [[nodiscard]] bool reached(SimTime next, std::int64_t over) {
    return next > latest_ || over >= most_ || (limits_.wall_s && wall_time_is_up());
  }

  /// Nothing happens after this.
  [[nodiscard]] SimTime latest() const { return latest_; }

  /// The limit that was reached, in words: "--max-sim-time 60 s".
  [[nodiscard]] std::string which(std::int64_t over) const;

 private:
  [[nodiscard]] bool wall_time_is_up();

  RunLimits limits_;
  SimTime latest_ = SimTime::max();
  std::int64_t most_ = std::numeric_limits<std::int64_t>::max();
  std::chrono::steady_clock::time_point wall_end_{};
  std::uint32_t asked_ = 0;
  bool time_up_ = false;
};

}  // namespace kneepoint::sim
