// One seed's knees between the loads of a sweep.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/knee.h"
#include "sim/knee_sweep.h"

namespace kneepoint::sim {

class KneeRoots {
 public:
  /// Of the columns that `sweep` has when it is asked; runs more on its own.
  explicit KneeRoots(Sweep& sweep, double tolerance = 0.004) : sweep_(sweep), tolerance_(tolerance) {}

  [[nodiscard]] SeedKnee saturation(std::size_t seed);
  /// `saturation` of the same seed is where an open loop ends.
  [[nodiscard]] SeedKnee slo(std::size_t seed, const SeedKnee& saturation);

  /// The same without columns, starting from a load that should not be far.
  [[nodiscard]] SeedKnee saturation_near(std::size_t seed, double near);
  [[nodiscard]] SeedKnee slo_near(std::size_t seed, double near);

 private:
  struct Sample {
    double load = 0;
    std::optional<double> margin;  // Nothing: missed, nobody knows by how much.
    double tightening = 1;         // Percent that the margin rises for one percent of step time.
  };
  struct Bracket {
    Sample low, high;
  };
  [[nodiscard]] double bisect_trend(std::size_t seed, double low, double high);
  [[nodiscard]] double saturated_load(std::size_t seed, std::size_t first_saturated);
  [[nodiscard]] bool narrow(const Bracket& bracket) const;
  [[nodiscard]] double next_load(const Bracket& bracket, double low_weight, double high_weight) const;
  [[nodiscard]] Sample sample(std::size_t seed, double load);
  [[nodiscard]] Sample sample_of(const RunLog& log) const;
  void close(std::size_t seed, Bracket& bracket, std::vector<Sample>& samples);
  [[nodiscard]] double root_of(const Bracket& bracket) const;
  [[nodiscard]] double sensitivity(double knee, const std::vector<Sample>& samples) const;

  Sweep& sweep_;
  double tolerance_;  // Of a load, for a root.
};

}  // namespace kneepoint::sim
