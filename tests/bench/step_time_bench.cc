// What a simulation pays for a step's time: less than 100 ns (hw/compiled_step.h).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "hw/roofline_step.h"

namespace kneepoint::hw {
namespace {

std::unique_ptr<RooflineStep> llama_on_h100() {
  Deployment deployment;
  deployment.model = load_model("llama-3.1-8b");
  deployment.gpu = load_gpu("h100");
  return make_roofline_step(deployment);
}

// A batch that goes on: each step a token more for all, as between two arrivals.
void BM_DecodeSteps(benchmark::State& state) {
  const std::unique_ptr<RooflineStep> model = llama_on_h100();
  const std::int64_t count = state.range(0);
  StepShape step;
  step.num_tokens = step.padded_tokens = step.num_sampled = count;
  std::int64_t context = 500;
  for (auto _ : state) {
    context = context < 1500 ? context + 1 : 500;
    step.decodes = {count, count * context, context + 100, {}};
    benchmark::DoNotOptimize(model->step_time(step));
  }
}
BENCHMARK(BM_DecodeSteps)->Arg(1)->Arg(64)->Arg(256);

// Batches that jump: counts and contexts of 4096 different steps, tables warm.
void BM_DecodeStepsAtRandom(benchmark::State& state) {
  const std::unique_ptr<RooflineStep> model = llama_on_h100();
  std::vector<StepShape> steps(4096);
  std::uint64_t random = 1;
  for (StepShape& step : steps) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto count = static_cast<std::int64_t>(1 + (random >> 33) % 256);
    const auto context = static_cast<std::int64_t>(100 + (random >> 41) % 2000);
    step.decodes = {count, count * context, context + 100, {}};
    step.num_tokens = step.padded_tokens = step.num_sampled = count;
    benchmark::DoNotOptimize(model->step_time(step));
  }
  std::size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(model->step_time(steps[i]));
    i = (i + 1) % steps.size();
  }
}
BENCHMARK(BM_DecodeStepsAtRandom);

// A prompt's chunk beside 64 decodes.
void BM_StepWithChunk(benchmark::State& state) {
  const std::unique_ptr<RooflineStep> model = llama_on_h100();
  const Chunk chunk{1984, 0};
  StepShape step;
  step.decodes = {64, 64000, 1200, {}};
  step.chunks = {&chunk, 1};
  step.num_tokens = step.padded_tokens = 2048;
  step.num_sampled = 65;
  step.graph_mode = GraphMode::kNone;
  for (auto _ : state) {
    step.decodes.context_sum = step.decodes.context_sum < 80000 ? step.decodes.context_sum + 64 : 64000;
    benchmark::DoNotOptimize(model->step_time(step));
  }
}
BENCHMARK(BM_StepWithChunk);

// A thousand decode steps at once.
void BM_DecodeRun(benchmark::State& state) {
  const std::unique_ptr<RooflineStep> model = llama_on_h100();
  StepShape step;
  step.decodes = {64, 64 * 500, 600, {}};
  step.num_tokens = step.padded_tokens = step.num_sampled = 64;
  std::vector<StepTime> times(1000);
  for (auto _ : state) {
    model->decode_run(step, times);
    benchmark::DoNotOptimize(times.data());
  }
}
BENCHMARK(BM_DecodeRun);

}  // namespace
}  // namespace kneepoint::hw

BENCHMARK_MAIN();
