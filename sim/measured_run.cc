#include "sim/measured_run.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "sim/options.h"
#include "sim/overload.h"
#include "traces/sha256.h"

namespace kneepoint::sim {
namespace {

// Which files a result came from, by name and content.
std::vector<InputFile> input_files(const RunConfig& config, const SimulationResult& run) {
  std::vector<InputFile> inputs;
  if (!run.trace_sha256.empty()) {
    inputs.push_back({"trace", config.trace.filename().string(), run.trace_sha256});
  }
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

void fill_memory(const RunConfig& config, RunSummary& summary) {
  const hw::MemoryBudget& m = config.memory;
  if (config.server_file.empty()) {
    summary.peak_memory_bytes = m.weights + m.activations + m.cuda_graphs + m.other +
                                static_cast<double>(m.num_blocks) * static_cast<double>(m.block_bytes);
  }
}

MeasuredRun measure_with(const RunConfig& config, Client* client, std::span<RunObserver* const> watchers) {
  Metrics metrics(config);
  OverloadDetector overload;
  std::vector<RunObserver*> observers = {&metrics, &overload};
  observers.insert(observers.end(), watchers.begin(), watchers.end());

  MeasuredRun measured;
  measured.run = client != nullptr ? simulate(config, *client, observers) : simulate(config, observers);
  RunSummary& summary = measured.run.summary;
  const OverloadVerdict verdict = overload.verdict();
  summary.overloaded = verdict.overloaded;
  summary.overload_reason = verdict.reason;
  fill_memory(config, summary);
  measured.metrics = metrics.finish(summary);
  measured.inputs = input_files(config, measured.run);
  measured.provenance = config.provenance;
  measured.provenance.push_back(measured.run.time_provenance);
  return measured;
}

}  // namespace

MeasuredRun measure(const RunConfig& config, std::span<RunObserver* const> watchers) {
  return measure_with(config, nullptr, watchers);
}

MeasuredRun measure(const RunConfig& config, Client& client, std::span<RunObserver* const> watchers) {
  return measure_with(config, &client, watchers);
}

RunResult as_result(const RunConfig& config, const MeasuredRun& measured) {
  const std::int64_t in_trace = static_cast<std::int64_t>(measured.run.num_requests);
  const std::int64_t num_unsent = std::max<std::int64_t>(in_trace - measured.run.summary.sent, 0);
  return {config,          measured.run.summary, measured.metrics, kVersion, config.resolved_text,
          measured.inputs, measured.provenance,  num_unsent};
}

}  // namespace kneepoint::sim
