#include "sim/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "sim/page.h"
#include "sim/result_json.h"

namespace kneepoint::sim {
namespace {

constexpr std::size_t kClientFigures = 4;  // Of run_figures(): what clients saw.

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
                    to_seconds(run.hangs_from), with_groups(run.never_fit)));
  }
  if (run.storm) {
    page.warning(fmt::format(
        "PREEMPTION STORM: steps without end gave nobody a token; the run was cut with {} requests "
        "unfinished.",
        with_groups(run.unfinished)));
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
      {"Requests completed", with_groups(m.completed),
       fmt::format("{} failed, {} of all completed", with_groups(m.failed),
                   percent(completed, static_cast<double>(m.requests())))},
      {"Request throughput", rate(m.request_throughput, "req/s"),
       fmt::format("in {} s", short_number(to_seconds(m.duration)))},
      {"Output throughput", rate(m.output_throughput, "tok/s"),
       fmt::format("{} in all", rate(m.total_token_throughput, "tok/s"))},
      {"Peak KV cache use",
       percent(static_cast<double>(run.peak_used_blocks), static_cast<double>(run.num_blocks - 1)),
       fmt::format("of {} blocks; {} preemptions", with_groups(run.num_blocks - 1), with_groups(run.preemptions))},
      {"GPU busy",
       percent(static_cast<double>(run.device_busy.count()),
               static_cast<double>((run.end - run.first_send).count())),
       fmt::format("{} steps", with_groups(run.steps))},
      {"Running / waiting", fmt::format("{:.1f} / {:.1f}", run.mean_running, run.mean_waiting),
       fmt::format("means; peaks {} and {}", with_groups(run.peak_running), with_groups(run.peak_waiting))}};
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
