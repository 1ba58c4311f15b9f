#include "traces/rate_envelope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "traces/exact_math.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

constexpr double kLeastFactor = 1e-3;

double shortest_feature(const RateEnvelope& envelope) {
  double shortest = 1e9;
  if (!envelope.harmonics.empty()) {
    shortest = envelope.period_s / static_cast<double>(envelope.harmonics.size());
  }
  for (const Spike& spike : envelope.spikes) shortest = std::min(shortest, spike.seconds);
  if (envelope.ramp.seconds > 0) shortest = std::min(shortest, envelope.ramp.seconds);
  return shortest;
}

}  // namespace

double RateEnvelope::at(double t_s) const {
  double factor = 1;
  for (std::size_t k = 0; k < harmonics.size(); ++k) {
    const double turns = static_cast<double>(k + 1) * t_s / period_s + harmonics[k].phase;
    factor += harmonics[k].amplitude * exact_sin_turns(turns);
  }
  for (const Spike& spike : spikes) {
    if (t_s >= spike.at_s && t_s < spike.at_s + spike.seconds) factor *= spike.factor;
  }
  if (ramp.seconds > 0) factor *= ramp.from + (ramp.to - ramp.from) * std::min(1.0, t_s / ramp.seconds);
  return factor;
}

void RateEnvelope::check() const {
  double amplitudes = 0;
  for (const Harmonic& harmonic : harmonics) amplitudes += std::fabs(harmonic.amplitude);
  if (!(amplitudes <= 1)) {
    throw TraceError(
        fmt::format("--diurnal: the amplitudes sum to {}; above 1 the rate could be negative", amplitudes));
  }
  if (!(period_s > 0)) throw TraceError(fmt::format("--period is {}; it must be above 0", period_s));
  for (const Spike& spike : spikes) {
    if (!(spike.at_s >= 0) || !(spike.seconds > 0) || !(spike.factor >= 0) || !std::isfinite(spike.factor)) {
      throw TraceError(fmt::format("--spike {}:{}:{}: AT and FACTOR must not be negative, SECONDS above 0",
                                   spike.at_s, spike.seconds, spike.factor));
    }
  }
  if (ramp.seconds != 0 && (!(ramp.seconds > 0) || !(ramp.from >= 0) || !(ramp.to >= kLeastFactor))) {
    throw TraceError(
        fmt::format("--ramp {}:{}:{}: FROM must not be negative, TO at least {}, SECONDS above 0", ramp.from,
                    ramp.to, ramp.seconds, kLeastFactor));
  }
}

EnvelopeClock::EnvelopeClock(RateEnvelope envelope)
    : envelope_(std::move(envelope)), cell_s_(shortest_feature(envelope_) / 4096) {
  envelope_.check();
  rate_ = envelope_.at(0.5 * cell_s_);
}

double EnvelopeClock::time_of(double operational_s) {
  while (before_ + rate_ * cell_s_ < operational_s) {
    before_ += rate_ * cell_s_;
    cell_ += 1;
    rate_ = envelope_.at((cell_ + 0.5) * cell_s_);
  }
  const double within = rate_ > 0 ? (operational_s - before_) / rate_ : 0;
  return cell_ * cell_s_ + within;
}

}  // namespace kneepoint::traces
