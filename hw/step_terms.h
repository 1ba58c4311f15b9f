// A step's device time as a sum of terms, each a smooth function of few sizes.
//
//     tokens        projections, MLP, experts, norms, all-reduces
//     logit rows    LM head, sampler
//     decodes       attention of the cohort: (count, context sum, longest context)
//     chunks        attention of each other request: (new tokens, old tokens)
//
// This is the reference that hw/compiled_step.h turns into integer tables. Every
// operator is held at its floor: what FLOPs, bytes and link allow at nominal rates.
//
// Several chunks run in one kernel, which is launched once and fills the GPU
// together. With t(c) the time of a chunk alone and m(c) its share of a batch of
// many like it,
//
//     T(c_1 .. c_n) = max over i of ( t(c_i) + sum over j != i of m(c_j) )
//
// so the chunk that profits least from company sets the base. T grows with every
// chunk and stays above the sum of their floors, as t and m do.
#pragma once

#include <cstdint>
#include <vector>

#include "hw/operator_graph.h"
#include "hw/operator_times.h"
#include "hw/server_costs.h"

namespace kneepoint::hw {

/// Seconds of one instance of `op` in `step`, floor kept. Decode attention beside a
/// prefill takes `mixed_attention` times as long as alone.
[[nodiscard]] OperatorTime time_of(const Operator& op, const StepShape& step, const OperatorTimes& times,
                                   const GpuSpec& gpu, double mixed_attention);

class StepTerms {
 public:
  /// Whether pipeline stages count once (the slowest) or all.
  enum class Stages : std::uint8_t { kSlowest, kAll };

  /// References must outlive this.
  StepTerms(const OperatorGraph& graph, const OperatorTimes& times, const GpuSpec& gpu,
            const ServerCosts& costs, Stages stages);

  /// Seconds, all layers, of what grows with `rows`.
  [[nodiscard]] double by_rows(Rows rows, std::int64_t size) const;

  /// Kinds of attention layers.
  [[nodiscard]] std::size_t num_attentions() const { return attentions_.size(); }
  [[nodiscard]] const AttentionHeads& decode_heads(std::size_t attention) const;

  /// Seconds, all layers of this kind; contexts already cut to the window.
  [[nodiscard]] double decodes(std::size_t attention, std::int64_t count, std::int64_t context_sum,
                               std::int64_t context_max) const;
  /// The same of a chunk: alone, and its share of a batch of many.
  [[nodiscard]] double chunk_alone(std::size_t attention, const Chunk& chunk) const;
  [[nodiscard]] double chunk_shared(std::size_t attention, const Chunk& chunk) const;

  [[nodiscard]] std::int64_t num_kernels() const { return num_kernels_; }
  [[nodiscard]] double num_layers() const { return num_layers_; }

  /// The whole device time, in seconds: the reference.
  [[nodiscard]] double device_seconds(const StepShape& step) const;

 private:
  struct AttentionTerm {
    const Operator* decode = nullptr;
    double weight = 1;  // Layers.
  };
  [[nodiscard]] double weight_of(const Operator& op) const;
  [[nodiscard]] const AttentionPair& attention_pair(std::size_t attention) const;

  const OperatorGraph& graph_;
  const OperatorTimes& times_;
  const GpuSpec& gpu_;
  const ServerCosts& costs_;
  Stages stages_;
  std::vector<const Operator*> others_;
  std::vector<AttentionTerm> attentions_;
  std::int64_t num_kernels_ = 0;
  double num_layers_ = 0;
};

}  // namespace kneepoint::hw
