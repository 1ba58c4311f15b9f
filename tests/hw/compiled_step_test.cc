// The tables against the smooth reference: off by at most 0.1 %, never falling,
// and runs of steps equal to the nanosecond to single ones.
#include "hw/compiled_step.h"

#include <gtest/gtest.h>

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <boost/random/uniform_real_distribution.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "hw/lattice.h"
#include "hw/roofline_step.h"
#include "hw/roofline_times.h"

namespace kneepoint::hw {
namespace {

using Random = boost::random::mt19937_64;

std::int64_t draw(Random& random, std::int64_t from, std::int64_t to) {
  return boost::random::uniform_int_distribution<std::int64_t>(from, to)(random);
}

// Even in the logarithm.
std::int64_t draw_size(Random& random, std::int64_t from, std::int64_t to) {
  const double log = boost::random::uniform_real_distribution<double>(
      std::log(static_cast<double>(from)), std::log(static_cast<double>(to)))(random);
  return std::llround(std::exp(log));
}

TEST(LatticeTest, ExactBelowThenFourToAnOctave) {
  struct Case {
    std::int64_t value, index, begin, width;
  };
  const Case cases[] = {{0, 0, 0, 1},   {7, 7, 7, 1},    {8, 8, 8, 2},    {9, 8, 8, 2},
                        {10, 9, 10, 2}, {15, 11, 14, 2}, {16, 12, 16, 4}, {31, 15, 28, 4}};
  for (const Case& c : cases) {
    const LatticeCell cell = lattice_cell(c.value, 2);
    EXPECT_EQ(cell.index, c.index) << c.value;
    EXPECT_EQ(cell.begin, c.begin) << c.value;
    EXPECT_EQ(cell.width, c.width) << c.value;
  }
}

struct Case {
  const char* model;
  const char* gpu;
  std::int64_t tp;
  Precision weights;
  Precision kv;
};

const Case kCases[] = {
    {"llama-3.1-8b", "h100", 1, Precision::kBf16, Precision::kBf16},
    {"llama-3.3-70b", "h200", 2, Precision::kFp8, Precision::kFp8},
    {"qwen3-32b", "l40s", 4, Precision::kFp8, Precision::kBf16},
    {"qwen3-30b-a3b", "h100", 2, Precision::kFp8, Precision::kBf16},
    {"deepseek-v3", "h200", 8, Precision::kFp8, Precision::kBf16},
    {"llama-3.1-8b", "a100", 1, Precision::kInt4, Precision::kBf16},
};

std::unique_ptr<RooflineStep> make(const Case& c) {
  Deployment deployment;
  deployment.model = load_model(c.model);
  deployment.gpu = load_gpu(c.gpu);
  deployment.tensor_parallel_size = c.tp;
  deployment.weights = c.weights;
  deployment.kv_cache = c.kv;
  return make_roofline_step(deployment);
}

// A step as servers have them. `chunks` is the storage of its chunks.
StepShape random_step(Random& random, std::vector<Chunk>& chunks) {
  StepShape step;
  chunks.clear();
  const std::int64_t kind = draw(random, 0, 3);
  if (kind != 1) {
    const std::int64_t count = draw_size(random, 1, 512);
    const std::int64_t mean = draw_size(random, 1, 32768);
    // Contexts from equal to very uneven; the longest is at most the sum of all.
    const std::int64_t sum = count * mean;
    const std::int64_t longest = std::min(sum - (count - 1), mean * draw(random, 10, 40) / 10);
    step.decodes = {count, sum, std::max(longest, mean), {}};
  }
  if (kind > 0) {
    const std::int64_t many = draw_size(random, 1, 12);
    for (std::int64_t i = 0; i < many; ++i) {
      const std::int64_t computed = draw(random, 0, 1) == 0 ? 0 : draw_size(random, 1, 100000);
      chunks.push_back({kind == 3 ? draw(random, 2, 8) : draw_size(random, 2, 4096), computed});
    }
    step.chunks = chunks;
    step.graph_mode = draw(random, 0, 1) == 0 ? GraphMode::kNone : GraphMode::kPiecewise;
  }
  step.num_tokens = step.decodes.count;
  for (const Chunk& chunk : chunks) step.num_tokens += chunk.num_tokens;
  step.padded_tokens = step.num_tokens;
  step.num_sampled = step.num_requests();
  return step;
}

TEST(CompiledStepTest, IsWithinATenthOfAPercentOfTheReference) {
  for (const Case& c : kCases) {
    const std::unique_ptr<RooflineStep> model = make(c);
    Random random(7);
    std::vector<Chunk> chunks;
    for (int i = 0; i < 1500; ++i) {
      const StepShape step = random_step(random, chunks);
      const double reference = model->device_seconds(step) * 1e9;
      const auto compiled = static_cast<double>(model->step_time(step).device.count());
      ASSERT_NEAR(compiled / reference, 1, 0.001)
          << c.model << " " << c.gpu << ": " << step.decodes.count << " decodes, context "
          << step.decodes.context_sum << ", longest " << step.decodes.context_max << ", " << chunks.size()
          << " chunks";
    }
  }
}

TEST(CompiledStepTest, NeverFallsFromStepToStep) {
  // Every context longer, token by token, across the tables' knots.
  for (const Case& c : kCases) {
    const std::unique_ptr<RooflineStep> model = make(c);
    for (const std::int64_t count : {1, 2, 5, 48}) {
      StepShape step;
      step.num_tokens = step.padded_tokens = step.num_sampled = count;
      std::chrono::nanoseconds before{0};
      for (std::int64_t context = 1; context < 3000; ++context) {
        step.decodes = {count, count * context, context, {}};
        const std::chrono::nanoseconds now = model->step_time(step).device;
        ASSERT_GE(now, before) << c.model << " " << c.gpu << " " << count << " at " << context;
        before = now;
      }
    }
  }
}

TEST(CompiledStepTest, RunsEqualTheirSingleStepsToTheNanosecond) {
  for (const Case& c : kCases) {
    const std::unique_ptr<RooflineStep> model = make(c);
    Random random(3);
    for (int i = 0; i < 60; ++i) {
      StepShape step;
      const std::int64_t count = draw_size(random, 1, 200), mean = draw_size(random, 1, 20000);
      step.decodes = {count, count * mean, mean + draw(random, 0, count > 1 ? mean : 0), {}};
      step.num_tokens = step.padded_tokens = step.num_sampled = count;
      step.graph_mode = draw(random, 0, 1) == 0 ? GraphMode::kFull : GraphMode::kNone;
      std::vector<StepTime> at_once(static_cast<std::size_t>(draw_size(random, 1, 2000)));
      model->decode_run(step, at_once);
      for (std::size_t n = 0; n < at_once.size(); ++n) {
        const StepTime single = model->step_time(step);
        ASSERT_EQ(at_once[n].device, single.device)
            << c.model << " " << count << " sequences at " << mean << ", step " << n;
        ASSERT_EQ(at_once[n].host, single.host);
        ASSERT_EQ(at_once[n].pipeline, single.pipeline);
        step.decodes.context_sum += count;
        step.decodes.context_max += 1;
      }
    }
  }
}

TEST(CompiledStepTest, DoesNotDependOnWhatWasAskedBefore) {
  const std::unique_ptr<RooflineStep> fresh = make(kCases[0]);
  const std::unique_ptr<RooflineStep> used = make(kCases[0]);
  Random random(9);
  std::vector<Chunk> chunks;
  for (int i = 0; i < 500; ++i) (void)used->step_time(random_step(random, chunks));
  for (int i = 0; i < 100; ++i) {
    const StepShape step = random_step(random, chunks);
    EXPECT_EQ(fresh->step_time(step).device, used->step_time(step).device);
  }
}

}  // namespace
}  // namespace kneepoint::hw
