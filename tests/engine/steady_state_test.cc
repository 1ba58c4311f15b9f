// A busy engine stops allocating: this binary counts every call of operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "engine/vllm_v1.h"

namespace {

std::int64_t num_allocations = 0;

void* counted(std::size_t size) {
  ++num_allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace kneepoint::engine {
namespace {

class SharedStarts final : public BlockKeySource {
 public:
  /// The first two blocks are everyone's, the others their request's own.
  BlockKey block_key(RequestId id, std::int32_t index) override {
    return {.high = index < 2 ? 0 : id + 1, .low = static_cast<std::uint64_t>(index)};
  }
};

// Sixteen requests, whoever ends is replaced; few enough blocks that some are preempted.
TEST(SteadyState, ALongRunAllocatesNothingAfterItsFirstSteps) {
  SchedulerConfig config;
  config.num_blocks = 40;
  config.max_num_seqs = 32;
  config.async_scheduling = true;
  SharedStarts keys;
  VllmV1 engine(config, keys);
  StepPlan plan;
  StepResult result;
  StepOutcome outcome;
  RequestId next = 0;
  const auto arrive = [&] {
    engine.add_request(
        {.id = next, .prompt_tokens = 40 + static_cast<std::int32_t>(next % 30), .max_tokens = 30});
    next += 1'000;  // Sparse ids.
  };
  for (int i = 0; i < 16; ++i) {
    arrive();
  }
  std::int64_t preempted = 0;
  engine.plan_step(plan);
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      engine.plan_step(plan);
      preempted += std::ssize(plan.preempted);
      engine.update(result, outcome);
      for (const EmittedTokens& emitted : outcome.emitted) {
        if (emitted.finish != FinishReason::kNone) {
          arrive();
        }
      }
    }
  };
  run(5'000);
  const std::int64_t before = num_allocations;
  preempted = 0;
  run(20'000);
  EXPECT_EQ(num_allocations, before);
  EXPECT_GT(preempted, 100);
  EXPECT_GT(engine.prefix_cache_stats().resumed_hit_tokens, 0);
}

}  // namespace
}  // namespace kneepoint::engine
