// No step, and no operator, is ever predicted faster than the silicon allows.
//
// The floors here are worked out from config.json facts and data-sheet rates by
// code of this file alone: what one token needs of each weight matrix, what
// attention needs of each pair of tokens, what has to be read at least once. They
// are divided by the number of GPUs and by nothing else, so they hold for any way
// to split a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <boost/random/uniform_real_distribution.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "hw/roofline_step.h"
#include "hw/roofline_times.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

using Random = boost::random::mt19937_64;

// Two ways to the same number may differ in the last digit.
constexpr double kRounding = 1 + 1e-12;

std::int64_t draw(Random& random, std::int64_t from, std::int64_t to) {
  return boost::random::uniform_int_distribution<std::int64_t>(from, to)(random);
}

std::int64_t draw_size(Random& random, std::int64_t from, std::int64_t to) {
  const double log = boost::random::uniform_real_distribution<double>(
      std::log(static_cast<double>(from)), std::log(static_cast<double>(to)))(random);
  return std::llround(std::exp(log));
}

// Weights that one token is multiplied with in one layer.
double layer_weights(const ModelArch& m, bool moe) {
  const double hidden = static_cast<double>(m.hidden_size), heads = static_cast<double>(m.num_heads);
  double attention = 0;
  if (m.kv_lora_rank > 0) {
    const double nope = static_cast<double>(m.qk_nope_head_dim),
                 rope = static_cast<double>(m.qk_rope_head_dim);
    const double latent = static_cast<double>(m.kv_lora_rank), q_latent = static_cast<double>(m.q_lora_rank);
    const double value = static_cast<double>(m.v_head_dim);
    attention = hidden * (latent + rope) + heads * value * hidden + heads * latent * (nope + value);
    attention +=
        q_latent > 0 ? hidden * q_latent + q_latent * heads * (nope + rope) : hidden * heads * (nope + rope);
  } else {
    const double head = static_cast<double>(m.head_size), kv_heads = static_cast<double>(m.num_kv_heads);
    attention = hidden * head * (2 * heads + 2 * kv_heads);
  }
  const double mlp = moe ? 3 * hidden * static_cast<double>(m.moe_intermediate_size) *
                               static_cast<double>(m.experts_per_token + m.num_shared_experts)
                         : 3 * hidden * static_cast<double>(m.intermediate_size);
  return attention + mlp;
}

struct Floor {
  double flops = 0;
  double bytes = 0;
};

// Of the whole model, for all GPUs together.
Floor model_floor(const Deployment& d, const StepShape& step) {
  const ModelArch& m = d.model;
  const double weight = d.weights == Precision::kBf16 ? 2 : d.weights == Precision::kFp8 ? 1 : 0.5;
  const double kv_byte = d.kv_cache == Precision::kFp8 ? 1 : 2;
  const bool mla = m.kv_lora_rank > 0;
  const double kv_values = mla ? static_cast<double>(m.kv_lora_rank + m.qk_rope_head_dim)
                               : 2 * static_cast<double>(m.num_kv_heads * m.head_size);
  // A pair of tokens costs a product of the key's width and one of the value's in each head.
  const double pair_flops =
      mla ? 2 * static_cast<double>(m.num_heads * (m.qk_nope_head_dim + m.qk_rope_head_dim + m.v_head_dim))
          : 4 * static_cast<double>(m.num_heads * m.head_size);
  const double tokens = static_cast<double>(step.num_tokens);
  Floor floor;
  for (const LayerGroup& group : m.layers) {
    const double layers = static_cast<double>(group.count);
    // A rank's experts may not be asked for; bytes of experts are counted where every rank holds a slice of
    // each.
    const double read = group.moe && d.enable_expert_parallel ? 0 : layer_weights(m, group.moe);
    floor.flops += layers * 2 * tokens * layer_weights(m, group.moe) * (mla ? 0.5 : 1);
    floor.bytes += layers * weight * read * (mla ? 0.5 : 1);
    const auto seen = [&](std::int64_t context) {
      return static_cast<double>(group.attention_window > 0 ? std::min(context, group.attention_window)
                                                            : context);
    };
    double pairs = 0, keys = 0;
    if (step.decodes.count > 0 && group.attention_window == 0) {
      pairs += static_cast<double>(step.decodes.context_sum);
      keys += static_cast<double>(step.decodes.context_sum);
    }
    for (const Chunk& chunk : step.chunks) {
      for (std::int64_t i = 1; i <= chunk.num_tokens; ++i) pairs += seen(chunk.num_computed_tokens + i);
      keys += seen(chunk.num_computed_tokens + chunk.num_tokens);
    }
    floor.flops += layers * pair_flops * pairs;
    floor.bytes += layers * kv_values * kv_byte * keys;
  }
  const double head = static_cast<double>(m.hidden_size * m.vocab_size);
  if (step.num_sampled > 0) {
    floor.flops += 2 * head * static_cast<double>(step.num_sampled);
    floor.bytes += 2 * head;
  }
  return floor;
}

double floor_s(const Deployment& d, const Floor& floor) {
  // Products of bf16 weights (LM head, attention) cannot use the fp8 peak, but the bound stays a bound.
  const double peak = d.weights == Precision::kFp8 ? d.gpu.fp8_flops_per_s : d.gpu.bf16_flops_per_s;
  const double gpus = static_cast<double>(d.tensor_parallel_size * d.pipeline_parallel_size);
  return std::max(floor.flops / peak, floor.bytes / d.gpu.bandwidth_bytes_per_s) / gpus;
}

Deployment random_deployment(Random& random) {
  Deployment d;
  d.model =
      load_model(model_names()[static_cast<std::size_t>(draw(random, 0, std::ssize(model_names()) - 1))]);
  d.gpu = load_gpu(gpu_names()[static_cast<std::size_t>(draw(random, 0, std::ssize(gpu_names()) - 1))]);
  d.weights = static_cast<Precision>(draw(random, 0, 2));
  d.static_fp8_scales = draw(random, 0, 1) == 1;
  d.kv_cache = static_cast<Precision>(draw(random, 0, 1));
  const std::int64_t splits[] = {1, 2, 4, 8};
  do {
    d.tensor_parallel_size = splits[draw(random, 0, 3)];
  } while (d.model.num_heads % d.tensor_parallel_size != 0);
  d.pipeline_parallel_size = draw(random, 0, 3) == 0 ? draw(random, 2, 4) : 1;
  d.enable_expert_parallel = draw(random, 0, 1) == 1;
  return d;
}

StepShape random_step(Random& random, std::vector<Chunk>& chunks) {
  StepShape step;
  chunks.clear();
  const std::int64_t kind = draw(random, 0, 2);
  if (kind != 1) {
    const std::int64_t count = draw_size(random, 1, 512), mean = draw_size(random, 1, 50000);
    step.decodes = {count, count * mean, mean + draw(random, 0, count > 1 ? mean : 0), {}};
  }
  if (kind > 0) {
    const std::int64_t many = draw(random, 1, 4);
    for (std::int64_t i = 0; i < many; ++i) {
      chunks.push_back(
          {draw_size(random, 2, 8192), draw(random, 0, 1) == 0 ? 0 : draw_size(random, 1, 100000)});
    }
    step.chunks = chunks;
    step.graph_mode = GraphMode::kNone;
  }
  step.num_tokens = step.decodes.count;
  for (const Chunk& chunk : chunks) step.num_tokens += chunk.num_tokens;
  step.padded_tokens = step.num_tokens;
  step.num_sampled = step.num_requests();
  return step;
}

std::unique_ptr<RooflineStep> without_server(const Deployment& d) {
  return std::make_unique<RooflineStep>(d, choose_operator_times(d.gpu, ""), ServerCosts{});
}

TEST(FloorTest, NoStepIsFasterThanPeakAllows) {
  Random random(2026);
  std::vector<Chunk> chunks;
  for (int i = 0; i < 120; ++i) {
    const Deployment d = random_deployment(random);
    // Nothing that the server adds may be needed to stay above.
    const std::unique_ptr<RooflineStep> model = without_server(d);
    for (int j = 0; j < 12; ++j) {
      const StepShape step = random_step(random, chunks);
      const StepTime time = model->step_time(step);
      const double least = floor_s(d, model_floor(d, step));
      const std::string what =
          d.model.name + " " + d.gpu.name + " TP " + std::to_string(d.tensor_parallel_size) + " PP " +
          std::to_string(d.pipeline_parallel_size) + ", " + std::to_string(step.num_tokens) + " tokens";
      ASSERT_GE(static_cast<double>(time.device.count()) * 1e-9, least) << what;
      const double stages = static_cast<double>(d.pipeline_parallel_size);
      ASSERT_GE(static_cast<double>((time.device + time.pipeline).count()) * 1e-9, least * stages) << what;
      ASSERT_GE(model->device_seconds(step), least) << what;
    }
  }
}

TEST(FloorTest, NoMatrixProductIsFasterThanPeakAllows) {
  Random random(11);
  for (const std::string& name : gpu_names()) {
    const GpuSpec gpu = load_gpu(name);
    const std::unique_ptr<OperatorTimes> times = choose_operator_times(gpu, "");
    for (int i = 0; i < 3000; ++i) {
      const GemmShape s{.precision = static_cast<Precision>(draw(random, 0, 2)),
                        .m = draw_size(random, 1, 100000),
                        .n = draw_size(random, 16, 200000),
                        .k = draw_size(random, 16, 60000),
                        .static_scales = draw(random, 0, 1) == 1};
      const double m = static_cast<double>(s.m), n = static_cast<double>(s.n), k = static_cast<double>(s.k);
      const bool fp8 = s.precision == Precision::kFp8;
      const double weight = s.precision == Precision::kBf16 ? 2 : fp8 ? 1 : 0.5;
      const double compute = 2 * m * n * k / (fp8 ? gpu.fp8_flops_per_s : gpu.bf16_flops_per_s);
      const double bytes = weight * n * k + (fp8 ? 1 : 2) * m * k + 2 * m * n;
      ASSERT_GE(times->gemm(s, CacheState::kCold).seconds * kRounding,
                std::max(compute, bytes / gpu.bandwidth_bytes_per_s))
          << name << " " << s.m << " " << s.n << " " << s.k;
      ASSERT_GE(times->gemm(s, CacheState::kWarm).seconds * kRounding,
                std::max(compute, bytes / gpu.l2_bandwidth_bytes_per_s))
          << name << " warm " << s.m << " " << s.n << " " << s.k;
    }
  }
}

TEST(FloorTest, NoAttentionIsFasterThanPeakAllows) {
  Random random(12);
  for (const std::string& name : gpu_names()) {
    const GpuSpec gpu = load_gpu(name);
    const std::unique_ptr<OperatorTimes> times = choose_operator_times(gpu, "");
    for (int i = 0; i < 3000; ++i) {
      const std::int64_t kv_heads = std::int64_t{1} << draw(random, 0, 3);
      const std::int64_t heads = kv_heads << draw(random, 0, 4);
      const Precision kv = static_cast<Precision>(draw(random, 0, 1));
      const double kv_byte = kv == Precision::kFp8 ? 1 : 2, d = 128;
      const std::int64_t count = draw_size(random, 1, 1024), mean = draw_size(random, 1, 100000);
      const double sum = static_cast<double>(count * mean), h = static_cast<double>(heads);
      const double kv_values = 2 * d * static_cast<double>(kv_heads);
      ASSERT_GE(
          times->decode_attention({kv, count, count * mean, mean, heads, kv_heads, 128}, CacheState::kCold)
              .seconds,
          std::max(4 * d * h * sum / gpu.bf16_flops_per_s,
                   kv_values * kv_byte * sum / gpu.bandwidth_bytes_per_s))
          << name << " " << count << " sequences at " << mean;

      const std::int64_t new_tokens = draw_size(random, 1, 50000), old = draw_size(random, 1, 50000) - 1;
      const double n = static_cast<double>(new_tokens), p = static_cast<double>(old);
      const double compute = 4 * d * h * (n * p + n * (n + 1) / 2) / gpu.bf16_flops_per_s;
      const double bytes = 4 * d * h * n + kv_values * kv_byte * (n + p);
      ASSERT_GE(times->prefill_attention({kv, 1, new_tokens, old, heads, kv_heads, 128}).seconds * kRounding,
                std::max(compute, bytes / gpu.bandwidth_bytes_per_s))
          << name << " " << new_tokens << " new over " << old;
    }
  }
}

// Monotone: the same step with one thing more never takes less.

enum class More { kDecode, kContext, kLongest, kChunk, kChunkTokens, kChunkContext, kLast = kChunkContext };

TEST(MonotoneTest, MoreNeverTakesLess) {
  Random random(5);
  std::vector<Chunk> chunks;
  for (int i = 0; i < 60; ++i) {
    const Deployment d = random_deployment(random);
    const std::unique_ptr<RooflineStep> model = without_server(d);
    for (int j = 0; j < 40; ++j) {
      StepShape step = random_step(random, chunks);
      if (!chunks.empty()) step.graph_mode = GraphMode::kNone;
      const StepTime before = model->step_time(step);
      const auto what = static_cast<More>(draw(random, 0, static_cast<std::int64_t>(More::kLast)));
      const std::int64_t by = draw_size(random, 1, 1000);
      if (what == More::kDecode) {
        step.decodes.count += 1;
        step.decodes.context_sum += by;
        step.decodes.context_max = std::max(step.decodes.context_max, by);
      } else if (what == More::kContext && step.decodes.count > 1) {
        step.decodes.context_sum += by;
        step.decodes.context_max =
            std::max(step.decodes.context_max, (step.decodes.context_sum - 1) / step.decodes.count + 1);
      } else if (what == More::kLongest && step.decodes.count > 1) {
        step.decodes.context_max += by;
        step.decodes.context_sum += by;
      } else if (what == More::kChunk) {
        chunks.push_back({by + 1, draw(random, 0, 1000)});
      } else if (what == More::kChunkTokens && !chunks.empty()) {
        chunks.back().num_tokens += by;
      } else if (what == More::kChunkContext && !chunks.empty()) {
        chunks.front().num_computed_tokens += by;
      } else {
        continue;
      }
      step.chunks = chunks;
      if (!chunks.empty()) step.graph_mode = GraphMode::kNone;
      step.num_tokens = step.decodes.count;
      for (const Chunk& chunk : chunks) step.num_tokens += chunk.num_tokens;
      step.padded_tokens = step.num_tokens;
      step.num_sampled = step.num_requests();
      const StepTime after = model->step_time(step);
      ASSERT_GE(after.device, before.device)
          << d.model.name << " " << d.gpu.name << " more " << static_cast<int>(what) << " by " << by << ": "
          << step.decodes.count << " decodes, sum " << step.decodes.context_sum << ", longest "
          << step.decodes.context_max << ", " << chunks.size() << " chunks, " << step.num_tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace kneepoint::hw
