// What a server adds to the operators of a step: launching them, preparing
// inputs, sampling, passing tokens on.
//
// One set of numbers for every model and GPU: they belong to the serving
// software and its host, not to what it serves. Each has a meaning, a unit,
// bounds and the data it came from in hw/server/costs.textproto, which is read
// as strictly as rates are (hw/rates.h).
//
// Two clocks run. On the device's, a step pays once for starting and ending,
// a little for each sequence (sampling, block tables), and each layer pays the
// gaps between its kernels. On the host's, which asynchronous scheduling hides
// behind the device, a step and each of its sequences are scheduled, their inputs
// prepared and their outputs handled. A step that no full CUDA graph covers is
// launched kernel by kernel: it starts later, and cannot end before the host has
// launched its last kernel.
//
// Units   second.
#pragma once

#include <span>

#include "hw/operator_times.h"
#include "hw/parameter.h"

namespace kneepoint::hw {

struct ServerCosts {
  double device_step_s = 0;
  double device_sequence_s = 0;
  double device_layer_s = 0;
  double unrecorded_step_s = 0;  ///< More on a step without a full CUDA graph.
  double mixed_attention = 1;    ///< Decode attention beside a prefill, over decode attention alone.
  double sustained_bf16 = 1;  ///< Of InServer (hw/operator_times.h), as the next three.
  double sustained_fp8 = 1;
  double decode_attention_bf16 = 1;
  double decode_attention_fp8 = 1;
  double host_step_s = 0;
  double host_sequence_s = 0;
  double host_kernel_s = 0;  ///< Launching one kernel outside a graph.
  double arrival_s = 0;
  double output_s = 0;
  double output_per_request_s = 0;

  [[nodiscard]] InServer in_server() const {
    return {sustained_bf16, sustained_fp8, decode_attention_bf16, decode_attention_fp8};
  }
};

[[nodiscard]] std::span<const ParameterSpec<ServerCosts>> server_cost_parameters();

/// The bundled set.
[[nodiscard]] ServerCosts load_server_costs();

}  // namespace kneepoint::hw
