// The figures of a run's report.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "sim/run_page.h"

namespace kneepoint::sim {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

// Seconds, minutes or hours, whichever gives round numbers over the whole run.
struct TimeUnit {
  double seconds = 1;
  std::string_view name = "s";
};

TimeUnit unit_for(SimTime end) {
  const double seconds = to_seconds(end);
  return seconds < 900 ? TimeUnit{} : seconds < 4 * 3600 ? TimeUnit{60, "min"} : TimeUnit{3600, "h"};
}

double middle(SimTime begin, SimTime end, TimeUnit unit) {
  return (to_seconds(begin) + to_seconds(end)) / 2 / unit.seconds;
}

// Of the last request that was sent, or a little later.
SimTime end_of_sends(const TimeSeries& series, SimTime end) {
  const std::vector<LatencyRow> rows = series.latencies();
  return rows.empty() ? end : std::min(rows.back().end, end);
}

FigureAxis time_axis(SimTime end, std::string_view of) {
  const TimeUnit unit = unit_for(end);
  return {fmt::format("{} ({})", of, unit.name), false, 0.0, to_seconds(end) / unit.seconds};
}

Figure ttft_figure(const MetricsReport& metrics) {
  Figure figure;
  figure.title = "Time to first token: distribution";
  figure.about = fmt::format(
      "Share of the {} completed requests whose first token came within so long after they were sent.",
      with_groups(metrics.completed));
  figure.csv = kTtftCdfCsv;
  figure.x = {"TTFT (ms)", true, {}, {}};
  figure.y = {"Share of requests (%)", false, 0, 100};
  Line line{"Completed requests", Tone::kBlue, {}};
  const auto& quantiles = metrics.ttft_quantiles_ms;
  for (std::size_t i = 0; i < quantiles.size(); ++i) {
    line.points.push_back(
        {quantiles[i], 100 * static_cast<double>(i) / static_cast<double>(quantiles.size() - 1)});
  }
  const bool log = !quantiles.empty() && quantiles.front() > 0;
  figure.x.log = log;
  figure.lines.push_back(std::move(line));
  if (!metrics.ttft.empty()) {
    const LatencyStats& t = metrics.ttft;
    for (const auto& [name, value, tone] : {std::tuple{"p50", t.p50_ms, Tone::kGrey},
                                            {"p90", t.p90_ms, Tone::kTeal},
                                            {"p95", t.p95_ms, Tone::kPurple},
                                            {"p99", t.p99_ms, Tone::kRed}}) {
      figure.marks.push_back({value, fmt::format("{} {}", name, short_number(value)), tone});
    }
  }
  return figure;
}

/// A latency over the run: `of` names the histogram of a row.
Figure latency_figure(const TimeSeries& series, SimTime end, std::string_view name, bool log,
                      const LogHistogram* LatencyRow::*of) {
  Figure figure;
  figure.title = fmt::format("{} over the run", name);
  figure.about =
      "Of completed requests, by the time at which they were sent. Within 3.2 %; the highest is exact.";
  figure.csv = kLatencyCsv;
  const TimeUnit unit = unit_for(end);
  figure.x = time_axis(end, "Sent at");
  figure.y = {fmt::format("{} (ms)", name), log, {}, {}};
  if (!log) {
    figure.y.low = 0;
  }
  Line p50{"p50", Tone::kBlue, {}};
  Line p99{"p99", Tone::kRed, {}};
  Line highest{"Highest", Tone::kGrey, {}, true};
  for (const LatencyRow& row : series.latencies()) {
    const LogHistogram& h = *(row.*of);
    const double x = middle(row.begin, std::min(row.end, end), unit);
    const bool any = h.count() > 0;
    p50.points.push_back({x, any ? h.quantile({50, 100}) / 1e6 : kNoValue});
    p99.points.push_back({x, any ? h.quantile({99, 100}) / 1e6 : kNoValue});
    highest.points.push_back({x, any ? static_cast<double>(h.highest()) / 1e6 : kNoValue});
  }
  figure.lines = {std::move(highest), std::move(p99), std::move(p50)};
  return figure;
}

/// A level over the run, `scale` being what its unit is divided by.
Figure level_figure(const TimeSeries& series, SimTime end, LevelStats LevelRow::*of, double scale,
                    Tone tone) {
  Figure figure;
  figure.csv = kLoadCsv;
  figure.x = time_axis(end, "Time");
  figure.y.low = 0;
  const TimeUnit unit = unit_for(end);
  Band band{"Lowest to highest", tone, {}, {}, {}};
  Line mean{"Mean", tone, {}};
  for (const LevelRow& row : series.levels()) {
    const LevelStats& level = row.*of;
    const double x = middle(row.begin, row.end, unit);
    band.x.push_back(x);
    band.low.push_back(static_cast<double>(level.lowest) / scale);
    band.high.push_back(static_cast<double>(level.highest) / scale);
    mean.points.push_back({x, level.mean / scale});
  }
  figure.bands.push_back(std::move(band));
  figure.lines.push_back(std::move(mean));
  return figure;
}

Figure rate_figure(const TimeSeries& series, SimTime end) {
  Figure figure;
  figure.title = "Arrivals";
  figure.about = "Requests sent per second.";
  figure.csv = kLatencyCsv;
  const TimeUnit unit = unit_for(end);
  figure.x = time_axis(end, "Sent at");
  figure.y = {"Requests per second", false, 0, {}};
  Line sent{"Sent", Tone::kTeal, {}};
  Line failed{"Of them failed", Tone::kRed, {}, true};
  bool any_failed = false;
  for (const LatencyRow& row : series.latencies()) {
    const SimTime row_end = std::min(row.end, end);
    const double seconds = to_seconds(row_end - row.begin);
    const double x = middle(row.begin, row_end, unit);
    sent.points.push_back({x, seconds > 0 ? static_cast<double>(row.sent) / seconds : kNoValue});
    failed.points.push_back({x, seconds > 0 ? static_cast<double>(row.failed) / seconds : kNoValue});
    any_failed = any_failed || row.failed > 0;
  }
  figure.lines.push_back(std::move(sent));
  if (any_failed) {
    figure.lines.push_back(std::move(failed));
  }
  return figure;
}

Figure kv_figure(const RunResult& result, const TimeSeries& series) {
  const std::int64_t usable = result.summary.num_blocks - 1;
  Figure figure = level_figure(series, result.summary.end, &LevelRow::used_blocks,
                               static_cast<double>(usable) / 100, Tone::kPurple);
  figure.title = "KV cache in use";
  figure.about =
      fmt::format("Share of {} blocks of {} tokens.", with_groups(usable), result.config.engine.block_size);
  figure.y.label = "KV cache in use (%)";
  if (result.summary.peak_used_blocks * 4 > usable) {
    figure.y.high = 100;
  }
  return figure;
}

Figure waiting_figure(const RunResult& result, const TimeSeries& series) {
  Figure figure = level_figure(series, result.summary.end, &LevelRow::waiting, 1, Tone::kOrange);
  figure.title = "Queue";
  figure.about = "Requests that wait at the scheduler.";
  figure.y.label = "Requests waiting";
  return figure;
}

Figure running_figure(const RunResult& result, const TimeSeries& series) {
  Figure figure = level_figure(series, result.summary.end, &LevelRow::running, 1, Tone::kGreen);
  const std::int64_t most = result.config.engine.max_num_seqs;
  figure.title = "Batch size";
  figure.about = fmt::format("Requests that run; max_num_seqs is {}.", with_groups(most));
  figure.y.label = "Requests running";
  if (result.summary.peak_running * 2 > most) {
    figure.marks.push_back({static_cast<double>(most), "max_num_seqs", Tone::kGrey, true});
  }
  return figure;
}

}  // namespace

std::vector<NamedFigure> run_figures(const RunResult& result, const TimeSeries& series) {
  const SimTime end = end_of_sends(series, result.summary.end);
  return {{kRunFigureNames[0], ttft_figure(result.metrics)},
          {kRunFigureNames[1], rate_figure(series, end)},
          {kRunFigureNames[2], latency_figure(series, end, "TTFT", true, &LatencyRow::ttft)},
          {kRunFigureNames[3], latency_figure(series, end, "TPOT", false, &LatencyRow::tpot)},
          {kRunFigureNames[4], kv_figure(result, series)},
          {kRunFigureNames[5], waiting_figure(result, series)},
          {kRunFigureNames[6], running_figure(result, series)}};
}

}  // namespace kneepoint::sim
