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
#include "sim/simulation.h"
#include "sim/step_log.h"
#include "traces/sha256.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {
namespace {

constexpr const char* kResultFile = "result.json";
constexpr const char* kRequestsFile = "requests.csv";
constexpr const char* kTtftFile = "ttft_cdf.csv";

// Which files a result came from, by name and content.
std::vector<InputFile> input_files(const RunConfig& config, const SimulationResult& run) {
  std::vector<InputFile> inputs;
  inputs.push_back({"trace", config.trace.filename().string(), run.trace_sha256});
  const auto add = [&](const char* role, const std::filesystem::path& path) {
    std::error_code ignored;
    const std::filesystem::path file = std::filesystem::is_directory(path, ignored) ? path / "config.json" : path;
    if (std::filesystem::is_regular_file(file, ignored)) {
      inputs.push_back({role, file.filename().string(), traces::sha256_file(file)});
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

void print_partial(const RunOutcome& outcome) {
  const RunSummary& summary = outcome.run.summary;
  fmt::print(stderr, "simulate: PARTIAL: stopped by {} at {:.3f} s; {} requests over, {} unfinished, {} not sent\n",
             summary.stopped_by, to_seconds(summary.end), summary.sent - summary.unfinished, summary.unfinished,
             outcome.num_unsent());
}

void fill_memory(const RunConfig& config, RunSummary& summary) {
  const hw::MemoryBudget& m = config.memory;
  if (config.server_file.empty()) {
    summary.peak_memory_bytes = m.weights + m.activations + m.cuda_graphs + m.other +
                                static_cast<double>(m.num_blocks) * static_cast<double>(m.block_bytes);
  }
}

}  // namespace

RunResult RunOutcome::result(const RunConfig& config) const {
  std::vector<std::string> provenance = config.provenance;
  provenance.push_back(run.time_provenance);
  return {config, run.summary, report, kVersion, config.resolved_text, input_files(config, run), provenance,
          num_unsent()};
}

std::int64_t RunOutcome::num_unsent() const {
  return static_cast<std::int64_t>(run.num_requests) - run.summary.sent;
}

RunOutcome carry_out(const RunConfig& config, std::vector<RunObserver*> others) {
  Metrics metrics(config);
  OverloadDetector overload;
  Progress progress(traces::TraceReader(config.trace).info().num_records);
  std::vector<RunObserver*> observers = {&metrics, &overload, &progress};
  observers.insert(observers.end(), others.begin(), others.end());

  RunOutcome outcome{simulate(config, observers), {}};
  const OverloadVerdict verdict = overload.verdict();
  outcome.run.summary.overloaded = verdict.overloaded;
  outcome.run.summary.overload_reason = verdict.reason;
  fill_memory(config, outcome.run.summary);
  outcome.report = metrics.finish(outcome.run.summary);
  return outcome;
}

int run_simulation(std::span<const std::string> arguments) {
  std::ostringstream answer;
  const std::optional<RunConfig> parsed = parse_simulate(arguments, answer);
  if (!parsed) {
    write_stdout(answer.str());
    return 0;
  }
  const RunConfig& config = *parsed;
  static_cast<void>(traces::TraceReader(config.trace));  // A wrong trace is told before a folder is made.

  OutputFiles files(config.report.out_dir);
  files.replaces({kResultFile, kRequestsFile, kTtftFile});
  std::vector<RunObserver*> writers;
  std::optional<RequestsCsv> requests_csv;
  if (files.has_folder() && config.report.requests_csv) {
    writers.push_back(&requests_csv.emplace(files.create(kRequestsFile)));
  }
  std::optional<StepLog> step_log;
  if (!config.report.step_log.empty()) {
    writers.push_back(&step_log.emplace(files.create_at(config.report.step_log)));
  }

  const RunOutcome outcome = carry_out(config, writers);
  const RunResult result = outcome.result(config);
  const std::string json = result_json(result);
  if (files.has_folder()) {
    files.create(kResultFile).write(json);
    files.create(kTtftFile).write(ttft_cdf_csv(outcome.report.ttft_quantiles_ms));
  }
  files.commit();
  write_stdout(config.report.format == OutputFormat::kJson ? json : report_table(result));
  print_notices(config, outcome.run.summary);
  if (outcome.run.summary.stopped_by.empty()) {
    return 0;
  }
  print_partial(outcome);
  return kExitPartial;
}

}  // namespace kneepoint::sim
