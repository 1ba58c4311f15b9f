// Measured servers, as tables of whole runs: what was set up, how it was driven,
// what came out.
//
// Three kinds of table are told apart by their columns (../README.md of this
// folder lists them):
//
//   closed loop   `concurrency` requests kept in flight; mean TTFT and TPOT
//   open loop     constant-rate stages, distinct prompts sent round robin
//   kv blocks     the number of KV blocks vLLM chose at start
//
// and a folder with meta.json and requests.jsonl is one run recorded request by
// request (recorded_runs.h).
//
// A tool that checks predictions takes the set-up from the columns and from
// nowhere else: what a row does not say stays at vLLM's default.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace kneepoint::calibrate {

/// How the server was started. Absent: vLLM's default.
struct ServingSetup {
  std::string model;
  std::string gpu;         ///< Our name for it: "h100".
  std::string weights;     ///< "", "fp8": as --quantization.
  bool static_scales = false;  ///< An fp8 checkpoint that brings the scales of its activations.
  std::string kv_cache_dtype;
  std::string vllm_version;
  std::int64_t tensor_parallel_size = 1;
  std::int64_t attention_dp_size = 1;
  std::optional<std::int64_t> max_num_seqs;
  std::optional<std::int64_t> max_num_batched_tokens;
  std::optional<std::int64_t> max_model_len;
  std::optional<std::int64_t> block_size;
  std::optional<double> gpu_memory_utilization;
  std::optional<bool> prefix_caching;
  std::optional<bool> async_scheduling;
};

/// `concurrency` in flight, the first ones all at once; lengths integer-uniform
/// in [min_fraction * L, L].
struct ClosedLoopClient {
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t concurrency = 0;
  std::int64_t requests = 0;
  double min_fraction = 1;
  double jitter_ms = 0;  ///< From a completion to the send that follows: uniform, up to this.
};

/// Stages of constant-rate arrivals, one after the other.
struct OpenLoopClient {
  std::vector<double> rates_per_s;  ///< One a stage.
  double stage_s = 0;
  int stage = -1;  ///< Which stage the measurement is of; -1: all.
  std::int64_t shared_prefix_tokens = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t distinct_prompts = 0;  ///< Sent round robin.
};

/// Requests of given lengths at given times, as somebody recorded them; prompts
/// share nothing.
struct RecordedClient {
  struct Request {
    double arrival_s = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
  };
  std::vector<Request> requests;
};

struct ServingRow {
  std::filesystem::path file;  ///< Its name, without folders.
  std::int64_t line = 0;       ///< 0: the row is a whole file.
  std::string name;   ///< "llama-3.1-70b fp8 h100 tp2 1024/8192 x64".
  std::string group;  ///< Rows that are summarised together: "llama-3.1-70b fp8, closed loop".
  ServingSetup setup;
  std::optional<ClosedLoopClient> closed_loop;
  std::optional<OpenLoopClient> open_loop;
  std::optional<RecordedClient> recorded;
  std::string not_run;  ///< Why this row cannot be predicted; empty: it can.

  // Measured; ms. Of a recorded run TTFT counts from the scheduler's queue, as the engine's own stamps do.
  std::optional<double> mean_ttft_ms;
  std::optional<double> p99_ttft_ms;
  std::optional<double> mean_tpot_ms;
  std::optional<std::int64_t> num_gpu_blocks;
};

/// Reads one file, or a folder: if it is a recorded run that one, else every .csv
/// and then every folder in it, each in order of name. Throws CalibrateError naming
/// file, line and column.
[[nodiscard]] std::vector<ServingRow> read_serving_rows(const std::filesystem::path& file_or_folder);

/// Finds model and GPU and names the row; says in `not_run` what is unknown.
/// `load` describes how it was driven: "1024/8192 x64".
void identify(ServingRow& row, const std::string& written_gpu, const std::string& kind, const std::string& load);

}  // namespace kneepoint::calibrate
