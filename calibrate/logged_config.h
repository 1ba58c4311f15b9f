// The engine configuration that a server's log tells, with where each value
// comes from: said in the log, or vLLM's default for what the log does not say.
#pragma once

#include <string>
#include <vector>

#include "calibrate/server_log.h"
#include "sim/run_config.h"

namespace kneepoint::calibrate {

struct LoggedConfig {
  engine::SchedulerConfig engine;
  std::string model;
  std::string architecture;
  std::string release;  ///< "vLLM 0.32.0"; "" if the log does not say.
  std::string device;   ///< "cpu", "cuda"; "" if the log does not say.
  std::int64_t tensor_parallel_size = 1;
  std::int64_t data_parallel_size = 1;
  std::string dtype;           ///< "bfloat16".
  std::string kv_cache_dtype;  ///< "auto", "fp8_e4m3".
  std::string quantization;    ///< "" for none.
  bool enforce_eager = false;
  std::vector<std::string> said;     ///< "block_size 32, from the arguments".
  std::vector<std::string> assumed;  ///< "watermark 0, the default: not in the log".
  std::vector<std::string> missing;  ///< Needed and neither said nor derivable: "num_blocks".
};

/// Never throws: what is missing is named in `missing`.
[[nodiscard]] LoggedConfig logged_config(const LoggedServer& server);

}  // namespace kneepoint::calibrate
