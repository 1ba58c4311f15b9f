// How long a decision takes: plan_step() + update() with 256 running requests, and
// the block pool alone.
//
//     build/release/bin/engine_bench --benchmark_counters_tabular=true
//
// The engine's cost must vanish beside the rest of the simulation: tens of
// nanoseconds per running request and step.
#include <benchmark/benchmark.h>

#include <vector>

#include "engine/block_pool.h"
#include "engine/vllm_v1.h"

namespace kneepoint::engine {
namespace {

/// Every block has a key of its own: registered and evicted like any other, hit by nobody else.
class UnsharedKeys final : public BlockKeySource {
 public:
  BlockKey block_key(RequestId id, std::int32_t index) override {
    return {.high = id, .low = static_cast<std::uint64_t>(index)};
  }
};

/// Keeps `running` requests of 1000 prompt and 200 output tokens in the engine: who ends is replaced.
class ClosedLoop {
 public:
  ClosedLoop(const SchedulerConfig& config, std::int64_t running)
      : scheduler_(config, keys_), depth_(batches_in_flight(config)) {
    for (std::int64_t i = 0; i < running; ++i) {
      arrive(static_cast<std::int32_t>(1 + i % 200));  // So that they end one after the other.
    }
    for (int i = 0; i < 400; ++i) {
      step();
    }
  }

  void step() {
    scheduler_.plan_step(plan_);
    requests_ += plan_.num_requests();
    ++planned_;
    if (planned_ - updated_ < depth_) {
      return;
    }
    scheduler_.update(nothing_special_, outcome_);
    ++updated_;
    for (const EmittedTokens& emitted : outcome_.emitted) {
      if (emitted.finish != FinishReason::kNone) {
        arrive(200);
      }
    }
  }

  [[nodiscard]] std::int64_t requests() const { return requests_; }

 private:
  void arrive(std::int32_t max_tokens) {
    scheduler_.add_request({.id = next_id_++, .prompt_tokens = 1000, .max_tokens = max_tokens});
  }

  UnsharedKeys keys_;
  VllmV1 scheduler_;
  std::int64_t depth_;
  StepPlan plan_;
  StepOutcome outcome_;
  StepResult nothing_special_;
  RequestId next_id_ = 0;
  std::int64_t planned_ = 0;
  std::int64_t updated_ = 0;
  std::int64_t requests_ = 0;
};

SchedulerConfig server(bool caching, bool async) {
  SchedulerConfig config;
  config.max_num_batched_tokens = 8192;
  config.max_num_seqs = 1024;
  config.num_blocks = 30'000;
  config.enable_prefix_caching = caching;
  config.async_scheduling = async;
  config.use_v2_model_runner = async;
  return config;
}

void BM_PlanAndUpdate(benchmark::State& state) {
  const SchedulerConfig config = server(state.range(1) != 0, state.range(2) != 0);
  ClosedLoop loop(config, state.range(0));
  const std::int64_t before = loop.requests();
  for (auto _ : state) {
    loop.step();
  }
  const auto requests = static_cast<double>(loop.requests() - before);
  state.counters["per_request"] =
      benchmark::Counter(requests, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_PlanAndUpdate)
    ->ArgNames({"running", "caching", "async"})
    ->ArgsProduct({{256}, {0, 1}, {0, 1}})
    ->Args({1024, 1, 1});

/// A request's life in the pool: take 64 blocks, give each a key, free them; the pool stays full of old keys.
void BM_PoolTakeRegisterFree(benchmark::State& state) {
  const bool keyed = state.range(0) != 0;
  BlockPool pool(10'000);
  std::vector<BlockId> table;
  std::uint64_t content = 0;
  for (auto _ : state) {
    table.clear();
    for (int i = 0; i < 64; ++i) {
      table.push_back(pool.take());
      if (keyed) {
        pool.register_key(table.back(), {.high = content++, .low = 0});
      }
    }
    pool.free_tail_first(table);
  }
  state.SetItemsProcessed(state.iterations() * 64);
}
BENCHMARK(BM_PoolTakeRegisterFree)->ArgName("keyed")->Arg(0)->Arg(1);

/// Lookups that hit and take the block back, in the order of a conversation's next turn.
void BM_PoolFindAndTouch(benchmark::State& state) {
  BlockPool pool(10'000);
  std::vector<BlockId> table;
  for (std::uint64_t i = 0; i < 64; ++i) {
    table.push_back(pool.take());
    pool.register_key(table.back(), {.high = i, .low = 0});
  }
  pool.free_tail_first(table);
  for (auto _ : state) {
    for (std::uint64_t i = 0; i < 64; ++i) {
      pool.touch(pool.find({.high = i, .low = 0}));
    }
    pool.free_tail_first(table);
  }
  state.SetItemsProcessed(state.iterations() * 64);
}
BENCHMARK(BM_PoolFindAndTouch);

}  // namespace
}  // namespace kneepoint::engine

BENCHMARK_MAIN();
