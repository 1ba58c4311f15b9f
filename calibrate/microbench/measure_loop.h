// The measuring loop: shape after shape until all are done, the budget is spent or
// somebody interrupts, with a valid file at every moment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/microbench/device.h"
#include "calibrate/microbench/measurement.h"

namespace kneepoint::microbench {

struct LoopOptions {
  double budget_seconds = 240;
  double write_every_seconds = 10;
  TimingOptions timing;
};

/// Where the world enters.
struct LoopWorld {
  std::function<double()> seconds;  ///< A clock that never goes back.
  std::function<bool()> interrupted;
  std::function<void(const Measurement&)> write;          ///< Called now and then, and at the end.
  std::function<void(const std::string& line)> progress;  ///< A line for the terminal; may be empty.
};

/// Measures `shapes` in their order into `measurement`. A DeviceError ends it: what was
/// measured is written and ended_by says "error: ...". No shape is begun past the budget.
void measure_all(Device& device, const std::vector<Shape>& shapes, const LoopOptions& options,
                 const LoopWorld& world, Measurement& measurement);

/// "[=====     ] 120 of 240 shapes, 2 min 5 s left"
[[nodiscard]] std::string progress_line(std::int64_t done, std::int64_t all, double seconds_left);

}  // namespace kneepoint::microbench
