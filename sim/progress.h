// The progress bar: how many requests, or runs of many, are over, and how long the rest will take.
//
// Drawn on a terminal only, a few times a second; a pipe or a file gets nothing.
// This is the only place of the simulator that reads the wall clock, and nothing
// of it reaches a result.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "sim/observer.h"

namespace kneepoint::sim {

class Progress final : public RunObserver {
 public:
  using Clock = std::chrono::steady_clock;

  /// On stderr if that is a terminal, else silent. `num_requests` of the run; 0: not known.
  explicit Progress(std::uint64_t num_requests, std::string what = "requests");
  /// For tests: `draw` is given each new line, `now` tells the time.
  Progress(std::uint64_t num_requests, std::function<void(const std::string&)> draw,
           std::function<Clock::time_point()> now, std::string what = "requests");
  ~Progress() override;

  void on_request_end(const RequestRecord& request) override;
  /// One of whatever is counted; one call at a time.
  void one_over();
  /// Takes the bar off the terminal; before anything else is written there.
  void clear();

 private:
  std::uint64_t num_requests_;
  std::string what_;
  std::function<void(const std::string&)> draw_;  // Empty: silent.
  std::function<Clock::time_point()> now_;
  Clock::time_point start_;
  Clock::time_point next_draw_;
  std::uint64_t over_ = 0;
  bool drawn_ = false;
};

}  // namespace kneepoint::sim
