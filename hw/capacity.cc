#include "hw/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>

namespace kneepoint::hw {
namespace {

constexpr std::int64_t kGigabyte = 1'000'000'000;
constexpr std::int64_t kTenthOfBillion = kGigabyte / 10;
constexpr std::int64_t kUsablePercent = 90;  // Of nominal memory.
constexpr std::int64_t kReservePercent = 5;  // Of nominal memory, for all that is neither weights nor KV.
constexpr std::int64_t kLeastKvPerGpu = 4 * kGigabyte;
constexpr std::int64_t kKvValueBytes = 2;

std::int64_t usable_bytes(const GpuSpec& gpu) {
  return std::llround(gpu.nominal_memory_bytes) / 100 * (kUsablePercent - kReservePercent);
}

std::int64_t parameter_tenths(const ModelArch& model) {
  return std::llround(parameter_count(model) / static_cast<double>(kTenthOfBillion));
}

std::int64_t weight_bytes(const ModelArch& model, Precision weights) {
  const std::int64_t parameters = parameter_tenths(model) * kTenthOfBillion;
  switch (weights) {
    case Precision::kBf16:
      return parameters * 2;
    case Precision::kFp8:
      return parameters;
    case Precision::kInt4:
      return parameters / 2;
  }
  BOOST_ASSERT_MSG(false, "a precision without bytes");
  return 0;
}

std::int64_t kv_bytes_per_token(const ModelArch& model) {
  return model.num_layers * kv_values_per_token_and_layer(model) * kKvValueBytes;
}

ScenarioRow scenario_row(const ModelArch& model, std::int64_t context, bool weights_fit,
                         std::int64_t most_sequences) {
  ScenarioRow row;
  row.context = context;
  const bool has_context = context <= planner_context(model);
  if (has_context && weights_fit) {
    row.most_sequences = most_sequences;
  }
  std::ranges::transform(kPlannerConcurrencies, row.cells.begin(), [&](std::int64_t sequences) {
    return !has_context                 ? Fit::kNoSuchContext
           : !weights_fit               ? Fit::kWeightsDoNotFit
           : sequences > most_sequences ? Fit::kKvExceeded
                                        : Fit::kFits;
  });
  return row;
}

std::string attention_kind(const ModelArch& model) {
  return model.is_mla()                          ? "MLA"
         : model.num_kv_heads == model.num_heads ? "MHA"
         : model.num_kv_heads == 1               ? "MQA"
                                                 : "GQA";
}

std::string tenths_text(std::int64_t tenths) {
  return fmt::format("{}.{}", tenths / 10, tenths % 10);
}

}  // namespace

std::string_view fit_mark(Fit fit) {
  switch (fit) {
    case Fit::kFits:
      return "✓";
    case Fit::kKvExceeded:
      return "—";
    case Fit::kWeightsDoNotFit:
      return "✕";
    case Fit::kNoSuchContext:
      return "n/a";
  }
  BOOST_ASSERT_MSG(false, "a fit without a mark");
  return "";
}

std::int64_t planner_kv_budget_bytes(const ModelArch& model, const GpuSpec& gpu, Precision weights,
                                     std::int64_t num_gpus) {
  return num_gpus * usable_bytes(gpu) - weight_bytes(model, weights);
}

Fit planner_fit(const Deployment& deployment, std::int64_t context, std::int64_t sequences) {
  const ModelArch& model = deployment.model;
  const std::int64_t num_gpus = deployment.tensor_parallel_size * deployment.pipeline_parallel_size;
  const std::int64_t budget = planner_kv_budget_bytes(model, deployment.gpu, deployment.weights, num_gpus);
  if (context > planner_context(model)) {
    return Fit::kNoSuchContext;
  }
  if (budget <= 0) {
    return Fit::kWeightsDoNotFit;
  }
  const std::int64_t per_token = kv_bytes_per_token(model) / (deployment.kv_cache == Precision::kFp8 ? 2 : 1);
  return sequences > budget / (context * per_token) ? Fit::kKvExceeded : Fit::kFits;
}

ScenarioMatrix scenario_matrix(const ModelArch& model, const GpuSpec& gpu, Precision weights,
                               std::int64_t num_gpus) {
  BOOST_ASSERT(num_gpus >= 1);
  ScenarioMatrix matrix;
  matrix.num_gpus = num_gpus;
  matrix.weight_bytes = weight_bytes(model, weights);
  matrix.kv_budget_bytes = planner_kv_budget_bytes(model, gpu, weights, num_gpus);
  const bool weights_fit = matrix.kv_budget_bytes > 0;
  std::ranges::transform(kPlannerContexts, matrix.rows.begin(), [&](std::int64_t context) {
    return scenario_row(model, context, weights_fit,
                        matrix.kv_budget_bytes / (context * kv_bytes_per_token(model)));
  });
  return matrix;
}

ScenarioMatrix scenario_matrix_by_vllm(const Deployment& deployment) {
  const MemoryBudget memory = size_memory(deployment);
  const std::int64_t num_gpus = deployment.tensor_parallel_size * deployment.pipeline_parallel_size;
  ScenarioMatrix matrix;
  matrix.num_gpus = num_gpus;
  matrix.weight_bytes = std::llround(memory.weights) * num_gpus;
  matrix.kv_budget_bytes = std::llround(memory.kv_cache) * num_gpus;
  std::ranges::transform(kPlannerContexts, matrix.rows.begin(), [&](std::int64_t context) {
    const std::int64_t blocks = (context + deployment.block_size - 1) / deployment.block_size;
    const std::int64_t free_blocks = std::max<std::int64_t>(0, memory.num_blocks - 1);
    return scenario_row(deployment.model, context, memory.num_blocks > 0, free_blocks / blocks);
  });
  return matrix;
}

MemoryRow memory_row(const ModelArch& model) {
  MemoryRow row;
  row.name = model.name;
  // Active parameters are cut to 0.1 B, as their makers state them (3.35 B: "3.3B").
  const auto active =
      static_cast<std::int64_t>(active_parameter_count(model) / static_cast<double>(kTenthOfBillion));
  row.kind = model.num_experts > 0
                 ? fmt::format("MoE, {}B active, {}", tenths_text(active), attention_kind(model))
                 : fmt::format("dense, {}", attention_kind(model));
  row.parameter_tenths = parameter_tenths(model);
  row.bf16_bytes = weight_bytes(model, Precision::kBf16);
  row.fp8_bytes = weight_bytes(model, Precision::kFp8);
  row.int4_bytes = weight_bytes(model, Precision::kInt4);
  row.kv_bytes_per_token = kv_bytes_per_token(model);
  row.kv_bytes_at_32k = row.kv_bytes_per_token * 32768;
  return row;
}

std::int64_t fewest_gpus(const ModelArch& model, const GpuSpec& gpu, Precision weights) {
  const std::int64_t room = usable_bytes(gpu) - kLeastKvPerGpu;  // For weights, on each.
  return room > 0 ? (weight_bytes(model, weights) + room - 1) / room : 0;
}

std::int64_t planner_context(const ModelArch& model) {
  return std::max(model.max_position_embeddings, model.yarn_context);
}

std::string budget_gb_text(std::int64_t bytes) {
  return fmt::format("{}{}", bytes < 0 ? "-" : "", tenths_text(std::abs(bytes) / kTenthOfBillion));
}

std::string weights_gb_text(std::int64_t bytes) {
  return fmt::format("{}", (bytes + kGigabyte / 2) / kGigabyte);
}

std::string kv_gb_text(std::int64_t bytes) {
  return tenths_text((bytes + kTenthOfBillion / 2) / kTenthOfBillion);
}

std::string parameters_text(std::int64_t tenths) {
  return tenths % 10 == 0 ? fmt::format("{}", tenths / 10) : tenths_text(tenths);
}

std::string fitting_text(const ScenarioRow& row) {
  if (!row.most_sequences) {
    return std::string(fit_mark(row.cells.front()));
  }
  const auto fitting = static_cast<std::size_t>(std::ranges::count(row.cells, Fit::kFits));
  const std::size_t all = kPlannerConcurrencies.size();
  if (fitting == 0 || fitting == all) {
    return fitting == 0 ? "none" : "all";
  }
  if (fitting == all - 1) {
    return fmt::format("all but {}", kPlannerConcurrencies.back());
  }
  return fmt::format("{}{}", fitting == 1 ? "" : "to ", kPlannerConcurrencies[fitting - 1]);
}

}  // namespace kneepoint::hw
