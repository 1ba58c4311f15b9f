#include "sim/slo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/assert.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "sim/choices.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();
// A margin that stands for "missed by any measure".
constexpr double kLargestMargin = 20.0;
constexpr double kNsPerMs = 1e6;

constexpr std::array kMetrics{
    Choice<SloMetric>{"ttft", SloMetric::kTtft}, Choice<SloMetric>{"tpot", SloMetric::kTpot},
    Choice<SloMetric>{"itl", SloMetric::kItl}, Choice<SloMetric>{"e2el", SloMetric::kE2el}};

std::optional<double> number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool whole = !text.empty() && *end == '\0' && std::isfinite(value);
  return whole ? std::optional(value) : std::nullopt;
}

[[noreturn]] void refuse(const std::string& text) {
  throw UsageError(
      fmt::format("--slo '{}': write METRIC:STAT:MS, as in ttft:p99:500 or tpot:mean:50, or goodput:SHARE, "
                  "as in goodput:0.95",
                  text));
}

void read_stat(const std::string& text, const std::string& stat, SloLimit& limit) {
  limit.mean = stat == "mean";
  if (limit.mean) {
    return;
  }
  const std::optional<double> percentile =
      stat == "median" ? std::optional(50.0)
                       : (stat.rfind('p', 0) == 0 ? number_of(stat.substr(1)) : std::nullopt);
  if (!percentile || *percentile < 0 || *percentile > 100) {
    throw UsageError(fmt::format(
        "--slo '{}': the statistic '{}' is not known; give mean, median or p0 to p100", text, stat));
  }
  limit.percentile = *percentile;
}

// Whether a request says anything about load.
bool counts(const RequestLine& line) {
  return line.over && line.end != RequestEnd::kPromptTooLong && line.end != RequestEnd::kNeverFits &&
         line.end != RequestEnd::kIgnored;
}

// Milliseconds of one request, nothing if it has no such time.
std::optional<double> ms_of(const RequestLine& line, SloMetric metric, const LogView& view) {
  if (!line.completed()) {
    return kEndless;
  }
  const auto stretched = [&](std::int64_t ns, std::int64_t front_end) {
    return (static_cast<double>(front_end) + view.slowdown * static_cast<double>(ns - front_end)) / kNsPerMs;
  };
  switch (metric) {
    case SloMetric::kTtft:
      return stretched(line.ttft_ns, view.front_end_ns);
    case SloMetric::kE2el:
      return stretched(line.e2e_ns, view.front_end_ns);
    case SloMetric::kTpot:
      return line.output_tokens > 1
                 ? std::optional(stretched(line.e2e_ns - line.ttft_ns, 0) / (line.output_tokens - 1))
                 : std::nullopt;
    case SloMetric::kItl:
      break;  // Its gaps are kept apart.
  }
  return std::nullopt;
}

bool is_good(const RequestLine& line, const GoodputLimits& limits, const LogView& view) {
  const auto within = [&](SloMetric metric, const std::optional<SimDuration>& limit) {
    const std::optional<double> ms = ms_of(line, metric, view);
    return !limit || !ms || *ms <= to_ms(*limit);
  };
  return line.completed() && within(SloMetric::kTtft, limits.ttft) && within(SloMetric::kTpot, limits.tpot) &&
         within(SloMetric::kE2el, limits.e2el);
}

}  // namespace

bool Slo::needs_gaps() const {
  return std::any_of(limits.begin(), limits.end(),
                     [](const SloLimit& limit) { return limit.metric == SloMetric::kItl; });
}

// More requests over the limit than the percentile allows miss it, however the run
// goes on. Twice as many and a few, as the warm-up is not cut yet.
std::optional<StopRule> Slo::stop_rule(std::int64_t requests) const {
  std::optional<StopRule> tightest;
  for (const SloLimit& limit : limits) {
    if (limit.metric != SloMetric::kTtft) {
      continue;
    }
    // A mean over the limit is certain once all of the run's requests average it.
    const double share = limit.mean ? 1.0 : 1 - limit.percentile / 100;
    const double limit_ms = limit.mean ? 2 * limit.limit_ms : limit.limit_ms;
    const StopRule rule{std::llround(limit_ms * kNsPerMs),
                        std::llround((limit.mean ? 0.5 : 2 * share) * static_cast<double>(requests)) + 16};
    if (rule.misses < requests && (!tightest || rule.misses < tightest->misses)) {
      tightest = rule;
    }
  }
  return tightest;
}

void add_slo(const std::string& text, Slo& slo) {
  const std::size_t first = text.find(':');
  if (first == std::string::npos) {
    refuse(text);
  }
  const std::string word = text.substr(0, first);
  const std::string rest = text.substr(first + 1);
  if (word == "goodput") {
    const std::optional<double> share = number_of(rest);
    if (!share || !(*share > 0) || *share > 1) {
      throw UsageError(fmt::format(
          "--slo '{}': a share of requests above 0, at most 1, is needed, as in goodput:0.95", text));
    }
    slo.good_share = *share;
    slo.texts.push_back(text);
    return;
  }
  const std::size_t second = rest.find(':');
  SloLimit limit;
  limit.metric = choose(fmt::format("--slo '{}': the metric", text), word, kMetrics);
  if (second == std::string::npos) {
    refuse(text);
  }
  read_stat(text, rest.substr(0, second), limit);
  const std::optional<double> ms = number_of(rest.substr(second + 1));
  if (!ms || !(*ms > 0)) {
    throw UsageError(fmt::format("--slo '{}': milliseconds above 0 are needed after the second colon", text));
  }
  limit.limit_ms = *ms;
  slo.limits.push_back(limit);
  slo.texts.push_back(text);
}

std::vector<double> sorted_ms(const LogView& view, SloMetric metric) {
  std::vector<double> values;
  if (metric == SloMetric::kItl) {
    for (const auto& [request, ns] : view.log.gaps) {
      const RequestLine& line = view.log.lines[static_cast<std::size_t>(request)];
      if (static_cast<std::size_t>(request) >= view.warm_up && line.completed()) {
        values.push_back(view.slowdown * static_cast<double>(ns) / kNsPerMs);
      }
    }
  } else {
    for (std::size_t i = view.warm_up; i < view.log.lines.size(); ++i) {
      const RequestLine& line = view.log.lines[i];
      if (!counts(line)) {
        continue;
      }
      if (const std::optional<double> ms = ms_of(line, metric, view)) {
        values.push_back(*ms);
      }
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

double percentile_of(const std::vector<double>& sorted, double percentile) {
  BOOST_ASSERT(!sorted.empty());
  const double position = percentile / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const double fraction = position - static_cast<double>(below);
  if (fraction == 0 || below + 1 == sorted.size()) {
    return sorted[below];
  }
  return sorted[below + 1] == kEndless ? kEndless
                                       : sorted[below] + fraction * (sorted[below + 1] - sorted[below]);
}

double good_share(const LogView& view, const GoodputLimits& limits) {
  std::int64_t all = 0;
  std::int64_t good = 0;
  for (std::size_t i = view.warm_up; i < view.log.lines.size(); ++i) {
    if (counts(view.log.lines[i])) {
      ++all;
      good += is_good(view.log.lines[i], limits, view) ? 1 : 0;
    }
  }
  return all > 0 ? static_cast<double>(good) / static_cast<double>(all) : 1.0;
}

std::optional<double> slo_margin(const LogView& view, const Slo& slo) {
  BOOST_ASSERT(slo.any());
  if (view.log.stopped) {
    return std::nullopt;
  }
  std::optional<double> worst;
  const auto note = [&](double ratio) {
    const double margin = std::clamp(std::log(std::max(ratio, 1e-12)), -kLargestMargin, kLargestMargin);
    worst = worst ? std::max(*worst, margin) : margin;
  };
  for (const SloLimit& limit : slo.limits) {
    const std::vector<double> values = sorted_ms(view, limit.metric);
    if (!values.empty()) {
      note((limit.mean ? mean_of(values) : percentile_of(values, limit.percentile)) / limit.limit_ms);
    }
  }
  if (slo.good_share) {
    note(*slo.good_share / std::max(good_share(view, slo.good), 1e-6));
  }
  return worst;
}

}  // namespace kneepoint::sim
