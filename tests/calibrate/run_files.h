// A run of two requests on a server so small that every step is worked by hand,
// written to files as a user has them.
//
// Blocks of 4 tokens, 7 of them usable, 8 tokens a step.
//
//     step 0  a computes its 6 prompt tokens and holds 2 blocks: 2/7 = 28.6 %
//     step 1  a decodes (reads 7 tokens of KV), b joins with 5 tokens; both end
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace kneepoint::calibrate {

inline constexpr const char* kStartLines =
    "(APIServer pid=1) INFO 10-02 10:00:00 [a.py:1] vLLM API server version 0.32.0\n"
    "(APIServer pid=1) INFO 10-02 10:00:00 [a.py:1] non-default args: {'model': 'm', 'max_model_len': 64, "
    "'block_size': 4, 'num_gpu_blocks_override': 8, 'max_num_batched_tokens': 8, 'max_num_seqs': 4, "
    "'async_scheduling': False}\n";

inline std::string step_line(int iteration, int context_requests, int context_tokens, int generation,
                             const std::string& kv) {
  return "(APIServer pid=1) INFO 10-02 10:00:10 [loggers.py:199] Engine 000: Iteration(" +
         std::to_string(iteration) + "): " + std::to_string(context_requests) + " context requests, " +
         std::to_string(context_tokens) + " context tokens, " + std::to_string(generation) +
         " generation requests, " + std::to_string(generation) +
         " generation tokens, iteration elapsed time: 5.00 ms, GPU KV cache usage: " + kv + "%\n";
}

inline const std::string kSteps = step_line(40, 1, 6, 0, "28.6") + step_line(41, 1, 5, 1, "0.0");

inline constexpr const char* kTrace =
    "{\"timestamp\": 0.0, \"input_length\": 6, \"output_length\": 2, \"hash_ids\": [70, 71]}\n"
    "{\"timestamp\": 0.001, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [50, 51]}\n";

// Writes `text` to a fresh file of the running test and returns its path.
inline std::string write_file(const std::string& directory, const std::string& name,
                              const std::string& text) {
  std::filesystem::create_directories(directory);
  const std::string path = directory + "/" + name;
  std::ofstream(path) << text;
  return path;
}

}  // namespace kneepoint::calibrate
