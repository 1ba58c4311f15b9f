// calibrate read-log: what a server's log says, as a run configuration.
#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/logged_config.h"
#include "calibrate/server_log.h"
#include "calibrate/subcommands.h"
#include "sim/run_config.pb.h"

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

// The message of sim/run_config.proto, so that `simulate --config` takes it. What
// the log does not say stays unset there and is named in a comment.
sim::pb::RunConfig to_run_config(const LoggedConfig& config) {
  const engine::SchedulerConfig& engine = config.engine;
  sim::pb::RunConfig proto;
  if (!config.model.empty()) proto.set_model(config.model);
  proto.set_tensor_parallel_size(config.tensor_parallel_size);
  proto.set_pipeline_parallel_size(engine.pipeline_parallel_size);
  if (!config.dtype.empty()) proto.set_dtype(config.dtype);
  if (!config.quantization.empty()) proto.set_quantization(config.quantization);
  proto.set_kv_cache_dtype(config.kv_cache_dtype);
  proto.set_block_size(engine.block_size);
  if (engine.num_blocks > 0) proto.set_num_gpu_blocks_override(engine.num_blocks);
  proto.set_enable_prefix_caching(engine.enable_prefix_caching);
  proto.set_max_model_len(engine.max_model_len);
  proto.set_max_num_seqs(engine.max_num_seqs);
  proto.set_max_num_batched_tokens(engine.max_num_batched_tokens);
  if (engine.max_num_scheduled_tokens) proto.set_max_num_scheduled_tokens(*engine.max_num_scheduled_tokens);
  if (engine.max_num_active_seqs) proto.set_max_num_active_seqs(*engine.max_num_active_seqs);
  proto.set_enable_chunked_prefill(engine.enable_chunked_prefill);
  proto.set_long_prefill_token_threshold(engine.long_prefill_token_threshold);
  proto.set_long_prefill_token_threshold_adaptive(engine.long_prefill_token_threshold_adaptive);
  proto.set_scheduling_policy(engine.policy == engine::SchedulingPolicy::kPriority ? "priority" : "fcfs");
  proto.set_async_scheduling(engine.async_scheduling);
  proto.set_use_v2_model_runner(engine.use_v2_model_runner);
  proto.set_watermark(engine.watermark);
  proto.set_scheduler_reserve_full_isl(engine.scheduler_reserve_full_isl);
  proto.set_enforce_eager(config.enforce_eager);
  return proto;
}

void print_server(const LoggedServer& server) {
  const LoggedConfig config = logged_config(server);
  fmt::print("# server from {}{}\n", server.where,
             server.started_in_log ? "" : " (its start is not in the log)");
  for (const auto& [name, value] :
       {std::pair("release", config.release), std::pair("architecture", config.architecture),
        std::pair("device", config.device)}) {
    fmt::print("# {}: {}\n", name, value.empty() ? "not in the log" : value);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(to_run_config(config), &text);
  fmt::print("{}", text);
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
