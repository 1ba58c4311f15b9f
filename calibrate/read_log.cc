// calibrate read-log: what a server's log says, as a run configuration.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/logged_config.h"
#include "calibrate/server_log.h"
#include "calibrate/subcommands.h"

namespace kneepoint::calibrate {

namespace {

void print_engines(const LoggedServer& server) {
  for (const auto& [rank, engine] : server.engines) {
    fmt::print("# engine {}: {} steps", rank, engine.steps.size());
    if (!engine.steps.empty()) {
      fmt::print(" (iterations {} to {}, {} missing)", engine.steps.front().iteration,
                 engine.steps.back().iteration, engine.missing_steps);
    }
    fmt::print(", {} lines of 10 s\n", engine.stats.size());
  }
}

void print_server(const LoggedServer& server) {
  const LoggedConfig config = logged_config(server);
  const engine::SchedulerConfig& engine = config.engine;
  fmt::print("# server from {}{}\n", server.where,
             server.started_in_log ? "" : " (its start is not in the log)");
  const auto text = [](const char* name, const std::string& value) {
    if (!value.empty()) fmt::print("{}: \"{}\"\n", name, value);
  };
  text("model", config.model);
  text("architecture", config.architecture);
  text("release", config.release);
  text("device", config.device);
  text("dtype", config.dtype);
  text("kv_cache_dtype", config.kv_cache_dtype);
  text("quantization", config.quantization);
  fmt::print("max_model_len: {}\nmax_num_batched_tokens: {}\nmax_num_seqs: {}\nblock_size: {}\n",
             engine.max_model_len, engine.max_num_batched_tokens, engine.max_num_seqs, engine.block_size);
  if (engine.num_blocks > 0) fmt::print("num_gpu_blocks_override: {}\n", engine.num_blocks);
  fmt::print("enable_prefix_caching: {}\nenable_chunked_prefill: {}\nasync_scheduling: {}\n",
             engine.enable_prefix_caching, engine.enable_chunked_prefill, engine.async_scheduling);
  fmt::print("tensor_parallel_size: {}\npipeline_parallel_size: {}\n", config.tensor_parallel_size,
             engine.pipeline_parallel_size);
  for (const std::string& line : config.assumed) fmt::print("# assumed, not in the log: {}\n", line);
  for (const std::string& line : config.missing) fmt::print("# missing: {}\n", line);
  print_engines(server);
}

}  // namespace

int run_read_log(const Arguments& arguments) {
  CLI::App app("what a vLLM server's log says, as a run configuration", "calibrate read-log");
  std::vector<std::string> files;
  app.add_option("log", files, "log files of one server, in the order in which they were written")
      ->required();
  if (const auto status = parse_arguments(app, arguments)) return *status;
  ServerLogReader reader;
  for (const std::string& file : files) reader.read_file(file);
  const ServerLog log = reader.take();
  if (log.servers.empty()) throw CalibrateError(fmt::format("{}: no line of a vLLM server", files.front()));
  for (const LoggedServer& server : log.servers) print_server(server);
  for (const auto& [what, count] : log.unreadable) fmt::print("# could not read: {} {}\n", count, what);
  for (const auto& [what, count] : log.unknown_fields)
    fmt::print("# unknown field, ignored: '{}' ({} times)\n", what, count);
  return 0;
}

}  // namespace kneepoint::calibrate
