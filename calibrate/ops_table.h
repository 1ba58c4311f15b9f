// Measured operators: one GPU kernel call, its shape and how long it took.
//
// Two sources have the same rows: tables in CSV, one file for each GPU and kind
// of operator, named GPU_KIND.csv (h100_sxm_gemm.csv, l40s_moe.csv); and what our
// own microbenchmark writes (calibrate/measurement_file.h).
//
//   KIND               columns besides latency_us
//   gemm               dtype (bfloat16, fp8), m, n, k
//   decode_attention   kv_cache_dtype, batch_size, kv_len, num_heads, num_key_value_heads
//   prefill_attention  kv_cache_dtype, batch_size, isl, num_heads, num_key_value_heads
//   moe                moe_dtype (bfloat16, fp8, fp8_block), num_tokens, hidden_size, inter_size, topk,
//                      num_experts, moe_tp_size, moe_ep_size, distribution (balanced, power_law_*)
//   allreduce          backend (vllm_graph, vllm_eager), num_gpus, message_bytes
//   nccl               op_name, nccl_dtype (half, int8), num_gpus, message_elems
//
// Errors  CalibrateError, one line: file, line, column, what is wrong.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hw/operator_times.h"

namespace kneepoint::calibrate {

using OperatorShape = std::variant<hw::GemmShape, hw::DecodeAttentionShape, hw::PrefillAttentionShape,
                                   hw::MoeShape, hw::CollectiveShape, hw::ElementwiseShape>;

struct OperatorRow {
  std::string gpu;     ///< As in --gpu: "h100".
  std::string family;  ///< The form that describes it: "gemm_bf16", "all_reduce_8" (hw/rates.h).
  OperatorShape shape;
  double us = 0;
  std::string where;  ///< "h100_sxm_gemm.csv, line 17".
  /// Warm: replays of the benchmark may find weights or KV in L2. Ours go round.
  hw::CacheState cache = hw::CacheState::kWarm;
};

using OpsTable = std::vector<OperatorRow>;

/// Appends the rows of one CSV file.
void read_ops_csv(const std::filesystem::path& path, OpsTable& table);

/// The rows of files, and of all *.csv in folders, in the order of their names.
/// With `gpu` not empty, of that GPU only; it is an error if there are none.
[[nodiscard]] OpsTable read_ops(const std::vector<std::string>& paths, std::string_view gpu);

/// GPUs of the rows, sorted, each once.
[[nodiscard]] std::vector<std::string> gpus_of(const OpsTable& table);

}  // namespace kneepoint::calibrate
