// A run, fully resolved: what every flag and default came to.
//
// sim/options.h makes one from the command line and a run config file; the
// simulation reads nothing else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler_config.h"
#include "hw/deployment.h"
#include "sim/run_limits.h"
#include "sim/sim_time.h"

namespace kneepoint::sim {

/// Who sends, and when.
struct ClientConfig {
  /// Requests per second: the trace's requests at new times, as `vllm bench
  /// serve` draws them (spec.md 7.2). Nothing: the trace's own times.
  /// Infinity: all at once.
  std::optional<double> request_rate;
  double burstiness = 1.0;                      ///< Of the gamma intervals; 1 is Poisson.
  std::optional<std::int64_t> max_concurrency;  ///< The client's semaphore.
  std::optional<SimDuration> timeout;           ///< From send; then the request is aborted.
};

/// Rejects before the scheduler sees a request (spec.md 1.3).
struct AdmissionConfig {
  std::optional<std::int64_t> max_num_queued_reqs;
  std::optional<std::int64_t> max_num_queued_tokens;
};

/// A request is good if it meets all limits given.
struct GoodputLimits {
  std::optional<SimDuration> ttft;
  std::optional<SimDuration> tpot;
  std::optional<SimDuration> e2el;
  [[nodiscard]] bool any() const { return ttft || tpot || e2el; }
};

enum class OutputFormat : std::uint8_t { kTable, kJson };

struct ReportConfig {
  OutputFormat format = OutputFormat::kTable;
  std::filesystem::path out_dir;  ///< Empty: print only.
  bool save_detailed = false;     ///< Per-request arrays in result.json.
  bool requests_csv = true;
  bool page = true;                ///< report.html and the CSVs behind its figures, if there is an out_dir.
  bool plots = false;              ///< Its figures by gnuplot, too.
  std::filesystem::path step_log;  ///< vLLM's iteration lines; empty: none.
  std::filesystem::path timeline;  ///< Perfetto trace; empty: none.
  GoodputLimits goodput;
};

struct RunConfig {
  std::filesystem::path trace;
  std::string model_name;  ///< As the user wrote it.
  std::string gpu_name;
  std::string dtype = "bfloat16";     ///< Of activations and plain weights.
  std::string quantization = "none";  ///< Of the weights, as asked for or as the model has it.
  std::string kv_cache_dtype = "bfloat16";
  std::string rates_file;   ///< Empty: bundled.
  std::string server_file;  ///< Measured step model instead of model and GPU; empty: none.
  std::string scheduler = "vllm-v1";
  engine::SchedulerConfig engine;
  hw::Deployment deployment;
  hw::MemoryBudget memory;  ///< Sized; engine.num_blocks comes from it.
  AdmissionConfig admission;
  ClientConfig client;
  ReportConfig report;
  RunLimits limits;
  std::uint64_t seed = 0;  ///< --sim-seed; every random stream derives from it and its own name.
  /// Unconditional acceptance rate of each draft position, not rising; empty: every draft is accepted.
  std::vector<double> draft_acceptance_rates;
  bool plain_steps = false;  ///< The obvious way to the same results: see engine.walk_decodes.
  bool strict = false;  ///< A request that the server would reject ends the run with exit 2.

  std::vector<std::string> provenance;  ///< "KV cache: bfloat16, from --kv-cache-dtype auto and the model".
  std::vector<std::string> flags_without_influence;  ///< As written; listed once on stderr.
  std::string resolved_text;                         ///< As --print-config writes it.
};

}  // namespace kneepoint::sim
