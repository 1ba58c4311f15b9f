// How fast traces are read and made, on one core. Wanted: 5 million records a
// second from our own files, 100 MB a second from CSV.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "traces/export.h"
#include "traces/generate.h"
#include "traces/import.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

constexpr std::uint64_t kRequests = 1'000'000;

std::unique_ptr<RecordSource> workload(std::uint64_t requests) {
  GenerateOptions options;
  options.arrivals.process = "gamma";
  options.arrivals.burstiness = 0.5;
  options.arrivals.rate = 25;
  options.arrivals.num_requests = requests;
  options.lengths = model_pairs(uniform_lengths(1024, 0.5), uniform_lengths(256, 0.5), 0, 1);
  return generate(std::move(options));
}

// A file that exists once per format and goes with the process.
class BenchFile {
 public:
  explicit BenchFile(const std::string& format)
      : path_(std::filesystem::temp_directory_path() / fmt::format("kneepoint_bench.{}", format)) {
    ExportOptions options;
    options.format = format;
    options.source = "bench";
    const auto sink = export_trace(path_, options);
    const auto records = workload(kRequests);
    for (TraceRecord record; records->next(record);) sink->add(record);
    sink->finish();
  }
  ~BenchFile() { std::filesystem::remove(path_); }
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void count(benchmark::State& state, std::uint64_t records, std::uint64_t bytes) {
  const auto iterations = static_cast<std::uint64_t>(state.iterations());
  state.SetItemsProcessed(static_cast<std::int64_t>(records * iterations));
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes * iterations));
}

void BM_ReadPb(benchmark::State& state) {
  const BenchFile file("pb");
  for (auto _ : state) {
    TraceReader reader(file.path());
    std::int64_t tokens = 0;
    for (TraceRecord record; reader.next(record);) tokens += record.prompt_tokens;
    benchmark::DoNotOptimize(tokens);
  }
  count(state, kRequests, std::filesystem::file_size(file.path()));
}
BENCHMARK(BM_ReadPb)->Unit(benchmark::kMillisecond);

void read_as(benchmark::State& state, const std::string& format) {
  const BenchFile file(format);
  for (auto _ : state) {
    const auto importer = import_trace(file.path(), {});
    std::int64_t tokens = 0;
    for (TraceRecord record; importer->next(record);) tokens += record.prompt_tokens;
    benchmark::DoNotOptimize(tokens);
  }
  count(state, kRequests, std::filesystem::file_size(file.path()));
}
BENCHMARK_CAPTURE(read_as, csv, "csv")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(read_as, jsonl, "jsonl")->Unit(benchmark::kMillisecond);

// Dates cost more than numbers: rows as Azure writes them.
void BM_ReadAzure(benchmark::State& state) {
  const auto path = std::filesystem::temp_directory_path() / "kneepoint_bench_azure.csv";
  {
    std::ofstream out(path, std::ios::binary);
    out << "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      out << fmt::format("2023-11-16 {:02}:{:02}:{:02}.{:07},{},{}\n", i / 360'000, i / 6'000 % 60,
                         i / 100 % 60, i % 100 * 100'000, 1 + i % 4000, 1 + i % 300);
    }
  }
  for (auto _ : state) {
    const auto importer = import_trace(path, {});
    std::int64_t tokens = 0;
    for (TraceRecord record; importer->next(record);) tokens += record.prompt_tokens;
    benchmark::DoNotOptimize(tokens);
  }
  count(state, kRequests, std::filesystem::file_size(path));
  std::filesystem::remove(path);
}
BENCHMARK(BM_ReadAzure)->Unit(benchmark::kMillisecond);

void BM_Generate(benchmark::State& state) {
  for (auto _ : state) {
    const auto records = workload(kRequests);
    std::int64_t tokens = 0;
    for (TraceRecord record; records->next(record);) tokens += record.prompt_tokens;
    benchmark::DoNotOptimize(tokens);
  }
  count(state, kRequests, 0);
}
BENCHMARK(BM_Generate)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kneepoint::traces

BENCHMARK_MAIN();
