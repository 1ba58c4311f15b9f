#include "traces/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/gamma.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "traces/statistics.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

using Doubles = std::vector<double>;

// A family of intervals of mean 1, by its shape.
struct Family {
  std::string_view process;
  double least_shape, most_shape;  // Equal: it has none.
  double (*log_density)(double shape, double x);
  double (*cdf)(double shape, double x);
};

double weibull_scale(double k) {
  return 1 / std::tgamma(1 + 1 / k);
}

const Family kFamilies[] = {
    {"gamma", 0.02, 50,
     [](double k, double x) { return k * std::log(k) + (k - 1) * std::log(x) - k * x - std::lgamma(k); },
     [](double k, double x) { return boost::math::gamma_p(k, k * x); }},
    {"pareto", 1.02, 50,
     [](double a, double x) { return std::log(a / (a - 1)) - (a + 1) * std::log1p(x / (a - 1)); },
     [](double a, double x) { return 1 - std::pow(1 + x / (a - 1), -a); }},
    {"poisson", 1, 1, [](double, double x) { return -x; }, [](double, double x) { return 1 - std::exp(-x); }},
    {"weibull", 0.15, 20,
     [](double k, double x) {
       const double z = x / weibull_scale(k);
       return std::log(k / weibull_scale(k)) + (k - 1) * std::log(z) - std::pow(z, k);
     },
     [](double k, double x) { return 1 - std::exp(-std::pow(x / weibull_scale(k), k)); }},
};

// Largest distance of a sorted sample from a distribution function.
double ks_distance(const Doubles& sorted, const std::function<double(double)>& cdf) {
  const auto n = static_cast<double>(sorted.size());
  double worst = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double f = cdf(sorted[i]);
    worst = std::max({worst, f - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - f});
  }
  return worst;
}

double mean_log_density(const Family& family, double shape, const Doubles& sample) {
  double sum = 0;
  for (const double x : sample) sum += family.log_density(shape, x);
  return sum / static_cast<double>(sample.size());
}

// The shape of largest likelihood: golden section on its logarithm.
double best_shape(const Family& family, const Doubles& sample) {
  constexpr double kGolden = 0.6180339887498949;
  double low = std::log(family.least_shape), high = std::log(family.most_shape);
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  const auto value = [&](double log_shape) { return mean_log_density(family, std::exp(log_shape), sample); };
  double at_a = value(a), at_b = value(b);
  for (int i = 0; i < 40; ++i) {
    if (at_a > at_b) {
      high = std::exchange(b, a);
      at_b = at_a;
      a = high - kGolden * (high - low);
      at_a = value(a);
    } else {
      low = std::exchange(a, b);
      at_a = at_b;
      b = low + kGolden * (high - low);
      at_b = value(b);
    }
  }
  return std::exp((low + high) / 2);
}

// Every k-th of a sorted sample, at most `most` of them: enough for a shape.
Doubles thinned(const Doubles& sorted, std::size_t most) {
  const std::size_t step = (sorted.size() + most - 1) / most;
  Doubles kept;
  for (std::size_t i = step / 2; i < sorted.size(); i += step) kept.push_back(sorted[i]);
  return kept;
}

std::vector<IntervalFit> fit_intervals(const Doubles& sorted) {
  constexpr std::size_t kEnough = 100'000;
  const Doubles sample = thinned(sorted, kEnough);
  std::vector<IntervalFit> fits;
  for (const Family& family : kFamilies) {
    const double shape =
        family.least_shape < family.most_shape ? best_shape(family, sample) : family.least_shape;
    fits.push_back({family.process, shape, mean_log_density(family, shape, sample),
                    ks_distance(sample, [&](double x) { return family.cdf(shape, x); })});
  }
  // Poisson is gamma and weibull with shape 1: it comes first unless they gain more than chance would.
  const double chance = 2 / static_cast<double>(sorted.size());
  std::ranges::stable_sort(fits, std::greater<>(), [chance](const IntervalFit& fit) {
    return fit.log_likelihood - (fit.process == "poisson" ? 0 : chance);
  });
  return fits;
}

double quantile(const Doubles& sorted, double p) {
  return sorted[std::min(sorted.size() - 1,
                         static_cast<std::size_t>(p * static_cast<double>(sorted.size())))];
}

struct Counted {
  double mean = 0;
  double dispersion = 0;
  Doubles counts;
};

Counted window_counts(const std::vector<std::int64_t>& arrivals, double window_ns) {
  Counted counted;
  const auto windows =
      static_cast<std::size_t>(static_cast<double>(arrivals.back() - arrivals.front()) / window_ns);
  counted.counts.assign(std::max<std::size_t>(windows, 1), 0);
  for (const std::int64_t arrival : arrivals) {
    const auto i = static_cast<std::size_t>(static_cast<double>(arrival - arrivals.front()) / window_ns);
    if (i < counted.counts.size()) counted.counts[i] += 1;
  }
  const auto n = static_cast<double>(counted.counts.size());
  counted.mean = std::accumulate(counted.counts.begin(), counted.counts.end(), 0.0) / n;
  double squares = 0;
  for (const double count : counted.counts) squares += (count - counted.mean) * (count - counted.mean);
  counted.dispersion = counted.mean > 0 ? squares / n / counted.mean : 0;
  return counted;
}

// Busy windows and quiet ones: mean counts, and mean lengths of their runs.
std::string two_states(const Counted& counted, double window_s) {
  double sum[2] = {0, 0}, windows[2] = {0, 0}, runs[2] = {0, 0};
  int before = -1;
  for (const double count : counted.counts) {
    const int busy = count > counted.mean ? 1 : 0;
    sum[busy] += count;
    windows[busy] += 1;
    runs[busy] += busy != before ? 1 : 0;
    before = busy;
  }
  if (windows[0] == 0 || windows[1] == 0) return "";
  const auto weight = [&](int i) { return sum[i] / windows[i] / counted.mean; };
  const auto seconds = [&](int i) { return windows[i] / runs[i] * window_s; };
  return fmt::format("{:.3g}:{:.3g},{:.3g}:{:.3g}", weight(0), seconds(0), weight(1), seconds(1));
}

// A lognormal or a uniform, whichever lies closer to the lengths.
LengthFit fit_lengths(const LengthCounts& lengths) {
  const std::int64_t low = lengths.percentile(0), high = lengths.percentile(1);
  if (low == high) return {fmt::format("{}", low), 0};
  double sum = 0, squares = 0;
  const auto n = static_cast<double>(lengths.count());
  for (const auto& [length, times] : lengths.values()) sum += static_cast<double>(times) * std::log(length);
  const double mu = sum / n;
  for (const auto& [length, times] : lengths.values()) {
    squares += static_cast<double>(times) * (std::log(length) - mu) * (std::log(length) - mu);
  }
  const double variance = squares / n;
  const boost::math::normal_distribution<> normal(mu, std::sqrt(variance));
  // Lengths are whole: the model gives all below length + 1/2.
  const auto distance = [&](const std::function<double(double)>& cdf) {
    double worst = 0, below = 0;
    for (const auto& [length, times] : lengths.values()) {
      below += static_cast<double>(times);
      worst = std::max(worst, std::fabs(below / n - cdf(static_cast<double>(length))));
    }
    return worst;
  };
  const double from_lognormal =
      distance([&](double x) { return boost::math::cdf(normal, std::log(x + 0.5)); });
  const double from_uniform = distance(
      [&](double x) { return (x - static_cast<double>(low) + 1) / static_cast<double>(high - low + 1); });
  if (from_uniform < from_lognormal) return {fmt::format("uniform:{}:{}", low, high), from_uniform};
  return {fmt::format("lognormal:{:.5g}:{:.3g}", std::max(1.0, std::exp(mu + variance / 2)),
                      std::sqrt(std::expm1(variance))),
          from_lognormal};
}

// Normal scores of middle ranks: equal lengths have equal scores.
Doubles normal_scores(const std::vector<std::int32_t>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  Doubles scores(values.size());
  const boost::math::normal_distribution<> normal;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = (static_cast<double>(begin) + static_cast<double>(end)) / 2;
    const double score = boost::math::quantile(normal, rank / static_cast<double>(values.size()));
    for (std::size_t i = begin; i < end; ++i) scores[order[i]] = score;
    begin = end;
  }
  return scores;
}

double correlation(const Doubles& x, const Doubles& y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  return xx == 0 || yy == 0 ? 0 : xy / std::sqrt(xx * yy);
}

// Intervals in units of their mean, sorted. Equal stamps are a coarse clock's:
// they are spread evenly over its tick, the shortest time between two others.
Doubles scaled_intervals(const std::vector<std::int64_t>& arrivals, std::uint64_t& zeros) {
  std::int64_t tick = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    if (arrivals[i] > arrivals[i - 1]) tick = std::min(tick, arrivals[i] - arrivals[i - 1]);
  }
  Doubles times;
  for (std::size_t begin = 0; begin < arrivals.size();) {
    std::size_t end = begin;
    while (end < arrivals.size() && arrivals[end] == arrivals[begin]) ++end;
    const double step = static_cast<double>(tick) / static_cast<double>(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      times.push_back(static_cast<double>(arrivals[i] - arrivals.front()) +
                      step * static_cast<double>(i - begin));
    }
    zeros += end - begin - 1;
    begin = end;
  }
  const double mean = times.back() / static_cast<double>(times.size() - 1);
  Doubles intervals;
  for (std::size_t i = 1; i < times.size(); ++i) intervals.push_back((times[i] - times[i - 1]) / mean);
  std::ranges::sort(intervals);
  return intervals;
}

void fit_times(const std::vector<std::int64_t>& arrivals, TraceFit& fit) {
  const Doubles intervals = scaled_intervals(arrivals, fit.zero_intervals);
  const auto n = static_cast<double>(intervals.size());
  const double span_s = static_cast<double>(arrivals.back() - arrivals.front()) * 1e-9;
  fit.rate = n / span_s;
  fit.median_over_mean = quantile(intervals, 0.5);
  fit.p99_over_mean = quantile(intervals, 0.99);
  fit.p999_over_mean = quantile(intervals, 0.999);
  fit.intervals = fit_intervals(intervals);
  const double window_s = 20 / fit.rate;
  const Counted counted = window_counts(arrivals, window_s * 1e9);
  fit.dispersion = counted.dispersion;
  // A renewal process of this CV has counts of dispersion near CV^2, its intervals no correlation.
  const bool correlated = fit.autocorrelation > 4 / std::sqrt(n);
  const bool dispersed = fit.dispersion > 2 * std::max(1.0, fit.cv * fit.cv);
  if (correlated || dispersed) fit.states = two_states(counted, window_s);
}

}  // namespace

TraceFit fit_trace(RecordSource& records, const std::string& name) {
  std::vector<std::int64_t> arrivals;
  std::vector<std::int32_t> prompts, outputs;
  IntervalStatistics intervals;
  LengthCounts prompt_counts, output_counts;
  for (TraceRecord record; records.next(record);) {
    arrivals.push_back(record.arrival.count());
    prompts.push_back(static_cast<std::int32_t>(record.prompt_tokens));
    outputs.push_back(static_cast<std::int32_t>(record.output_tokens));
    intervals.add(record.arrival);
    prompt_counts.add(record.prompt_tokens);
    output_counts.add(record.output_tokens);
  }
  if (arrivals.size() < 10 || arrivals.back() == arrivals.front()) {
    throw TraceError(
        fmt::format("{}: a fit needs at least 10 requests that do not all arrive at once", name));
  }
  TraceFit fit;
  fit.num_requests = arrivals.size();
  fit.cv = intervals.cv();
  fit.autocorrelation = intervals.autocorrelation();
  fit_times(arrivals, fit);
  fit.prompt = fit_lengths(prompt_counts);
  fit.output = fit_lengths(output_counts);
  fit.length_correlation = correlation(normal_scores(prompts), normal_scores(outputs));
  return fit;
}

std::string TraceFit::command() const {
  const IntervalFit& best = intervals.front();
  std::string arrivals = std::string(best.process);
  if (!states.empty()) {
    arrivals = "mmpp --states " + states;
  } else if (best.process == "gamma") {
    arrivals += fmt::format(" --burstiness {:.4g}", best.shape);
  } else if (best.process != "poisson") {
    arrivals += fmt::format(" --shape {:.4g}", best.shape);
  }
  std::string tied;
  if (std::fabs(length_correlation) >= 0.01)
    tied = fmt::format(" --length-correlation {:.2f}", std::clamp(length_correlation, -0.99, 0.99));
  return fmt::format(
      "traces generate --arrivals {} --rate {:.5g} --requests {} --prompt-tokens {} --output-tokens {}{} "
      "--seed 1 OUT.pb",
      arrivals, rate, num_requests, prompt.text, output.text, tied);
}

}  // namespace kneepoint::traces
