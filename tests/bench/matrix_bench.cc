// The standard benchmark as a whole, as `simulate matrix` runs it by default.
// Asked for: below 5 s on two cores.
#include <benchmark/benchmark.h>


#include "sim/matrix.h"
#include "sim/matrix_report.h"

namespace kneepoint::sim {
namespace {

void matrix(benchmark::State& state, const char* model, const char* gpu) {
  pb::RunConfig asked;
  asked.set_model(model);
  asked.set_gpu(gpu);
  asked.set_quantization("fp8");
  MatrixOptions options;
  options.threads = 2;
  for (auto _ : state) {
    benchmark::DoNotOptimize(matrix_json(run_matrix(asked, options)));
  }
}

BENCHMARK_CAPTURE(matrix, Llama8B_H100, "llama-3.1-8b", "h100")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(1);
BENCHMARK_CAPTURE(matrix, Qwen32B_H200, "qwen3-32b", "h200")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(1);

}  // namespace
}  // namespace kneepoint::sim

BENCHMARK_MAIN();
