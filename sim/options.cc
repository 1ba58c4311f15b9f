#include "sim/options.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>
#include <vector>

#include "engine/scheduler.h"
#include "sim/text_proto.h"
#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

void list_schedulers(std::ostream& out) {
  for (const engine::SchedulerRow& row : engine::schedulers()) {
    out << fmt::format("{:<10} {}\n", row.name, row.summary);
  }
}

// Answers a command that asks for no simulation.
bool answered(const ParsedFlags& parsed, std::ostream& out) {
  if (parsed.help) {
    out << help_text();
  } else if (parsed.version) {
    out << "simulate " << kVersion << "\n";
  } else if (parsed.list_schedulers) {
    list_schedulers(out);
  } else {
    return false;
  }
  return true;
}

// What a measured server has in its times already.
std::vector<std::string> part_of_measured_server(const pb::RunConfig& on_command_line) {
  constexpr std::array kFields{"tensor_parallel_size",   "enable_expert_parallel", "dtype",
                               "quantization",           "kv_cache_dtype",         "optimization_level",
                               "gpu_memory_utilization", "kv_cache_memory_bytes",  "subtract_cuda_graphs",
                               "enforce_eager"};
  std::vector<std::string> flags;
  for (const std::string_view name : kFields) {
    const auto* field = pb::RunConfig::descriptor()->FindFieldByName(std::string(name));
    if (pb::RunConfig::GetReflection()->HasField(on_command_line, field)) {
      std::string flag = fmt::format("--{}", name);
      std::replace(flag.begin(), flag.end(), '_', '-');
      flags.push_back(flag);
    }
  }
  return flags;
}

std::string commented(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += fmt::format("# {}\n", line);
  }
  return text;
}

}  // namespace

pb::RunConfig read_run_config(const std::string& file) {
  pb::RunConfig config;
  read_text_proto("--run-config " + file, file, config);
  return config;
}

pb::RunConfig parse_run_config(const std::string& text, const std::string& from) {
  pb::RunConfig config;
  parse_text_proto(from, text, config);
  return config;
}

pb::RunConfig asked_for(const ParsedFlags& parsed) {
  pb::RunConfig asked;
  if (!parsed.run_config_file.empty()) {
    asked = read_run_config(parsed.run_config_file);
  }
  if (parsed.config.goodput_size() > 0) {
    asked.clear_goodput();
  }
  asked.MergeFrom(parsed.config);
  return asked;
}

std::optional<RunConfig> parse_simulate(std::span<const std::string> arguments, std::ostream& out) {
  const ParsedFlags parsed = parse_flags(arguments);
  if (answered(parsed, out)) {
    return std::nullopt;
  }
  const pb::RunConfig asked = asked_for(parsed);
  if (!parsed.print_config && asked.trace().empty()) {
    throw UsageError(
        "--trace is missing: give a .pb file, as `traces generate` or `traces convert` writes one");
  }
  RunConfig config = resolve(asked);
  config.flags_without_influence = parsed.without_influence;
  if (!config.server_file.empty()) {
    for (const std::string& flag : part_of_measured_server(parsed.config)) {
      config.flags_without_influence.push_back(flag);
    }
  }
  const std::string text = as_text(as_proto(config, asked));
  if (parsed.print_config) {
    out << commented(config.provenance) << text;
    return std::nullopt;
  }
  config.resolved_text = text;
  return config;
}

}  // namespace kneepoint::sim
