// A rate that changes over time: daily harmonics, spikes, a ramp.
//
// The envelope f(t) says how fast operational time runs: a process whose
// arrivals fall at operational times s arrives at t with
//
//     integral of f from 0 to t  =  s
//
// so the rate at t is f(t) times the process's own, and its burstiness, seen in
// operational time, stays. For a Poisson process this is the textbook's
// non-homogeneous one (E. Cinlar, "Introduction to Stochastic Processes", 1975).
#pragma once

#include <vector>

namespace kneepoint::traces {

/// 1 + sum over k of amplitude_k sin(2 pi (k t / period + phase_k)), k = 1, 2, ...
struct Harmonic {
  double amplitude = 0;
  double phase = 0;  ///< In turns.
};

/// Factor on the rate in [at_s, at_s + seconds).
struct Spike {
  double at_s = 0;
  double seconds = 0;
  double factor = 1;
};

/// Factor that goes from one value to another in a straight line, then stays.
struct Ramp {
  double from = 1;
  double to = 1;
  double seconds = 0;  ///< 0: no ramp.
};

struct RateEnvelope {
  std::vector<Harmonic> harmonics;
  double period_s = 86400;
  std::vector<Spike> spikes;
  Ramp ramp;

  /// f(t), the product of the three.
  [[nodiscard]] double at(double t_s) const;
  [[nodiscard]] bool flat() const { return harmonics.empty() && spikes.empty() && ramp.seconds == 0; }
  /// Throws TraceError if f could be negative or stay at 0.
  void check() const;
};

/// Turns operational times, which must not fall, into times.
class EnvelopeClock {
 public:
  explicit EnvelopeClock(RateEnvelope envelope);
  [[nodiscard]] double time_of(double operational_s);

 private:
  RateEnvelope envelope_;
  double cell_s_;      // f is taken as constant within a cell: a 4096th of the shortest feature.
  double cell_ = 0;    // Number of the cell reached,
  double before_ = 0;  // operational time before it,
  double rate_ = 0;    // and f in it.
};

}  // namespace kneepoint::traces
