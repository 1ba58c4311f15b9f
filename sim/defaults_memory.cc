// How many KV blocks there are, and whether that will do: vLLM's checks at
// startup, with a way out where it would not start.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hw/deployment.h"
#include "sim/defaults_parts.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

constexpr std::int64_t kLeastBlocks = 2;  // The null block and one more.

// Blocks that one request of max_model_len holds at once, beside the null block
// (spec of vLLM 0.32, 5.7; a window keeps only what can still be seen, 4.9).
std::int64_t blocks_of_longest(const engine::SchedulerConfig& e) {
  std::int64_t tokens = e.max_model_len;
  if (e.sliding_window) {
    const std::int64_t in_flight = batches_in_flight(e) * e.max_num_batched_tokens;
    tokens = std::min(*e.sliding_window - 1 + in_flight, tokens);
    return (tokens + e.block_size - 1) / e.block_size + 1;
  }
  return (tokens + e.block_size - 1) / e.block_size;
}

bool holds_longest(const hw::MemoryBudget& memory, const engine::SchedulerConfig& e) {
  return memory.num_blocks >= kLeastBlocks && blocks_of_longest(e) + 1 <= memory.num_blocks;
}

// The smallest tensor parallel size above the one asked for that `d` runs on; 0 if none.
std::int64_t fewest_gpus(hw::Deployment d, const engine::SchedulerConfig& e, std::int64_t from) {
  for (d.tensor_parallel_size = from; d.tensor_parallel_size <= 64; d.tensor_parallel_size *= 2) {
    if (d.model.num_heads % d.tensor_parallel_size == 0 && holds_longest(hw::size_memory(d), e)) {
      return d.tensor_parallel_size;
    }
  }
  return 0;
}

// "-tp 4, or --quantization fp8 and -tp 2".
std::string ways_to_fit(const RunConfig& config) {
  const hw::Deployment& d = config.deployment;
  std::vector<std::string> ways;
  const std::int64_t gpus = fewest_gpus(d, config.engine, 2 * d.tensor_parallel_size);
  if (gpus > 0) {
    ways.push_back(fmt::format("-tp {}", gpus));
  }
  if (d.weights == hw::Precision::kBf16) {
    hw::Deployment in_fp8 = d;
    in_fp8.weights = hw::Precision::kFp8;
    const std::int64_t fewer = fewest_gpus(in_fp8, config.engine, d.tensor_parallel_size);
    if (fewer == d.tensor_parallel_size) {
      ways.emplace_back("--quantization fp8");
    } else if (fewer > 0 && (gpus == 0 || fewer < gpus)) {
      ways.push_back(fmt::format("--quantization fp8 and -tp {}", fewer));
    }
  }
  return ways.empty() ? "a smaller --max-model-len or a GPU with more memory"
                      : fmt::format("{}", fmt::join(ways, ", or "));
}

[[noreturn]] void refuse_model(const RunConfig& config) {
  const hw::MemoryBudget& m = config.memory;
  const double beside = m.activations + m.cuda_graphs + m.other;
  const double one_block = 2.0 * static_cast<double>(m.block_bytes);
  throw CannotRun(
      fmt::format("{} does not fit: {:.1f} GiB of weights and {:.1f} GiB beside them per GPU, of which vLLM "
                  "may use {:.1f} GiB: "
                  "{:.1f} GiB short; give {}",
                  config.model_name, m.weights / kGiB, beside / kGiB, m.requested / kGiB,
                  (m.weights + beside + one_block - m.requested) / kGiB, ways_to_fit(config)));
}

// What was asked for must be there: more blocks than memory can hold would run
// in no real server.
void check_override(const RunConfig& config) {
  const hw::MemoryBudget& m = config.memory;
  const double blocks = static_cast<double>(m.num_blocks) * static_cast<double>(m.block_bytes);
  if (m.weights + blocks > m.total) {
    const auto most =
        static_cast<std::int64_t>(std::max(0.0, m.total - m.weights) / static_cast<double>(m.block_bytes));
    throw CannotRun(
        fmt::format("--num-gpu-blocks-override {}: {:.1f} GiB of KV and {:.1f} GiB of weights on a GPU of "
                    "{:.1f} GiB; give at most {}",
                    m.num_blocks, blocks / kGiB, m.weights / kGiB, m.total / kGiB, most));
  }
}

// Before memory is sized: what sizing divides and multiplies by must make sense.
void validate_before_sizing(const RunConfig& config) {
  engine::SchedulerConfig draft = config.engine;
  draft.num_blocks = kLeastBlocks;
  engine::validate(draft);
  if (config.server_file.empty()) {
    hw::validate(config.deployment);
  }
}

void fit_context(const pb::RunConfig& asked, RunConfig& config) {
  engine::SchedulerConfig& e = config.engine;
  if (asked.has_max_model_len() && asked.max_model_len() == -1) {
    const std::int64_t most = e.max_model_len;
    if (!holds_longest(config.memory, e)) {
      e.max_model_len = std::min(most, hw::largest_model_len(config.memory, e.block_size));
    }
    config.deployment.max_model_len = e.max_model_len;
    config.provenance.push_back(
        fmt::format("max_model_len {}: {}", e.max_model_len,
                    e.max_model_len < most ? "the largest that fits" : "the model's, which fits"));
  } else if (!holds_longest(config.memory, e) && !asked.has_num_gpu_blocks_override()) {
    const std::int64_t largest = hw::largest_model_len(config.memory, e.block_size);
    throw CannotRun(fmt::format(
        "one request of max_model_len {} needs {} KV blocks and there are {} ({:.2f} GiB); the largest that "
        "fits is --max-model-len {}, or raise --gpu-memory-utilization, or give {}",
        e.max_model_len, blocks_of_longest(e) + 1, e.num_blocks, config.memory.kv_cache / kGiB, largest,
        ways_to_fit(config)));
  }
}

// GiB of host memory as blocks; pinned memory is finite, a billion blocks is no limit.
void resolve_swap(const pb::RunConfig& asked, RunConfig& config) {
  if (!config.engine.preemption_mode_swap) {
    return;
  }
  const double swap_gib = asked.has_swap_space() ? asked.swap_space() : 4.0;
  if (!(swap_gib >= 0) || std::isinf(swap_gib)) {
    throw UsageError(fmt::format("--swap-space is {}; GiB of at least 0 are needed", swap_gib));
  }
  if (config.memory.block_bytes == 0) {
    throw CannotRun(
        "--preemption-mode swap needs the size of a block, which a measured --server does not say");
  }
  const double blocks = swap_gib * kGiB / static_cast<double>(config.memory.block_bytes);
  config.engine.num_cpu_blocks = static_cast<std::int64_t>(std::min(blocks, 1e9));
}

}  // namespace

void resolve_memory(const pb::RunConfig& asked, RunConfig& config) {
  engine::SchedulerConfig& e = config.engine;
  validate_before_sizing(config);
  if (asked.has_num_gpu_blocks_override() && asked.num_gpu_blocks_override() < kLeastBlocks) {
    throw UsageError(
        fmt::format("--num-gpu-blocks-override is {}; give at least {}: block 0 is the null block",
                    asked.num_gpu_blocks_override(), kLeastBlocks));
  }
  if (!config.server_file.empty()) {
    if (!asked.has_num_gpu_blocks_override()) {
      throw UsageError(
          "--server needs --num-gpu-blocks-override: a measured server's memory is not modelled "
          "(`calibrate read-log` prints the number)");
    }
    e.num_blocks = asked.num_gpu_blocks_override();
    config.provenance.push_back(
        fmt::format("{} blocks of {} tokens: from --num-gpu-blocks-override", e.num_blocks, e.block_size));
    return resolve_swap(asked, config);
  }
  config.memory = hw::size_memory(config.deployment);
  e.num_blocks = config.memory.num_blocks;
  if (asked.has_num_gpu_blocks_override()) {
    check_override(config);
  } else if (e.num_blocks < kLeastBlocks && asked.has_kv_cache_memory_bytes()) {
    throw CannotRun(
        fmt::format("--kv-cache-memory-bytes {} holds {} blocks of {} bytes; give room for two at least",
                    asked.kv_cache_memory_bytes(), e.num_blocks, config.memory.block_bytes));
  } else if (e.num_blocks < kLeastBlocks) {
    refuse_model(config);
  }
  fit_context(asked, config);
  resolve_swap(asked, config);
  config.provenance.push_back(config.memory.provenance);
}

}  // namespace kneepoint::sim
