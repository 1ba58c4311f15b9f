// A GPU as its data sheet and its driver describe it.
//
// Bundled GPUs are text protobufs (hw/gpus/NAME.textproto, message
// hw/specs.proto:GpuSpec) compiled into the library; a user's file has the same
// form. Every number carries its source; the reader refuses one without.
//
// Units  byte, byte/s, FLOP/s, s, Hz. 1 GB = 1e9 bytes; driver-reported memory
//        is what the driver says, in bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kneepoint::hw {

struct GpuSpec {
  std::string name;       ///< "h100", as written in --gpu.
  std::string full_name;  ///< "NVIDIA H100 SXM5 80GB".
  double nominal_memory_bytes = 0;   ///< The label: 80e9.
  std::int64_t memory_bytes = 0;     ///< What the driver reports in all.
  double bandwidth_bytes_per_s = 0;  ///< Device memory, nominal.
  double l2_bytes = 0;
  double l2_bandwidth_bytes_per_s = 0;
  double bf16_flops_per_s = 0;  ///< Dense tensor cores, without sparsity.
  double fp8_flops_per_s = 0;   ///< Equal to bf16_flops_per_s where the GPU has no fp8.
  std::int64_t num_sms = 0;
  double clock_hz = 0;               ///< Boost.
  double link_bytes_per_s = 0;       ///< To its peers, one direction.
  double link_latency_s = 0;
  bool nvlink = false;               ///< Else PCIe.
  bool data_centre_blackwell = false;
  bool a100 = false;                 ///< vLLM's defaults set the A100 apart (spec.md 6).
  std::string source;                ///< Where the figures come from, one line.
  std::string rates_file;            ///< Rates measured on it; empty: the bundled ones of its name, if any.
};

/// Names of the bundled GPUs, sorted.
[[nodiscard]] const std::vector<std::string>& gpu_names();

/// The bundled GPU `name`, or, if `name` is a path ending in ".textproto", the
/// GPU in that file, and its rates_file then a path. Throws SpecError naming the closest known one.
[[nodiscard]] GpuSpec load_gpu(const std::string& name);

/// A GPU from the text of a .textproto; `label` names it in messages.
[[nodiscard]] GpuSpec parse_gpu(std::string_view text, const std::string& label);

}  // namespace kneepoint::hw
