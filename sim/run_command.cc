#include "sim/run_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "sim/metrics.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/overload.h"
#include "sim/progress.h"
#include "sim/report.h"
#include "sim/requests_csv.h"
#include "sim/result_json.h"
#include "sim/run_page.h"
#include "sim/simulation.h"
#include "sim/step_log.h"
#include "sim/time_series.h"
#include "sim/timeline.h"
#include "traces/sha256.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {
namespace {

constexpr const char* kResultFile = "result.json";
constexpr const char* kRequestsFile = "requests.csv";
constexpr const char* kPageFile = "report.html";

// Which files a result came from, by name and content.
std::vector<InputFile> input_files(const RunConfig& config, const SimulationResult& run) {
  std::vector<InputFile> inputs;
  inputs.push_back({"trace", config.trace.filename().string(), run.trace_sha256});
  const auto add = [&](const char* role, const std::filesystem::path& path) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) {
      inputs.push_back({role, path.filename().string(), traces::sha256_file(path)});
    }
  };
  add("model", config.model_name);
  add("gpu", config.gpu_name);
  add("rates", config.rates_file);
  add("server", config.server_file);
  return inputs;
}

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

void fill_memory(const RunConfig& config, RunSummary& summary) {
  const hw::MemoryBudget& m = config.memory;
  if (config.server_file.empty()) {
    summary.peak_memory_bytes = m.weights + m.activations + m.cuda_graphs + m.other +
                                static_cast<double>(m.num_blocks) * static_cast<double>(m.block_bytes);
  }
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
  const std::uint64_t num_requests = traces::TraceReader(config.trace).info().num_records;

  OutputFiles files(config.report.out_dir);
  files.replaces(file_names());
  Metrics metrics(config);
  OverloadDetector overload;
  Progress progress(num_requests);
  std::vector<RunObserver*> observers = {&metrics, &overload, &progress};
  std::optional<RequestsCsv> requests_csv;
  if (files.has_folder() && config.report.requests_csv) {
    observers.push_back(&requests_csv.emplace(files.create(kRequestsFile)));
  }
  std::optional<TimeSeries> series;
  if (files.has_folder() && config.report.page) {
    observers.push_back(&series.emplace());
  }
  std::optional<StepLog> step_log;
  if (!config.report.step_log.empty()) {
    observers.push_back(&step_log.emplace(files.create_at(config.report.step_log)));
  }

  std::optional<Timeline> timeline;
  if (!config.report.timeline.empty()) {
    observers.push_back(&timeline.emplace(files.create_at(config.report.timeline), made_by(config)));
  }

  SimulationResult run = simulate(config, observers);
  progress.clear();
  const OverloadVerdict verdict = overload.verdict();
  run.summary.overloaded = verdict.overloaded;
  run.summary.overload_reason = verdict.reason;
  fill_memory(config, run.summary);

  std::vector<std::string> provenance = config.provenance;
  provenance.push_back(run.time_provenance);
  const MetricsReport report = metrics.finish(run.summary);
  const RunResult result{config,   run.summary,          report, kVersion, config.resolved_text,
                         input_files(config, run), provenance};
  const std::string json = result_json(result);
  if (timeline) {
    finish_timeline(*timeline);
  }
  if (files.has_folder()) {
    files.create(kResultFile).write(json);
    files.create(kTtftCdfCsv).write(ttft_cdf_csv(report.ttft_quantiles_ms));
  }
  if (series) {
    write_page(files, result, *series);
  }
  files.commit();
  write_stdout(config.report.format == OutputFormat::kJson ? json : report_table(result));
  print_notices(config, run.summary);
  return 0;
}

}  // namespace kneepoint::sim
