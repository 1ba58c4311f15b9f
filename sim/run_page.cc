#include "sim/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>

#include "sim/page.h"
#include "sim/result_json.h"

namespace kneepoint::sim {
namespace {

constexpr std::size_t kClientFigures = 4;  // Of run_figures(): what clients saw.
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

std::string whole(std::int64_t value) {
  return with_groups(fmt::format("{}", value));
}

std::string percent(double part, double of) {
  return of > 0 ? fmt::format("{:.1f} %", 100 * part / of) : "n/a";
}

std::string rate(const std::optional<double>& value, std::string_view unit) {
  return value ? fmt::format("{} {}", short_number(*value), unit) : "n/a";
}

std::string ms(const LatencyStats& stats, double LatencyStats::*value) {
  if (stats.empty()) {
    return "n/a";
  }
  return stats.*value < 10'000 ? fmt::format("{} ms", short_number(stats.*value))
                               : fmt::format("{} s", short_number(stats.*value / 1000));
}

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

// ---- figures

Figure ttft_figure(const MetricsReport& metrics) {
  Figure figure;
  figure.title = "Time to first token: distribution";
  figure.about = fmt::format(
      "Share of the {} completed requests whose first token came within so long after they were sent.",
      whole(metrics.completed));
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
      fmt::format("Share of {} blocks of {} tokens.", whole(usable), result.config.engine.block_size);
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
  figure.about = fmt::format("Requests that run; max_num_seqs is {}.", whole(most));
  figure.y.label = "Requests running";
  if (result.summary.peak_running * 2 > most) {
    figure.marks.push_back({static_cast<double>(most), "max_num_seqs", Tone::kGrey, true});
  }
  return figure;
}

// ---- text and tables

void add_verdicts(Page& page, const RunResult& result) {
  const RunSummary& run = result.summary;
  if (run.overloaded) {
    page.warning(fmt::format(
        "OVERLOADED: {}. Latencies and throughput are those of this trace only: a longer one would wait "
        "longer.",
        run.overload_reason));
  }
  if (run.hangs_from != kNever) {
    page.warning(
        fmt::format("vLLM would hang from {:.3f} s on: {} requests need more KV blocks than there are.",
                    to_seconds(run.hangs_from), whole(run.never_fit)));
  }
  if (run.storm) {
    page.warning(fmt::format(
        "PREEMPTION STORM: steps without end gave nobody a token; the run was cut with {} requests "
        "unfinished.",
        whole(run.unfinished)));
  }
  for (const std::string& notice : run.notices) {
    page.note(notice);
  }
  if (!result.config.flags_without_influence.empty()) {
    page.note(
        fmt::format("Without influence here: {}", fmt::join(result.config.flags_without_influence, " ")));
  }
}

void add_tiles(Page& page, const RunResult& result) {
  const MetricsReport& m = result.metrics;
  const RunSummary& run = result.summary;
  const auto completed = static_cast<double>(m.completed);
  std::vector<Tile> tiles{
      {"TTFT p99", ms(m.ttft, &LatencyStats::p99_ms),
       fmt::format("p50 {}, mean {}", ms(m.ttft, &LatencyStats::p50_ms), ms(m.ttft, &LatencyStats::mean_ms))},
      {"TPOT p99", ms(m.tpot, &LatencyStats::p99_ms),
       fmt::format("p50 {}, mean {}", ms(m.tpot, &LatencyStats::p50_ms), ms(m.tpot, &LatencyStats::mean_ms))},
      {"Requests completed", whole(m.completed),
       fmt::format("{} failed, {} of all completed", whole(m.failed),
                   percent(completed, static_cast<double>(m.requests())))},
      {"Request throughput", rate(m.request_throughput, "req/s"),
       fmt::format("in {} s", short_number(to_seconds(m.duration)))},
      {"Output throughput", rate(m.output_throughput, "tok/s"),
       fmt::format("{} in all", rate(m.total_token_throughput, "tok/s"))},
      {"Peak KV cache use",
       percent(static_cast<double>(run.peak_used_blocks), static_cast<double>(run.num_blocks - 1)),
       fmt::format("of {} blocks; {} preemptions", whole(run.num_blocks - 1), whole(run.preemptions))},
      {"GPU busy",
       percent(static_cast<double>(run.device_busy.count()),
               static_cast<double>((run.end - run.first_send).count())),
       fmt::format("{} steps", whole(run.steps))},
      {"Running / waiting", fmt::format("{:.1f} / {:.1f}", run.mean_running, run.mean_waiting),
       fmt::format("means; peaks {} and {}", whole(run.peak_running), whole(run.peak_waiting))}};
  if (result.config.report.goodput.any()) {
    tiles.insert(tiles.begin() + 4,
                 {"Goodput", rate(m.request_goodput, "req/s"), "requests within all limits"});
  }
  page.tiles(tiles);
}

void add_latency_table(Page& page, const RunResult& result) {
  const MetricsReport& m = result.metrics;
  PageTable table;
  table.header = {"Latency (ms)", "mean", "std", "p50", "p90", "p95", "p99", "max"};
  const auto row = [&](const char* name, const LatencyStats& s) {
    std::vector<Cell> cells{name};
    for (const double value : {s.mean_ms, s.std_ms, s.p50_ms, s.p90_ms, s.p95_ms, s.p99_ms, s.max_ms}) {
      cells.emplace_back(s.empty() ? "n/a" : with_groups(fmt::format("{:.2f}", value)));
    }
    table.rows.push_back(std::move(cells));
  };
  row("Time to first token (TTFT)", m.ttft);
  row("… of it, in the queue", m.queue);
  row("… of it, prefill", m.prefill);
  row("Time per output token (TPOT)", m.tpot);
  row("Inter-token latency (ITL)", m.itl);
  row("End to end (E2EL)", m.e2el);
  if (result.config.client.max_concurrency) {
    row("Client's own queue, before", m.client_queue);
  }
  page.table(table);
}

std::vector<WaitCause> largest_first(const RunSummary& summary) {
  std::vector<WaitCause> causes = summary.wait_causes;
  std::stable_sort(causes.begin(), causes.end(),
                   [](const WaitCause& a, const WaitCause& b) { return a.time > b.time; });
  return causes;
}

double total_wait(const RunSummary& summary) {
  SimDuration total{0};
  for (const WaitCause& cause : summary.wait_causes) {
    total += cause.time;
  }
  return to_seconds(total);
}

void add_waits(Page& page, const RunSummary& summary) {
  const double total = total_wait(summary);
  PageTable table;
  table.csv = kWaitCsv;
  table.header = {"Waited for", "Share", "Request-seconds"};
  for (const WaitCause& cause : largest_first(summary)) {
    const double seconds = to_seconds(cause.time);
    table.rows.push_back({std::string(wait_cause_in_words(cause.cause)),
                          Cell(percent(seconds, total), seconds / total, Tone::kOrange),
                          short_number(seconds)});
  }
  page.figure(
      "What requests waited for",
      total > 0
          ? "Time in the scheduler's queue, by the reason for which the newest plan admitted nobody else."
          : "Nobody waited.",
      table);
}

void add_origin(Page& page, const RunResult& result) {
  page.heading("Where the numbers come from");
  for (const std::string& line : result.provenance) {
    page.paragraph(line);
  }
  std::string inputs;
  for (const InputFile& input : result.inputs) {
    inputs += fmt::format("{} {}\n  sha256 {}\n", input.role, input.name, input.sha256);
  }
  page.folded("Inputs", inputs);
  page.folded("Configuration (gives this run again with --run-config)",
              configuration_without_places(result.configuration));
  page.paragraph(fmt::format("Kneepoint {}, seed {}. A simulation: no GPU was measured in this run.",
                             result.version, result.config.seed));
}

}  // namespace

std::string setup_line(const RunConfig& config) {
  const auto base = [](const std::string& name) {
    const bool file = name.ends_with(".json") || name.ends_with(".textproto") || name.ends_with(".pb");
    return file ? std::filesystem::path(name).filename().string() : name;
  };
  std::string line = base(config.model_name);
  if (!config.server_file.empty()) {
    line += fmt::format(", measured server {}", base(config.server_file));
  } else {
    line +=
        fmt::format(", {} weights, {} KV cache, {} × {}",
                    config.quantization == "none" ? config.dtype : config.quantization, config.kv_cache_dtype,
                    config.deployment.tensor_parallel_size * config.deployment.pipeline_parallel_size,
                    base(config.gpu_name));
    if (config.deployment.tensor_parallel_size > 1) {
      line += fmt::format(" (TP {})", config.deployment.tensor_parallel_size);
    }
    if (config.deployment.pipeline_parallel_size > 1) {
      line += fmt::format(" (PP {})", config.deployment.pipeline_parallel_size);
    }
  }
  line += fmt::format("; {}, max_num_seqs {}, max_num_batched_tokens {}", config.scheduler,
                      config.engine.max_num_seqs, config.engine.max_num_batched_tokens);
  return line;
}

std::string made_by(const RunConfig& config) {
  std::string line = setup_line(config);
  line += fmt::format("; {}", config.trace.filename().string());
  if (!config.client.request_rate) {
    line += " at its own times";
  } else if (std::isinf(*config.client.request_rate)) {
    line += " all at once";
  } else {
    line += fmt::format(" at {} req/s, burstiness {}", *config.client.request_rate, config.client.burstiness);
  }
  if (config.client.max_concurrency) {
    line += fmt::format(", at most {} in flight", *config.client.max_concurrency);
  }
  return line + fmt::format("; seed {}.", config.seed);
}

std::string wait_csv(const RunSummary& summary) {
  std::string text = "cause,request_seconds,share\n";
  const double total = total_wait(summary);
  for (const WaitCause& cause : largest_first(summary)) {
    const double seconds = to_seconds(cause.time);
    fmt::format_to(std::back_inserter(text), "{},{:.6f},{:.6f}\n", cause.cause, seconds, seconds / total);
  }
  return text;
}

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

std::string run_page(const RunResult& result, const TimeSeries& series) {
  const RunConfig& config = result.config;
  Page page(fmt::format("{} under load", config.trace.filename().string()), made_by(config));
  add_verdicts(page, result);
  add_tiles(page, result);
  page.heading("Latency");
  add_latency_table(page, result);
  const std::vector<NamedFigure> figures = run_figures(result, series);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (i == kClientFigures) {
      page.heading("The server over the run");
    }
    page.figure(figures[i].figure);
  }
  add_waits(page, result.summary);
  add_origin(page, result);
  return page.take();
}

}  // namespace kneepoint::sim
