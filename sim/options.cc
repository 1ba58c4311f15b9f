#include "sim/options.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string_view>
#include <vector>

#include "engine/scheduler.h"
#include "hw/closest_name.h"
#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

// The first thing wrong with a run config file.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text.empty()) {
      text = fmt::format("line {}, column {}: {}{}", line + 1, column + 1, message, suggestion(message));
    }
  }
  std::string text;

 private:
  // Protobuf says "... has no field named "x"."
  static std::string suggestion(const std::string& message) {
    constexpr std::string_view kBefore = "no field named \"";
    const std::size_t begin = message.find(kBefore);
    if (begin == std::string::npos) {
      return "";
    }
    const std::string rest = message.substr(begin + kBefore.size());
    std::vector<std::string> known;
    const auto* type = pb::RunConfig::descriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      known.push_back(type->field(i)->name());
    }
    const std::string closest = hw::closest_name(rest.substr(0, rest.find('"')), known);
    return closest.empty() ? "" : fmt::format(" Did you mean {}?", closest);
  }
};

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
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  std::error_code ignored;
  if (!in || std::filesystem::is_directory(file, ignored)) {
    throw UsageError(fmt::format("--run-config {}: cannot be read", file));
  }
  text << in.rdbuf();
  return parse_run_config(text.str(), fmt::format("--run-config {}", file));
}

pb::RunConfig parse_run_config(const std::string& text, const std::string& from) {
  pb::RunConfig config;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, &config)) {
    throw UsageError(fmt::format("{}: {}", from, error.text));
  }
  return config;
}

std::optional<RunConfig> parse_simulate(std::span<const std::string> arguments, std::ostream& out) {
  const ParsedFlags parsed = parse_flags(arguments);
  if (answered(parsed, out)) {
    return std::nullopt;
  }
  pb::RunConfig asked;
  if (!parsed.run_config_file.empty()) {
    asked = read_run_config(parsed.run_config_file);
  }
  if (parsed.config.goodput_size() > 0) {
    asked.clear_goodput();
  }
  asked.MergeFrom(parsed.config);
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
