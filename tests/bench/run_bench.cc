// A whole run: from opening the trace to result.json on the disk, no per-request file.
//
// Prompts of 1024 tokens, answers of 256, Poisson, Llama 3.1 8B in bf16 on one H100.
// At 30 requests a second it is overloaded. The second
// argument is the number of requests, the third prefix caching. `x_plain` is how many
// times as fast as --plain-steps the run was: a ratio of two times on one machine, so
// that it means something on any. KNEEPOINT_BENCH_TRACE names another trace to run.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "sim/measured_run.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/result_json.h"
#include "traces/random_stream.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {
namespace {

namespace fs = std::filesystem;

// A folder for the traces and results of this process.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("kneepoint-run-bench-{}", ::getpid())) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string poisson_trace(const Folder& folder, double rate, std::int64_t num_requests) {
  const fs::path path = folder.path() / fmt::format("{}-{}.pb", rate, num_requests);
  if (!fs::exists(path)) {
    traces::RandomStream stream(1, "run-bench");
    traces::TraceWriter writer(path, "run_bench");
    traces::TraceRecord record;
    record.prompt_tokens = 1024;
    record.output_tokens = 256;
    double seconds = 0;
    for (std::int64_t i = 0; i < num_requests; ++i) {
      seconds += stream.gamma(1.0) / rate;
      record.arrival = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
      writer.add(record);
    }
    writer.finish();
  }
  return path.string();
}

pb::RunConfig asked_for(const std::string& trace, const std::string& out, bool caching) {
  pb::RunConfig asked;
  asked.set_trace(trace);
  asked.set_out(out);
  asked.set_requests_csv(false);
  asked.set_report(false);
  asked.set_enable_prefix_caching(caching);
  return asked;
}

// Seconds of one run; `num_requests` becomes those of the trace.
double run_once(const pb::RunConfig& asked, std::uint64_t& num_requests) {
  const auto begin = std::chrono::steady_clock::now();
  const RunConfig config = resolve(asked);
  OutputFiles files(config.report.out_dir);
  files.replaces({"result.json"});
  const MeasuredRun measured = measure(config);
  files.create("result.json").write(result_json(as_result(config, measured)));
  files.commit();
  num_requests = measured.run.num_requests;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(benchmark::State& state, const std::string& trace, const std::string& out, bool caching) {
  const pb::RunConfig asked = asked_for(trace, out, caching);
  pb::RunConfig plain = asked;
  plain.set_plain_steps(true);
  std::uint64_t num_requests = 0;
  double seconds = 0;
  for (auto _ : state) {
    const double this_time = run_once(asked, num_requests);
    state.SetIterationTime(this_time);
    seconds += this_time;
  }
  seconds /= static_cast<double>(state.iterations());
  state.counters["requests_per_s"] = static_cast<double>(num_requests) / seconds;
  state.counters["x_plain"] = run_once(plain, num_requests) / seconds;
}

void poisson(benchmark::State& state) {
  static const Folder folder;
  const std::string trace = poisson_trace(folder, static_cast<double>(state.range(0)), state.range(1));
  run(state, trace, (folder.path() / "out").string(), state.range(2) != 0);
}
BENCHMARK(poisson)
    ->ArgNames({"per_s", "requests", "caching"})
    ->ArgsProduct({{10, 15, 20, 30}, {100'000}, {0, 1}})
    ->ArgsProduct({{20}, {10'000, 1'000'000}, {0}})
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(1);

void given_trace(benchmark::State& state) {
  const char* trace = std::getenv("KNEEPOINT_BENCH_TRACE");
  if (trace == nullptr) {
    state.SkipWithError("KNEEPOINT_BENCH_TRACE names no trace");
    return;
  }
  static const Folder folder;
  run(state, trace, (folder.path() / "out").string(), true);
}
BENCHMARK(given_trace)->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(1);

}  // namespace
}  // namespace kneepoint::sim

BENCHMARK_MAIN();
