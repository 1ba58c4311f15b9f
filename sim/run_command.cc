#include "sim/run_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "sim/measured_run.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/progress.h"
#include "sim/report.h"
#include "sim/requests_csv.h"
#include "sim/result_json.h"
#include "sim/run_page.h"
#include "sim/step_log.h"
#include "sim/time_series.h"
#include "sim/timeline.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {
namespace {

constexpr const char* kResultFile = "result.json";
constexpr const char* kRequestsFile = "requests.csv";
constexpr const char* kPageFile = "report.html";

// What a person should know beside the figures; held back until the inputs were
// read to the end, so that wrong input gives its one line and nothing else.
void print_notices(const RunConfig& config, const RunSummary& summary) {
  if (!config.flags_without_influence.empty()) {
    fmt::print(stderr, "simulate: without influence here: {}\n", fmt::join(config.flags_without_influence, " "));
  }
  for (const std::string& notice : summary.notices) {
    fmt::print(stderr, "simulate: {}\n", notice);
  }
  if (summary.never_fit > 0) {
    fmt::print(stderr, "simulate: {} requests need more KV blocks than there are; vLLM itself would hang from {:.3f} s on\n",
               summary.never_fit, to_seconds(summary.hangs_from));
  }
  if (summary.storm) {
    fmt::print(stderr, "simulate: PREEMPTION STORM: steps compute and nobody gets a token; cut with {} requests unfinished\n",
               summary.unfinished);
  }
  if (summary.overloaded) {
    fmt::print(stderr, "simulate: OVERLOADED: {}\n", summary.overload_reason);
  }
}

// Where a limit stopped the run.
void print_partial(const RunResult& result) {
  const RunSummary& summary = result.summary;
  fmt::print(stderr, "simulate: PARTIAL: stopped by {} at {:.3f} s; {} requests over, {} unfinished, {} not sent\n",
             summary.stopped_by, to_seconds(summary.end), summary.sent - summary.unfinished, summary.unfinished,
             result.num_unsent);
}

void finish_timeline(Timeline& timeline) {
  timeline.finish();
  if (timeline.not_drawn() > 0) {
    fmt::print(stderr, "simulate: --timeline: {} requests found none of {} lanes free and are left out\n",
               timeline.not_drawn(), Timeline::kLanes);
  }
}

// Of all files that a run may write into its folder by itself.
std::vector<std::string> file_names() {
  std::vector<std::string> names{kResultFile, kRequestsFile, kPageFile, kTtftCdfCsv, kLoadCsv, kLatencyCsv, kWaitCsv};
  for (const char* figure : kRunFigureNames) {
    for (const char* ending : kPaperPlotEndings) {
      names.push_back(std::string(figure) + ending);
    }
  }
  return names;
}

// report.html and the numbers behind its figures.
void write_page(OutputFiles& files, const RunResult& result, const TimeSeries& series) {
  files.create(kPageFile).write(run_page(result, series));
  files.create(kLoadCsv).write(levels_csv(series));
  files.create(kLatencyCsv).write(latencies_csv(series));
  files.create(kWaitCsv).write(wait_csv(result.summary));
  if (result.config.report.plots) {
    const std::string only_scripts = write_paper_plots(files, run_figures(result, series), made_by(result.config));
    if (!only_scripts.empty()) {
      fmt::print(stderr, "simulate: {}\n", only_scripts);
    }
  }
}

}  // namespace

int run_simulation(std::span<const std::string> arguments) {
  std::ostringstream answer;
  const std::optional<RunConfig> parsed = parse_simulate(arguments, answer);
  if (!parsed) {
    write_stdout(answer.str());
    return 0;
  }
  const RunConfig& config = *parsed;
  // A wrong trace is told before a folder is made.
  const std::uint64_t num_requests = traces::TraceReader(config.trace).info().num_records;

  OutputFiles files(config.report.out_dir);
  files.replaces(file_names());
  Progress progress(num_requests);
  std::vector<RunObserver*> watchers = {&progress};
  std::optional<RequestsCsv> requests_csv;
  if (files.has_folder() && config.report.requests_csv) {
    watchers.push_back(&requests_csv.emplace(files.create(kRequestsFile)));
  }
  std::optional<TimeSeries> series;
  if (files.has_folder() && config.report.page) {
    watchers.push_back(&series.emplace());
  }
  std::optional<StepLog> step_log;
  if (!config.report.step_log.empty()) {
    watchers.push_back(&step_log.emplace(files.create_at(config.report.step_log)));
  }

  std::optional<Timeline> timeline;
  if (!config.report.timeline.empty()) {
    watchers.push_back(&timeline.emplace(files.create_at(config.report.timeline), made_by(config)));
  }

  const MeasuredRun measured = measure(config, watchers);
  progress.clear();
  const RunResult result = as_result(config, measured);
  const std::string json = result_json(result);
  if (timeline) {
    finish_timeline(*timeline);
  }
  if (files.has_folder()) {
    files.create(kResultFile).write(json);
    files.create(kTtftCdfCsv).write(ttft_cdf_csv(measured.metrics.ttft_quantiles_ms));
  }
  if (series) {
    write_page(files, result, *series);
  }
  files.commit();
  write_stdout(config.report.format == OutputFormat::kJson ? json : report_table(result));
  print_notices(config, measured.run.summary);
  if (measured.run.summary.stopped_by.empty()) {
    return 0;
  }
  print_partial(result);
  return kExitPartial;
}

}  // namespace kneepoint::sim
