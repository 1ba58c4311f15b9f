// The capacity planner: how many sequences of a context length a GPU can hold.
//
// A model of memory on the back of an envelope, in whole bytes:
//
//     KV budget    = 85 % of the nominal memory - weights
//     weights      = parameters, rounded to 0.1 B as printed, x bytes each
//     KV per token = 2 x layers x KV heads x head size x 2 byte (MLA: the latent)
//     sequences    = KV budget / (context x KV per token), cut
//
// 85 % is the 90 % of memory that a server may use less a reserve of 5 % of
// nominal. Llama 3.1 8B in FP8 on an H100 of 80 GB: 68 - 8 = 60.0 GB; a sequence
// of 8192 tokens takes 8192 x 128 KiB = 1.07 GB, so 55 of them fit.
//
// Simulations do not use this model but vLLM's own sizing (deployment.h,
// size_memory()), for which scenario_matrix_by_vllm() gives the same table.
//
// Units   byte unless the name says otherwise; GB = 1e9. Whole numbers throughout:
//         a cell on the edge must not depend on rounding.
// Source  The planner of a public article on multi-user inference.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hw/deployment.h"
#include "hw/gpu_spec.h"
#include "hw/model_arch.h"

namespace kneepoint::hw {

inline constexpr std::array<std::int64_t, 5> kPlannerContexts{8192, 16384, 32768, 65536, 131072};
inline constexpr std::array<std::int64_t, 6> kPlannerConcurrencies{1, 5, 10, 25, 50, 100};

enum class Fit : std::uint8_t { kFits, kKvExceeded, kWeightsDoNotFit, kNoSuchContext };

/// "✓", "—" (KV exceeded: not run), "✕" (weights do not fit), "n/a" (the model has
/// no such context).
[[nodiscard]] std::string_view fit_mark(Fit fit);

/// One context length of a matrix.
struct ScenarioRow {
  std::int64_t context = 0;
  std::optional<std::int64_t>
      most_sequences;  ///< None: the model has no such context or its weights do not fit.
  std::array<Fit, kPlannerConcurrencies.size()> cells{};  ///< One per entry of kPlannerConcurrencies.
};

struct ScenarioMatrix {
  std::int64_t num_gpus = 1;
  std::int64_t weight_bytes = 0;     ///< Of the whole model.
  std::int64_t kv_budget_bytes = 0;  ///< Of all GPUs together; negative if the weights do not fit.
  std::array<ScenarioRow, kPlannerContexts.size()> rows{};
};

/// The planner's matrix of `model` with `weights` on `num_gpus` GPUs whose memories
/// add up. KV is 16-bit.
[[nodiscard]] ScenarioMatrix scenario_matrix(const ModelArch& model, const GpuSpec& gpu, Precision weights,
                                             std::int64_t num_gpus = 1);

/// One cell of it for any context and number of sequences: `deployment`'s model,
/// weights and GPUs. A KV cache in FP8 takes one byte a value, all others two.
[[nodiscard]] Fit planner_fit(const Deployment& deployment, std::int64_t context, std::int64_t sequences);

/// What the planner leaves for the KV cache, of all GPUs together; negative if the
/// weights do not fit.
[[nodiscard]] std::int64_t planner_kv_budget_bytes(const ModelArch& model, const GpuSpec& gpu,
                                                   Precision weights, std::int64_t num_gpus);

/// The same table by vLLM's sizing of `deployment` (its max_model_len plays no
/// part): the sequences whose blocks are free at once, the null block aside.
[[nodiscard]] ScenarioMatrix scenario_matrix_by_vllm(const Deployment& deployment);

/// One row of the memory table.
struct MemoryRow {
  std::string name;
  std::string kind;                   ///< "dense, GQA", "MoE, 3.3B active, GQA".
  std::int64_t parameter_tenths = 0;  ///< Parameters in units of 0.1 B: 706 for 70.6 B.
  std::int64_t bf16_bytes = 0;
  std::int64_t fp8_bytes = 0;
  std::int64_t int4_bytes = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t kv_bytes_at_32k = 0;
};

[[nodiscard]] MemoryRow memory_row(const ModelArch& model);

/// The smallest number of GPUs whose budgets for `model` in `weights` leave at least
/// 4 GB of KV on each; 0 if no number does.
[[nodiscard]] std::int64_t fewest_gpus(const ModelArch& model, const GpuSpec& gpu,
                                       Precision weights = Precision::kFp8);

/// The context the planner grants: config.json's, or the model file's own YaRN
/// context (ModelArch::yarn_context) where that is longer.
[[nodiscard]] std::int64_t planner_context(const ModelArch& model);

// How the tables write their numbers.

/// Cut, not rounded: 59'990'000'000 is "59.9".
[[nodiscard]] std::string budget_gb_text(std::int64_t bytes);
/// Rounded half up to whole GB: 30'500'000'000 is "31".
[[nodiscard]] std::string weights_gb_text(std::int64_t bytes);
/// Rounded half up to 0.1 GB.
[[nodiscard]] std::string kv_gb_text(std::int64_t bytes);
/// 80 tenths of a billion are "8", 706 are "70.6".
[[nodiscard]] std::string parameters_text(std::int64_t tenths);
/// Which of kPlannerConcurrencies fit: "all", "all but 100", "to 25", "1", "none",
/// "n/a" or "✕".
[[nodiscard]] std::string fitting_text(const ScenarioRow& row);

}  // namespace kneepoint::hw
