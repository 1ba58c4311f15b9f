#include "calibrate/microbench/measure_loop.h"

#include <algorithm>
#include <cmath>

namespace kneepoint::microbench {

namespace {

// The budget ends it, or the shapes do at the pace so far.
double seconds_left(double spent, double budget, std::int64_t done, std::int64_t all) {
  const double left = std::max(0.0, budget - spent);
  if (done == 0) return left;
  return std::min(left, spent / static_cast<double>(done) * static_cast<double>(all - done));
}

// Empty if there may be more.
std::string reason_to_stop(const LoopOptions& options, const LoopWorld& world, double spent) {
  if (world.interrupted && world.interrupted()) return "interrupted";
  return spent >= options.budget_seconds ? "budget" : "";
}

bool usable(const Timing& timing) {
  return !timing.us.empty() && std::all_of(timing.us.begin(), timing.us.end(),
                                           [](double us) { return std::isfinite(us) && us > 0; });
}

}  // namespace

std::string progress_line(std::int64_t done, std::int64_t all, double left) {
  constexpr std::int64_t kWidth = 30;
  const std::int64_t filled = all > 0 ? kWidth * done / all : kWidth;
  const auto seconds = static_cast<std::int64_t>(std::ceil(left));
  std::string line = "[";
  line.append(static_cast<std::size_t>(filled), '=').append(static_cast<std::size_t>(kWidth - filled), ' ');
  line += "] ";
  line += std::to_string(done) + " of " + std::to_string(all) + " shapes, ";
  if (seconds >= 60) line += std::to_string(seconds / 60) + " min ";
  return line + std::to_string(seconds % 60) + " s left";
}

void measure_all(Device& device, const std::vector<Shape>& shapes, const LoopOptions& options,
                 const LoopWorld& world, Measurement& measurement) {
  const double begin = world.seconds();
  const auto all = static_cast<std::int64_t>(shapes.size());
  double written = begin;
  std::int64_t done = 0;
  measurement.planned = all;
  for (const Shape& shape : shapes) {
    const double now = world.seconds();
    measurement.seconds = now - begin;
    measurement.ended_by = reason_to_stop(options, world, now - begin);
    if (!measurement.ended_by.empty()) break;
    if (world.progress)
      world.progress(progress_line(done, all, seconds_left(now - begin, options.budget_seconds, done, all)));
    try {
      Timing timing = device.measure(shape, options.timing);
      if (!usable(timing)) throw DeviceError(describe(shape) + ": a time is not positive");
      measurement.rows.push_back({shape, std::move(timing)});
    } catch (const ShapeSkipped& skipped) {
      measurement.skip(shape, skipped.what());
    } catch (const DeviceError& error) {
      measurement.ended_by = std::string("error: ") + error.what();
      break;
    }
    ++done;
    if (world.seconds() - written >= options.write_every_seconds) {
      written = world.seconds();
      world.write(measurement);
    }
  }
  measurement.seconds = world.seconds() - begin;
  if (measurement.ended_by.empty()) measurement.ended_by = "all shapes measured";
  world.write(measurement);
}

}  // namespace kneepoint::microbench
