// A model as it is served: on which GPU, split how, in which types. And the two
// things that follow: how many KV blocks there are, and how long a step takes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hw/gpu_spec.h"
#include "hw/model_arch.h"
#include "hw/operator_times.h"
#include "hw/step_time_model.h"

namespace kneepoint::hw {

/// Who proposes the tokens of speculative decoding (spec.md 8.1).
enum class Drafter : std::uint8_t {
  kLookUp,  ///< ngram, suffix: the host, at no device time.
  kHead,    ///< EAGLE, MTP: one more layer of the model's kind.
  kModel,   ///< A small model, Deployment::draft_model.
};

struct Deployment {
  ModelArch model;
  GpuSpec gpu;
  Precision weights = Precision::kBf16;
  bool static_fp8_scales = false;  ///< FP8 checkpoint with activation scales; else they are computed per step.
  Precision kv_cache = Precision::kBf16;
  std::int64_t tensor_parallel_size = 1;
  std::int64_t pipeline_parallel_size = 1;
  bool enable_expert_parallel = false;

  // What sizes the KV cache (spec.md 5).
  std::int64_t block_size = 16;
  double gpu_memory_utilization = 0.92;
  std::optional<std::int64_t> kv_cache_memory_bytes;
  std::optional<std::int64_t> num_gpu_blocks_override;
  bool subtract_cuda_graphs = true;  ///< vLLM does since pull request #38284; before, graphs came on top.
  std::int64_t max_model_len = 0;
  std::int64_t max_num_batched_tokens = 0;
  std::int64_t max_num_seqs = 0;

  // How steps are launched and overlapped.
  bool async_scheduling = true;
  bool enforce_eager = false;
  bool capture_every_small_batch = false;  ///< performance_mode=interactivity: graphs of 1 to 32 tokens, each.
  std::int64_t num_speculative_tokens = 0;
  Drafter drafter = Drafter::kLookUp;
  std::optional<ModelArch> draft_model;  ///< For Drafter::kModel; split over the same GPUs, weights in bf16.
};

/// Throws SpecError if the parts do not fit each other (heads not divisible by
/// TP, fp8 KV on ...), naming option and way out.
void validate(const Deployment& deployment);

/// One GPU's memory as vLLM accounts for it, in bytes. The largest rank.
struct MemoryBudget {
  double total = 0;        ///< Driver-reported.
  double requested = 0;    ///< total * gpu_memory_utilization.
  double weights = 0;
  double activations = 0;  ///< Peak of the profiling run.
  double cuda_graphs = 0;
  double other = 0;        ///< CUDA context, NCCL, workspaces.
  double kv_cache = 0;     ///< What is left: requested - the rest.
  std::int64_t block_bytes = 0;  ///< One block, all layers of the rank.
  std::int64_t num_blocks = 0;   ///< vLLM's num_gpu_blocks, the null block included; 0 if none fit.
  double max_concurrency = 0;    ///< "Maximum concurrency for ... tokens per request".
  std::string provenance;        ///< "27,412 blocks: vLLM's sizing of 80 GB ...".
};

/// Never throws for a model that is too large: num_blocks is 0 then.
[[nodiscard]] MemoryBudget size_memory(const Deployment& deployment);

/// The longest request that fits beside the null block; 0 if none does. A server
/// whose max_model_len is larger does not start (spec.md 5).
[[nodiscard]] std::int64_t largest_model_len(const MemoryBudget& memory, std::int64_t block_size);

/// The step times of `deployment`. Bundled rates of the GPU if there are any,
/// else roofline fractions; `rates_file` overrides both.
[[nodiscard]] std::unique_ptr<StepTimeModel> make_step_time_model(const Deployment& deployment,
                                                                  const std::string& rates_file = "");

/// CUDA graph sizes of a deployment and what a batch is padded to (spec.md 6).
struct GraphChoice {
  GraphMode mode = GraphMode::kNone;
  std::int64_t padded_tokens = 0;
};

/// `uniform_decode`: every request computes exactly 1 + num_speculative_tokens tokens.
class GraphSizes {
 public:
  explicit GraphSizes(const Deployment& deployment);
  [[nodiscard]] GraphChoice choose(std::int64_t num_tokens, bool uniform_decode) const;
  [[nodiscard]] std::int64_t num_graphs() const { return static_cast<std::int64_t>(full_.size() + piecewise_.size()); }
  /// The largest batch that is captured; 0 without graphs.
  [[nodiscard]] std::int64_t largest() const { return piecewise_.empty() ? 0 : piecewise_.back(); }

 private:
  std::vector<std::int64_t> full_;       // Ascending sizes of FULL decode graphs.
  std::vector<std::int64_t> piecewise_;  // Ascending sizes of the others.
};

}  // namespace kneepoint::hw
