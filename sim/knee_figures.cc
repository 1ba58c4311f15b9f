// The figures of a knee search's report.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>

#include "sim/knee_page.h"
#include "sim/report.h"

namespace kneepoint::sim {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

std::string capital(std::string text) {
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}


std::string load_axis_name(const KneeResult& r) {
  return r.axis == LoadAxis::kRate ? "Load (req/s)" : "Load (requests in flight)";
}

Tone tone_of(KneeKind kind) {
  return kind == KneeKind::kSlo ? Tone::kGreen : kind == KneeKind::kElbow ? Tone::kPurple : Tone::kRed;
}

/// First load that the server does not keep up with, if one was tried.
std::optional<double> beyond_from(const KneeResult& r) {
  const Knee* const saturation = r.find(KneeKind::kSaturation);
  if (saturation != nullptr && saturation->found()) {
    return saturation->load;
  }
  const auto first =
      std::find_if(r.points.begin(), r.points.end(), [](const LoadPoint& p) { return p.beyond_saturation; });
  return first != r.points.end() ? std::optional(first->load) : std::nullopt;
}

/// An empty figure over load, what lies beyond saturation shaded.
Figure over_load(const KneeResult& r, std::string title, std::string about, std::string y_label, bool log) {
  Figure figure;
  figure.title = std::move(title);
  figure.about = std::move(about);
  figure.x = {load_axis_name(r), r.axis == LoadAxis::kConcurrency, {}, {}};
  if (!figure.x.log) {
    figure.x.low = 0;
  }
  figure.y = {std::move(y_label), log, {}, {}};
  if (!log) {
    figure.y.low = 0;
  }
  figure.csv = kKneePointsCsv;
  const std::optional<double> beyond = beyond_from(r);
  if (beyond && !r.points.empty() && r.points.back().load > *beyond) {
    figure.spans.push_back({"Beyond saturation: grows with the length of the run",
                            Tone::kGrey,
                            {*beyond, r.points.back().load}});
  }
  return figure;
}

/// A line up to saturation, and a dashed one from its last point on.
template <typename Value>
void add_line(Figure& figure, const KneeResult& r, const std::string& label, Tone tone, Value value_of) {
  Line below{label, tone, {}};
  Line beyond{"", tone, {}, true};
  below.dots = beyond.dots = true;
  for (const LoadPoint& p : r.points) {
    const Point point{p.load, value_of(p)};
    if (!p.beyond_saturation) {
      below.points.push_back(point);
      beyond.points = {point};
      continue;
    }
    beyond.points.push_back(point);
  }
  if (beyond.points.size() > 1) {
    figure.lines.push_back(std::move(beyond));
  }
  figure.lines.push_back(std::move(below));
}

auto latency(LatencyEstimates LoadPoint::*metric, MaybeEstimate LatencyEstimates::*statistic) {
  return [metric, statistic](const LoadPoint& p) {
    const MaybeEstimate& value = p.*metric.*statistic;
    return value ? value->value : kNoValue;
  };
}

void add_knee_marks(Figure& figure, const KneeResult& r) {
  for (const Knee& knee : r.knees) {
    if (knee.found()) {
      figure.marks.push_back({knee.load, fmt::format("{} {}", knee_name(knee.kind), short_number(knee.load)),
                              tone_of(knee.kind)});
    }
  }
}

// "ttft:p99:500" is a limit of p99 TTFT.
std::optional<double> p99_ttft_limit(const KneeResult& r) {
  for (const std::string& slo : r.slo) {
    constexpr std::string_view kStart = "ttft:p99:";
    if (slo.starts_with(kStart)) {
      return std::strtod(slo.c_str() + kStart.size(), nullptr);
    }
  }
  return std::nullopt;
}

Figure main_figure(const KneeResult& r) {
  Figure figure = over_load(
      r, "p99 TTFT against load",
      fmt::format("Mean of {} seeds with its 95 % interval, which is that of the arrivals alone; the "
                  "knees with their whole intervals.",
                  r.seeds),
      "p99 TTFT (ms)", true);
  for (const Knee& knee : r.knees) {
    if (knee.found()) {
      figure.spans.push_back({capital(fmt::format("{} knee, 95 %", knee_name(knee.kind))),
                              tone_of(knee.kind),
                              {knee.lower(), knee.upper()}});
    }
  }
  Band band{"95 % of the seeds' mean", Tone::kBlue, {}, {}, {}};
  Band beyond{"p50 to p99, of runs of this length", Tone::kOrange, {}, {}, {}};
  for (std::size_t i = 0; i < r.points.size(); ++i) {
    const LoadPoint& p = r.points[i];
    // It begins at the last load that the server keeps up with.
    const bool next_is_beyond = i + 1 < r.points.size() && r.points[i + 1].beyond_saturation;
    if ((p.beyond_saturation || next_is_beyond) && p.ttft.p50_ms && p.ttft.p99_ms) {
      beyond.x.push_back(p.load);
      beyond.low.push_back(p.ttft.p50_ms->value);
      beyond.high.push_back(p.ttft.p99_ms->value);
    }
    if (!p.beyond_saturation && p.ttft.p99_ms) {
      const Estimate& e = *p.ttft.p99_ms;
      band.x.push_back(p.load);
      // A log axis has no place for 0; an interval wider than its value ends at a tenth of it.
      band.low.push_back(std::max(e.value - e.half_width, e.value / 10));
      band.high.push_back(e.value + e.half_width);
    }
  }
  figure.bands.push_back(std::move(band));
  if (!beyond.x.empty()) {
    figure.bands.push_back(std::move(beyond));
  }
  add_line(figure, r, "p99 TTFT", Tone::kBlue, latency(&LoadPoint::ttft, &LatencyEstimates::p99_ms));
  add_knee_marks(figure, r);
  if (const std::optional<double> limit = p99_ttft_limit(r)) {
    figure.marks.push_back({*limit, fmt::format("SLO {} ms", short_number(*limit)), Tone::kGreen, true});
  }
  return figure;
}

Figure interval_figure(const KneeResult& r) {
  Figure figure;
  figure.title = "The knees, and how sure they are";
  figure.about =
      "95 % intervals in two parts: which requests happened to come when, and how well the step times are "
      "known.";
  figure.csv = kKneesCsv;
  figure.x = {load_axis_name(r), false, {}, {}};
  figure.intervals.parts = {
      {"From the arrivals", Tone::kBlue}, {"From the step time", Tone::kOrange}, {"Whole", Tone::kGrey}};
  figure.intervals.tick_label = "Single seeds";
  for (const Knee& knee : r.knees) {
    if (knee.found()) {
      figure.intervals.rows.push_back(
          {fmt::format("{}: {} ± {}", capital(knee_name(knee.kind)), short_number(knee.load),
                       short_number(knee.half_width())),
           knee.load,
           {knee.arrivals_half_width, knee.step_time_half_width, knee.half_width()},
           knee.by_seed});
    }
  }
  return figure;
}

Figure latency_figure(const KneeResult& r, std::string_view name, LatencyEstimates LoadPoint::*metric,
                      bool log) {
  Figure figure = over_load(r, fmt::format("{} against load", name),
                            "Of all completed requests after the warm-up; means over the seeds.",
                            fmt::format("{} (ms)", name), log);
  add_line(figure, r, "p99", Tone::kRed, latency(metric, &LatencyEstimates::p99_ms));
  add_line(figure, r, "p95", Tone::kPurple, latency(metric, &LatencyEstimates::p95_ms));
  add_line(figure, r, "p50", Tone::kBlue, latency(metric, &LatencyEstimates::p50_ms));
  add_line(figure, r, "Mean", Tone::kOrange, latency(metric, &LatencyEstimates::mean_ms));
  add_knee_marks(figure, r);
  return figure;
}

Figure throughput_figure(const KneeResult& r) {
  Figure figure =
      over_load(r, "Throughput against load", "Completed requests per second.", "Completed (req/s)", false);
  add_line(figure, r, "Completed", Tone::kTeal, [](const LoadPoint& p) { return p.requests_per_s.value; });
  if (r.axis == LoadAxis::kRate && !r.points.empty()) {
    figure.lines.push_back(
        {"What was sent", Tone::kGrey, {{0, 0}, {r.points.back().load, r.points.back().load}}, true});
  }
  add_knee_marks(figure, r);
  return figure;
}

Figure tokens_figure(const KneeResult& r) {
  Figure figure = over_load(r, "Output tokens against load",
                            "Generated tokens of completed requests per second.", "Output (tok/s)", false);
  add_line(figure, r, "Output tokens", Tone::kTeal,
           [](const LoadPoint& p) { return p.output_tokens_per_s.value; });
  add_knee_marks(figure, r);
  return figure;
}

Figure kv_figure(const KneeResult& r) {
  Figure figure = over_load(r, "KV cache in use against load",
                            "Share of the KV blocks; means over the seeds.", "KV cache in use (%)", false);
  figure.y.high = 100;
  add_line(figure, r, "Peak", Tone::kOrange, [](const LoadPoint& p) { return 100 * p.peak_kv_usage; });
  add_line(figure, r, "Mean", Tone::kPurple, [](const LoadPoint& p) { return 100 * p.mean_kv_usage; });
  add_knee_marks(figure, r);
  return figure;
}

Figure batch_figure(const KneeResult& r) {
  Figure figure =
      over_load(r, "Batch size and queue against load",
                "Requests running and waiting, over time; means over the seeds.", "Requests", true);
  add_line(figure, r, "Running", Tone::kGreen,
           [](const LoadPoint& p) { return p.mean_running > 0 ? p.mean_running : kNoValue; });
  add_line(figure, r, "Waiting", Tone::kOrange,
           [](const LoadPoint& p) { return p.mean_waiting > 0 ? p.mean_waiting : kNoValue; });
  add_knee_marks(figure, r);
  return figure;
}

Figure elasticity_figure(const KneeResult& r) {
  Figure figure =
      over_load(r, "How an error in the step time is amplified",
                "Percent of p99 TTFT for one percent of step time; 1 passes an error on as it is.",
                "Elasticity (% per %)", false);
  add_line(figure, r, "Elasticity of p99 TTFT", Tone::kPurple,
           [](const LoadPoint& p) { return p.elasticity ? p.elasticity->value : kNoValue; });
  add_knee_marks(figure, r);
  return figure;
}

// Causes in the order of their first place, so that neighbouring columns have them in the same one.
Figure waits_figure(const KneeResult& r) {
  Figure figure;
  figure.title = "What requests waited for";
  figure.about = "Share of the time in the scheduler's queue, by what stopped admission.";
  figure.csv = kKneeWaitsCsv;
  figure.x.label = load_axis_name(r);
  figure.y = {"Share of waiting (%)", false, 0, 100};
  std::vector<std::string> causes;
  for (const LoadPoint& p : r.points) {
    figure.columns.categories.push_back(short_number(p.load));
    for (const WaitShare& wait : p.waits) {
      if (std::find(causes.begin(), causes.end(), wait.cause) == causes.end()) {
        causes.push_back(wait.cause);
      }
    }
  }
  constexpr Tone kTones[] = {Tone::kBlue, Tone::kOrange, Tone::kGreen, Tone::kPurple,
                             Tone::kRed,  Tone::kTeal,   Tone::kGrey};
  for (std::size_t i = 0; i < causes.size(); ++i) {
    Columns::Layer layer{std::string(wait_cause_in_words(causes[i])),
                         kTones[i % std::size(kTones)],
                         {},
                         i >= std::size(kTones)};
    for (const LoadPoint& p : r.points) {
      const auto found = std::find_if(p.waits.begin(), p.waits.end(),
                                      [&](const WaitShare& w) { return w.cause == causes[i]; });
      layer.values.push_back(found == p.waits.end() ? 0 : 100 * found->share);
    }
    figure.columns.layers.push_back(std::move(layer));
  }
  return figure;
}

}  // namespace

std::vector<NamedFigure> knee_figures(const KneeResult& r) {
  return {{"p99_ttft_over_load", main_figure(r)},
          {"knees", interval_figure(r)},
          {"ttft_over_load", latency_figure(r, "TTFT", &LoadPoint::ttft, true)},
          {"tpot_over_load", latency_figure(r, "TPOT", &LoadPoint::tpot, false)},
          {"throughput_over_load", throughput_figure(r)},
          {"tokens_over_load", tokens_figure(r)},
          {"kv_over_load", kv_figure(r)},
          {"batch_over_load", batch_figure(r)},
          {"waits_over_load", waits_figure(r)},
          {"elasticity_over_load", elasticity_figure(r)}};
}

}  // namespace kneepoint::sim
