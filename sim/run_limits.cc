#include "sim/run_limits.h"

#include <fmt/format.h>

namespace kneepoint::sim {

LimitWatch::LimitWatch(const RunLimits& limits) : limits_(limits) {
  if (limits.sim_time) {
    latest_ = SimTime(*limits.sim_time);
  }
  most_ = limits.requests.value_or(most_);
  if (limits.wall_s) {
    wall_end_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                       std::chrono::duration<double>(*limits.wall_s));
  }
}

// The clock costs as much as an event, so it is read for one in 256.
bool LimitWatch::wall_time_is_up() {
  if (!time_up_ && asked_++ % 256 == 0) {
    time_up_ = std::chrono::steady_clock::now() >= wall_end_;
  }
  return time_up_;
}

std::string LimitWatch::which(std::int64_t over) const {
  if (over >= most_) {
    return fmt::format("--max-requests {}", most_);
  }
  return time_up_ ? fmt::format("--max-wall-time {} s", *limits_.wall_s)
                  : fmt::format("--max-sim-time {} s", to_seconds(*limits_.sim_time));
}

}  // namespace kneepoint::sim
