#include "sim/knee_roots.h"

#include <algorithm>
#include <cmath>

namespace kneepoint::sim {
namespace {

constexpr double kTrendTolerance = 0.01;  // Of a load, where only a test can say.
constexpr double kMarginTolerance = 0.001;
constexpr int kMostRuns = 12;
// A capacity read this far beyond itself is read once more, closer.
constexpr double kFarBeyond = 1.2;
constexpr double kJustBeyond = 1.08;
// So much less done in overload than before it is a collapse, not a matter of chance.
constexpr double kCollapse = 0.95;
// Where the margin's slope is read: the next sample so far below the knee.
constexpr double kSlopeDistance = 0.985;
constexpr double kLeastSlope = 0.2;
constexpr double kSlowdown = 1.02;
// Following a knee: first load tried, as a multiple of where it was; steps from there.
constexpr double kStartBeyond = 1.15;
constexpr double kFollowStep = 1.4;
constexpr double kFirstStep = 1.05;  // Towards an SLO's root, each next one twice as far.
constexpr int kMostFollows = 6;

// Of all seeds, so that one slow one is not taken for a collapse.
double mean_rate(const Column& column) {
  double sum = 0;
  for (const RunLog& log : column.logs) {
    sum += completion_rate(log).value_or(0);
  }
  return sum / static_cast<double>(column.logs.size());
}

}  // namespace

double KneeRoots::bisect_trend(std::size_t seed, double low, double high) {
  for (int i = 0; i < kMostRuns; ++i) {
    const double middle = sweep_.closed() ? std::floor((low + high) / 2) : std::sqrt(low * high);
    if (high / low < 1 + kTrendTolerance || middle <= low) {
      break;
    }
    (sweep_.trend_of(sweep_.run(middle, seed, false)).keeps_up ? low : high) = middle;
  }
  return sweep_.closed() ? low : std::sqrt(low * high);
}

// What the server gets done just beyond is the load it can follow.
double KneeRoots::saturated_load(std::size_t seed, std::size_t first_saturated) {
  const std::vector<Column>& columns = sweep_.columns();
  const double low = columns[first_saturated - 1].load;
  double high = columns[first_saturated].load;
  if (sweep_.closed()) {
    return bisect_trend(seed, low, high);
  }
  std::optional<double> rate = completion_rate(columns[first_saturated].logs[seed]);
  if (rate && high > kFarBeyond * *rate && kJustBeyond * *rate > low) {
    const RunLog closer = sweep_.run(kJustBeyond * *rate, seed, false);
    if (!sweep_.trend_of(closer).keeps_up) {
      high = closer.load;
      rate = completion_rate(closer);
    }
  }
  if (!rate || mean_rate(columns[first_saturated]) < kCollapse * low) {
    return bisect_trend(seed, low, high);
  }
  return std::min(*rate, high);
}

SeedKnee KneeRoots::saturation(std::size_t seed) {
  const std::vector<Column>& columns = sweep_.columns();
  std::size_t first_saturated = columns.size();
  while (first_saturated > 0 && !columns[first_saturated - 1].keeps_up()) {
    --first_saturated;
  }
  if (first_saturated == columns.size()) {
    return {KneeStatus::kAboveRange, columns.back().load, 0};
  }
  if (first_saturated == 0) {
    return {KneeStatus::kBelowRange, columns.front().load, 0};
  }
  return {KneeStatus::kFound, saturated_load(seed, first_saturated), sweep_.closed() ? 0.0 : 1.0};
}

KneeRoots::Sample KneeRoots::sample(std::size_t seed, double load) {
  return sample_of(sweep_.run(load, seed, true));
}

KneeRoots::Sample KneeRoots::sample_of(const RunLog& log) const {
  Sample at{log.load, sweep_.margin_of(log)};
  const std::optional<double> slowed = at.margin ? sweep_.margin_of(log, kSlowdown) : std::nullopt;
  if (slowed) {
    at.tightening = (*slowed - *at.margin) / std::log(kSlowdown);
  }
  return at;
}

bool KneeRoots::narrow(const Bracket& bracket) const {
  const double ratio = bracket.high.load / bracket.low.load;
  if (sweep_.closed()) {
    return bracket.high.load - bracket.low.load <= 1 || ratio < 1 + kTrendTolerance;
  }
  return ratio < 1 + tolerance_ || (bracket.low.margin && *bracket.low.margin > -kMarginTolerance);
}

double KneeRoots::next_load(const Bracket& bracket, double low_weight, double high_weight) const {
  const double low = std::log(bracket.low.load);
  const double high = std::log(bracket.high.load);
  double share = 0.5;
  if (bracket.low.margin && bracket.high.margin) {
    const double below = -*bracket.low.margin * low_weight;
    const double above = *bracket.high.margin * high_weight;
    share = std::clamp(below / (below + above), 0.02, 0.98);
  }
  const double load = std::exp(low + share * (high - low));
  return sweep_.closed() ? std::clamp(std::round(load), bracket.low.load + 1, bracket.high.load - 1) : load;
}

// Draws the bracket together around the root. An end that stays twice in a row
// counts half, so that the other one moves, too (Illinois).
void KneeRoots::close(std::size_t seed, Bracket& bracket, std::vector<Sample>& samples) {
  double low_weight = 1;
  double high_weight = 1;
  for (int i = 0; i < kMostRuns && !narrow(bracket); ++i) {
    const double load = next_load(bracket, low_weight, high_weight);
    const Sample now = sample(seed, load);
    samples.push_back(now);
    if (now.margin && *now.margin <= 0) {
      bracket.low = now;
      low_weight = 1;
      high_weight /= 2;
    } else {
      bracket.high = now;
      high_weight = 1;
      low_weight /= 2;
    }
  }
}

// How far the knee moves with the step time: in an open loop the run at x in slow
// motion is a run at a lower load, and the limits are tighter for it.
double KneeRoots::sensitivity(double knee, const std::vector<Sample>& samples) const {
  const Sample* below = nullptr;  // Far enough to read a slope.
  const Sample* closest = nullptr;
  for (const Sample& at : samples) {
    if (!at.margin) {
      continue;
    }
    if (at.load < kSlopeDistance * knee && (below == nullptr || at.load > below->load)) {
      below = &at;
    }
    if (closest == nullptr || std::abs(at.load - knee) < std::abs(closest->load - knee)) {
      closest = &at;
    }
  }
  const double own = sweep_.closed() ? 0 : 1;
  if (below == nullptr) {
    return own;
  }
  const double slope = std::max(-*below->margin / std::log(knee / below->load), kLeastSlope);
  return own + closest->tightening / slope;
}

SeedKnee KneeRoots::slo(std::size_t seed, const SeedKnee& saturation) {
  const bool ends = !sweep_.closed() && saturation.status == KneeStatus::kFound;
  if (!sweep_.closed() && saturation.status == KneeStatus::kBelowRange) {
    return {KneeStatus::kBelowRange, saturation.load, 0};
  }
  std::vector<Sample> samples;
  for (const Column& column : sweep_.columns()) {
    if (!ends || column.load < saturation.load) {
      samples.push_back(sample_of(column.logs[seed]));
    }
  }
  if (ends) {  // Beyond, a latency grows with the run, and no limit holds.
    samples.push_back({saturation.load, std::nullopt});
  }
  const auto missed = std::find_if(samples.begin(), samples.end(),
                                   [](const Sample& sample) { return !sample.margin || *sample.margin > 0; });
  if (missed == samples.begin()) {
    return {KneeStatus::kBelowRange, samples.front().load, 0};
  }
  if (missed == samples.end()) {
    return {KneeStatus::kAboveRange, samples.back().load, 0};
  }
  Bracket bracket{*(missed - 1), *missed};
  close(seed, bracket, samples);
  const double knee = root_of(bracket);
  return {KneeStatus::kFound, knee, sensitivity(knee, samples)};
}

double KneeRoots::root_of(const Bracket& bracket) const {
  if (sweep_.closed() || !bracket.low.margin || !bracket.high.margin) {
    return bracket.low.load;
  }
  const double share = -*bracket.low.margin / (*bracket.high.margin - *bracket.low.margin);
  return std::exp(std::log(bracket.low.load) + share * std::log(bracket.high.load / bracket.low.load));
}

SeedKnee KneeRoots::saturation_near(std::size_t seed, double near) {
  double low = 0;
  double load = kStartBeyond * near;
  std::optional<double> rate;  // From a load far beyond.
  for (int i = 0; i < kMostFollows; ++i) {
    load = sweep_.closed() ? std::ceil(load) : load;
    const RunLog log = sweep_.run(load, seed, false);
    if (sweep_.trend_of(log).keeps_up) {
      if (rate) {  // One run's test sees no trend so close to capacity.
        return {KneeStatus::kFound, *rate, 1};
      }
      low = load;
      load *= kFollowStep;
      continue;
    }
    if (sweep_.closed()) {
      return {KneeStatus::kFound, bisect_trend(seed, std::max(low, 1.0), load), 0};
    }
    const std::optional<double> here = completion_rate(log);
    if (here && (rate || load <= kFarBeyond * *here)) {
      return {KneeStatus::kFound, std::min(*here, load), 1};
    }
    rate = here;
    load = rate ? kJustBeyond * *rate : load / kFollowStep;
  }
  return low > 0 ? SeedKnee{KneeStatus::kAboveRange, low, 0} : SeedKnee{KneeStatus::kBelowRange, load, 0};
}

SeedKnee KneeRoots::slo_near(std::size_t seed, double near) {
  const auto met = [](const Sample& at) { return at.margin && *at.margin <= 0; };
  Sample here = sample(seed, sweep_.closed() ? std::max(1.0, std::round(near)) : near);
  std::vector<Sample> samples{here};
  const bool up = met(here);
  double step = kFirstStep;
  for (int i = 0; i < kMostFollows; ++i) {
    double load = up ? here.load * step : here.load / step;
    load = sweep_.closed() ? (up ? std::ceil(load) : std::floor(load)) : load;
    if (load <= 0) {
      break;
    }
    const Sample next = sample(seed, load);
    samples.push_back(next);
    if (met(next) != up) {
      Bracket bracket = up ? Bracket{here, next} : Bracket{next, here};
      close(seed, bracket, samples);
      const double knee = root_of(bracket);
      return {KneeStatus::kFound, knee, sensitivity(knee, samples)};
    }
    here = next;
    step = std::min(step * step, 2.0);
  }
  return {up ? KneeStatus::kAboveRange : KneeStatus::kBelowRange, here.load, 0};
}

}  // namespace kneepoint::sim
