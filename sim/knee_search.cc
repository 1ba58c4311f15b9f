#include "sim/knee_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/assert.hpp>
#include <cmath>
#include <limits>

#include "sim/interval.h"
#include "sim/knee_points.h"
#include "sim/knee_roots.h"
#include "sim/knee_sweep.h"
#include "sim/kneedle.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::int64_t kProbeRequests = 2000;
// A full server is full of long answers, and takes as long as these to become so: a
// run must outlast the longest hundredth of its requests several times.
constexpr double kTurnovers = 8;
// Loads of the first sweep, as shares of the guessed capacity.
constexpr std::array kShares{0.15, 0.35, 0.55, 0.75, 0.88, 0.96, 1.1, 1.3};
constexpr double kFirstConcurrency = 32;  // Powers of two up to here.
constexpr int kMostWidenings = 7;
// Longer runs: by how much, and a little more, as a half-width is chance itself.
constexpr double kMargin = 1.3;
constexpr double kLeastLonger = 1.5;
constexpr double kMostLonger = 4;
constexpr double kFollowTolerance = 0.02;
constexpr double kWidestFollow = 16;  // How far from where it was a knee is followed.
constexpr double kMostConcurrency = 4096;
constexpr double kWidenUp = 2;
constexpr double kWidenDown = 1.0 / 3;
// No interval is narrower than what the search resolves.
constexpr double kResolution = 0.002;
constexpr double kWholeResolution = 0.5;  // Of a closed loop's whole loads.
// A load lower still would not help where the margin has stopped moving.
constexpr double kSettledMargin = 0.02;

// Where capacity is: completions over time while the server empties its queue, of
// the middle half of the requests.
double guess_capacity(KneeLab& lab, std::int64_t& requests, std::int64_t max_requests) {
  lab.prepare(requests);
  const RunLog log = lab.run({kInfinity, 0, std::min(requests, kProbeRequests), std::nullopt});
  std::vector<std::int64_t> ends;
  std::vector<double> served_s;  // From a request's first step to its last token.
  for (const RequestLine& line : log.lines) {
    if (line.completed()) {
      ends.push_back(line.sent_ns + line.e2e_ns);
      served_s.push_back(static_cast<double>(line.e2e_ns - std::max<std::int64_t>(line.queue_ns, 0)) / 1e9);
    }
  }
  if (ends.empty()) {
    throw UsageError(
        "knee: the server completes no request of this workload at any load; "
        "`simulate` with the same flags says why");
  }
  std::sort(ends.begin(), ends.end());
  const std::int64_t early = ends[ends.size() / 4];
  const std::int64_t late = ends[ends.size() * 3 / 4];
  const std::int64_t span = late > early ? late - early : std::max<std::int64_t>(ends.back(), 1) / 2;
  const double rate = static_cast<double>(ends.size()) / 2 * 1e9 / static_cast<double>(span);
  if (log.summary.peak_waiting > 0) {
    std::sort(served_s.begin(), served_s.end());
    requests = std::clamp(std::lround(kTurnovers * percentile_of(served_s, 99) * rate), requests,
                          std::max(requests, max_requests));
  }
  return rate;
}

// One answer out of the seeds' own.
Knee knee_of_seeds(KneeKind kind, const std::vector<SeedKnee>& by_seed, bool closed) {
  Knee knee;
  knee.kind = kind;
  std::array<std::size_t, 4> votes{};
  double sensitivity = 0;
  for (const SeedKnee& one : by_seed) {
    ++votes[static_cast<std::size_t>(one.status)];
    if (one.status == KneeStatus::kFound) {
      knee.by_seed.push_back(one.load);
      sensitivity += one.step_time_sensitivity;
    }
  }
  knee.status = static_cast<KneeStatus>(std::max_element(votes.begin(), votes.end()) - votes.begin());
  if (!knee.found()) {
    knee.by_seed.clear();
    const auto same = std::find_if(by_seed.begin(), by_seed.end(),
                                   [&](const SeedKnee& one) { return one.status == knee.status; });
    knee.load = same->load;
    return knee;
  }
  const Estimate estimate = mean_with_interval(knee.by_seed);
  knee.load = estimate.value;
  knee.arrivals_half_width =
      std::max(estimate.half_width, closed ? kWholeResolution : kResolution * knee.load);
  knee.step_time_sensitivity = sensitivity / static_cast<double>(knee.by_seed.size());
  return knee;
}

class Search {
 public:
  Search(KneeLab& lab, const SearchOptions& options, std::int64_t requests, double guess)
      : lab_(lab), options_(options), guess_(guess), sweep_(lab, options, requests), roots_(sweep_) {}

  SearchResult find();

 private:
  [[nodiscard]] std::vector<double> first_loads() const;
  void widen();
  bool widen_up();
  bool widen_down();
  [[nodiscard]] bool unmet_at_lowest() const;
  void find_saturation();
  void find_slo();
  void find_elbow_knee();
  [[nodiscard]] std::vector<CurvePoint> curve_of(std::size_t seed) const;
  void refine_elbow();
  [[nodiscard]] Knee make_knee(KneeKind kind, const std::vector<SeedKnee>& by_seed) const {
    return knee_of_seeds(kind, by_seed, sweep_.closed());
  }

  KneeLab& lab_;
  const SearchOptions& options_;
  double guess_;
  Sweep sweep_;
  KneeRoots roots_;
  std::vector<SeedKnee> saturation_;  // By seed.
  Knee saturation_knee_, slo_knee_, elbow_knee_;
};

std::vector<double> Search::first_loads() const {
  std::vector<double> loads;
  const double least = options_.min_load.value_or(0);
  const double most = options_.max_load.value_or(kInfinity);
  const auto add = [&](double load) {
    if (least <= load && load <= most) {
      loads.push_back(load);
    }
  };
  if (sweep_.closed()) {
    for (double load = 1; load <= options_.max_load.value_or(kFirstConcurrency); load *= 2) {
      add(load);
    }
  } else {
    for (const double share : kShares) {
      add(share * guess_);
    }
  }
  if (options_.min_load) loads.push_back(*options_.min_load);
  if (options_.max_load) loads.push_back(*options_.max_load);
  if (loads.size() < 5 &&
      (options_.min_load || options_.max_load)) {  // A range of its own: evenly through it.
    const double high = options_.max_load.value_or(4 * least);
    const double low = options_.min_load.value_or(high / 8);
    for (const double share : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      const double load = low + share * (high - low);
      loads.push_back(sweep_.closed() ? std::max(1.0, std::round(load)) : load);
    }
  }
  std::sort(loads.begin(), loads.end());
  loads.erase(std::unique(loads.begin(), loads.end()), loads.end());
  return loads;
}

bool Search::widen_up() {
  const Column& top = sweep_.columns().back();
  const bool slo_open =
      sweep_.closed() && options_.slo.any() &&
      std::any_of(top.margins.begin(), top.margins.end(), [](const auto& m) { return m && *m <= 0; });
  const bool saturated = !top.keeps_up();
  const double next = std::min(kWidenUp * top.load,
                               options_.max_load.value_or(sweep_.closed() ? kMostConcurrency : kInfinity));
  if ((saturated && !slo_open) || next <= top.load) {
    return false;
  }
  sweep_.add({next});
  return true;
}

// Some seed misses the SLO at the lowest load, and less load still helps.
bool Search::unmet_at_lowest() const {
  const std::vector<Column>& columns = sweep_.columns();
  for (std::size_t seed = 0; seed < columns.front().margins.size(); ++seed) {
    const std::optional<double>& lowest = columns.front().margins[seed];
    const std::optional<double>& next = columns[std::min<std::size_t>(1, columns.size() - 1)].margins[seed];
    const bool missed = !lowest || *lowest > 0;
    const bool settled = lowest && next && *next - *lowest < kSettledMargin;
    if (missed && !settled) {
      return true;
    }
  }
  return false;
}

bool Search::widen_down() {
  const Column& lowest = sweep_.columns().front();
  const bool saturated = !lowest.keeps_up();
  if (options_.min_load || sweep_.closed() || !(saturated || unmet_at_lowest())) {
    return false;
  }
  sweep_.add({kWidenDown * lowest.load});
  return true;
}

void Search::widen() {
  for (int i = 0; i < kMostWidenings && widen_up(); ++i) {
  }
  for (int i = 0; i < kMostWidenings && widen_down(); ++i) {
  }
}

void Search::find_saturation() {
  saturation_.resize(lab_.seeds());
  lab_.for_each(lab_.seeds(), [this](std::size_t seed) { saturation_[seed] = roots_.saturation(seed); });
  saturation_knee_ = make_knee(KneeKind::kSaturation, saturation_);
}

void Search::find_slo() {
  std::vector<SeedKnee> by_seed(lab_.seeds());
  lab_.for_each(lab_.seeds(), [&](std::size_t seed) { by_seed[seed] = roots_.slo(seed, saturation_[seed]); });
  slo_knee_ = make_knee(KneeKind::kSlo, by_seed);
}

// p99 TTFT over load: in an open loop up to saturation, beyond which it is no more
// than the length of the run.
std::vector<CurvePoint> Search::curve_of(std::size_t seed) const {
  std::vector<CurvePoint> curve;
  for (const Column& column : sweep_.columns()) {
    const bool settled =
        sweep_.closed() ||
        (column.keeps_up() && !(saturation_knee_.found() && column.load > saturation_knee_.load));
    const std::vector<double> ttft = sorted_ms({column.logs[seed], column.warm_up, 1, 0}, SloMetric::kTtft);
    if (settled && !ttft.empty()) {
      curve.push_back({column.load, std::min(percentile_of(ttft, 99), 1e12)});
    }
  }
  return curve;
}

// Two more loads around the elbow of the mean curve.
void Search::refine_elbow() {
  std::vector<CurvePoint> mean = curve_of(0);
  for (std::size_t seed = 1; seed < lab_.seeds(); ++seed) {
    const std::vector<CurvePoint> curve = curve_of(seed);
    for (std::size_t i = 0; i < std::min(mean.size(), curve.size()); ++i) {
      mean[i].y += curve[i].y;
    }
  }
  const std::optional<double> elbow = find_elbow(mean);
  if (!elbow) {
    return;
  }
  std::size_t right = 1;
  while (right + 1 < mean.size() && mean[right].x < *elbow) {
    ++right;
  }
  std::vector<double> loads;
  const auto between = [&](std::size_t i) {
    const double middle = (mean[i].x + mean[i + 1].x) / 2;
    loads.push_back(sweep_.closed() ? std::floor(middle) : middle);
  };
  between(right - 1);
  if (right + 1 < mean.size()) {
    between(right);
  }
  sweep_.add(loads);
}

void Search::find_elbow_knee() {
  refine_elbow();
  std::vector<SeedKnee> by_seed(lab_.seeds());
  for (std::size_t seed = 0; seed < lab_.seeds(); ++seed) {
    if (const std::optional<double> elbow = find_elbow(curve_of(seed))) {
      by_seed[seed] = {KneeStatus::kFound, *elbow, sweep_.closed() ? 0.0 : 1.0};
    }
  }
  elbow_knee_ = make_knee(KneeKind::kElbow, by_seed);
  if (elbow_knee_.found()) {  // No finer than the loads around it.
    const std::vector<CurvePoint> curve = curve_of(0);
    std::size_t right = 1;
    while (right + 1 < curve.size() && curve[right].x < elbow_knee_.load) {
      ++right;
    }
    elbow_knee_.arrivals_half_width =
        std::max(elbow_knee_.arrivals_half_width, (curve[right].x - curve[right - 1].x) / 2);
  }
}

SearchResult Search::find() {
  sweep_.add(first_loads());
  widen();
  find_saturation();
  if (options_.slo.any()) {
    find_slo();
  }
  find_elbow_knee();

  SearchResult result;
  result.requests_a_run = sweep_.requests_at(sweep_.columns().back().load);
  result.points = make_points(lab_, sweep_, options_, saturation_knee_);
  if (options_.slo.any()) {
    result.knees.push_back(slo_knee_);
  }
  result.knees.push_back(elbow_knee_);
  result.knees.push_back(saturation_knee_);
  for (Knee& knee : result.knees) {
    knee.requests_a_run = sweep_.requests_at(std::max(knee.load, 1.0));
  }
  result.first_knees = result.knees;
  result.warm_up_at_knees = sweep_.warm_up_at(result.knees.front().load);
  result.lag_at_rest = sweep_.lag_at_rest();
  return result;
}

bool is_precise(const Knee& knee, double precision, bool closed) {
  const double wanted = std::max(precision * knee.load, closed ? 2 * kWholeResolution : 0.0);
  return !knee.found() || knee.kind == KneeKind::kElbow || knee.arrivals_half_width <= wanted;
}

// Reads `knee` again from runs `factor` times as long as its last.
void read_again(KneeLab& lab, const SearchOptions& options, const SearchResult& result, double factor,
                Knee& knee) {
  const bool closed = lab.axis() == LoadAxis::kConcurrency;
  SearchOptions longer = options;
  const double times = factor * static_cast<double>(knee.requests_a_run);
  const auto requests = std::min(std::max(options.max_requests, options.requests), std::lround(times));
  if (closed) {
    longer.requests_a_slot = std::max<std::int64_t>(requests / std::lround(std::max(knee.load, 1.0)), 1);
  }
  std::vector<SeedKnee> by_seed =
      follow_knee(lab, longer, knee.kind, std::vector<double>(lab.seeds(), knee.load),
                  {requests, result.warm_up_at_knees, result.lag_at_rest});
  const auto saturation = std::find_if(result.knees.begin(), result.knees.end(),
                                       [](const Knee& k) { return k.kind == KneeKind::kSaturation; });
  if (!closed && knee.kind == KneeKind::kSlo && saturation->found()) {
    for (std::size_t seed = 0; seed < by_seed.size() && seed < saturation->by_seed.size(); ++seed) {
      by_seed[seed].load = std::min(by_seed[seed].load, saturation->by_seed[seed]);
    }
  }
  Knee again = knee_of_seeds(knee.kind, by_seed, closed);
  again.requests_a_run = requests;
  knee = again.found() ? again : knee;
  knee.requests_a_run = requests;
}

}  // namespace

SearchResult search_knees(KneeLab& lab, const SearchOptions& options) {
  const bool closed = lab.axis() == LoadAxis::kConcurrency;
  std::int64_t requests = options.requests;
  double guess = options.guess.value_or(0);
  if (!closed && !options.guess) {
    guess = guess_capacity(lab, requests, options.max_requests);
  }
  SearchResult result = Search(lab, options, requests, guess).find();
  const std::int64_t most = std::max(options.max_requests, options.requests);
  // Saturation first: it caps the SLO's.
  for (auto knee = result.knees.rbegin(); knee != result.knees.rend(); ++knee) {
    while (!is_precise(*knee, options.precision, closed) && knee->requests_a_run < most) {
      // Half-widths fall as the root of the length.
      const double ratio = knee->arrivals_half_width / (options.precision * knee->load);
      read_again(lab, options, result, std::clamp(kMargin * ratio * ratio, kLeastLonger, kMostLonger), *knee);
    }
  }
  result.precise = std::all_of(result.knees.begin(), result.knees.end(),
                               [&](const Knee& knee) { return is_precise(knee, options.precision, closed); });
  return result;
}

std::vector<SeedKnee> follow_knee(KneeLab& lab, const SearchOptions& options, KneeKind kind,
                                  const std::vector<double>& near, const FollowBasis& basis) {
  BOOST_ASSERT(near.size() == lab.seeds());
  Sweep sweep(lab, options, basis.requests);
  sweep.set_warm_up(basis.warm_up);
  sweep.set_lag_at_rest(basis.lag_at_rest);
  lab.prepare(sweep.requests_at(kWidestFollow * *std::max_element(near.begin(), near.end())));
  KneeRoots roots(sweep, kFollowTolerance);
  std::vector<SeedKnee> found(lab.seeds());
  lab.for_each(lab.seeds(), [&](std::size_t seed) {
    found[seed] =
        kind == KneeKind::kSlo ? roots.slo_near(seed, near[seed]) : roots.saturation_near(seed, near[seed]);
  });
  return found;
}

}  // namespace kneepoint::sim
