// Where the parameters of a layer sit, by how tensor parallelism and quantisation
// treat them.
//
//     split       the linear layers: each rank holds 1/TP, in the weights' type
//     kv          the K and V projections: split too, but with more ranks than KV
//                 heads each rank still holds one whole head
//     whole       linear layers that every rank holds (MLA's down-projections)
//     unquantised norms, biases, routers: every rank, always 16 bits
//
// Parameter counts are their sum, memory budgets weigh them; one place knows the
// shapes.
#pragma once

#include <cstdint>

#include "hw/model_arch.h"

namespace kneepoint::hw {

struct LayerParameters {
  double attention_split = 0;  ///< Query and output projections.
  double attention_kv = 0;
  double attention_whole = 0;
  double mlp_split = 0;  ///< MLP, or all experts and the shared ones.
  double unquantised = 0;

  [[nodiscard]] double sum() const {
    return attention_split + attention_kv + attention_whole + mlp_split + unquantised;
  }
};

/// One layer of `group` with `experts` routed experts (of an MoE group; all of
/// them for memory, those of one token for its work).
[[nodiscard]] LayerParameters layer_parameters(const ModelArch& model, const LayerGroup& group,
                                               std::int64_t experts);

/// The token embedding; the LM head has as many again unless the two are tied.
[[nodiscard]] double embedding_parameters(const ModelArch& model);

}  // namespace kneepoint::hw
