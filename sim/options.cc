#include "sim/options.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <fstream>
#include <ostream>
#include <sstream>

#include "engine/scheduler.h"
#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text.empty()) {
      text = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
    }
  }
  std::string text;
};

void list_schedulers(std::ostream& out) {
  for (const engine::SchedulerRow& row : engine::schedulers()) {
    out << fmt::format("{:<10} {}\n", row.name, row.summary);
  }
}

}  // namespace

pb::RunConfig read_run_config(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw UsageError(fmt::format("--run-config {}: cannot be read", file));
  }
  std::ostringstream text;
  text << in.rdbuf();
  pb::RunConfig config;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text.str(), &config)) {
    throw UsageError(fmt::format("--run-config {}: {}", file, error.text));
  }
  return config;
}

std::string as_text(const pb::RunConfig& config) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  return "# proto-message: kneepoint.sim.pb.RunConfig\n" + text;
}

std::optional<RunConfig> parse_simulate(std::span<const std::string> arguments, std::ostream& out) {
  const ParsedFlags parsed = parse_flags(arguments);
  if (parsed.help) {
    out << help_text();
    return std::nullopt;
  }
  if (parsed.version) {
    out << "simulate " << kVersion << "\n";
    return std::nullopt;
  }
  if (parsed.list_schedulers) {
    list_schedulers(out);
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
    throw UsageError("--trace is missing: give a .pb file, as `traces generate` or `traces convert` writes one");
  }
  RunConfig config = resolve(asked);
  for (const std::string& flag : parsed.without_influence) {
    config.flags_without_influence.push_back(flag);
  }
  if (parsed.print_config) {
    out << as_text(as_proto(config, asked));
    return std::nullopt;
  }
  config.resolved_text = as_text(as_proto(config, asked));
  return config;
}

}  // namespace kneepoint::sim
