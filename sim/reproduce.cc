#include "sim/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "sim/command_line.h"
#include "sim/measured_run.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/progress.h"
#include "sim/result_json.h"
#include "sim/usage_error.h"
#include "traces/sha256.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Why each value was chosen; now it is because result.json says so.
constexpr std::string_view kReasons = "provenance";

// Files of the user that a run can read, by the role that result.json gives them.
struct Places {
  std::string trace, model, gpu, rates, server;
};

struct Recorded {
  std::string text;
  std::string configuration;
  Json inputs;
};

[[noreturn]] void refuse(const std::string& file, std::string_view why) {
  throw UsageError(fmt::format("--reproduce {}: {}", file, why));
}

std::string read_text(const std::string& file) {
  std::error_code ignored;
  std::ifstream in(file, std::ios::binary);
  if (!fs::is_regular_file(file, ignored) || !in) {
    refuse(file, "cannot be read; name a result.json that `simulate --out` wrote");
  }
  std::string text(fs::file_size(file), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

// An object of results, or a refusal. Depth is bounded: results are flat.
Json parse_result(const std::string& file, const std::string& text) {
  constexpr int kMaxDepth = 8;
  bool too_deep = false;
  const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  Json json = Json::parse(text, bounded, false);
  if (too_deep || !json.is_object() || !json.contains("kneepoint_version")) {
    refuse(file, "is no whole result.json of `simulate --out`");
  }
  return json;
}

Recorded read_recorded(const std::string& file) {
  Recorded recorded;
  recorded.text = read_text(file);
  const Json json = parse_result(file, recorded.text);
  const auto configuration = json.find("configuration");
  const auto inputs = json.find("inputs");
  if (configuration == json.end() || !configuration->is_string() || inputs == json.end() || !inputs->is_array()) {
    refuse(file, "holds no configuration and inputs");
  }
  const auto stopped = json.find("stopped_by");
  if (stopped != json.end() && stopped->is_string() &&
      stopped->get_ref<const std::string&>().starts_with("--max-wall-time")) {
    refuse(file, "was stopped by --max-wall-time, which nobody can repeat");
  }
  recorded.configuration = configuration->get<std::string>();
  recorded.inputs = *inputs;
  return recorded;
}

std::string text_field(const std::string& file, const Json& input, const char* name) {
  const auto found = input.is_object() ? input.find(name) : input.end();
  if (!input.is_object() || found == input.end() || !found->is_string()) {
    refuse(file, "its inputs are damaged");
  }
  return found->get<std::string>();
}

// Every input is there and is the one that was used.
void check_inputs(const std::string& file, const Json& inputs, const Places& places) {
  const std::array<std::pair<std::string_view, const std::string*>, 5> kRoles{{{"trace", &places.trace},
                                                                               {"model", &places.model},
                                                                               {"gpu", &places.gpu},
                                                                               {"rates", &places.rates},
                                                                               {"server", &places.server}}};
  for (const Json& input : inputs) {
    const std::string role = text_field(file, input, "role");
    const std::string name = text_field(file, input, "name");
    const auto found =
        std::find_if(kRoles.begin(), kRoles.end(), [&](const auto& known) { return known.first == role; });
    if (found == kRoles.end()) {
      refuse(file, fmt::format("has an input '{}' that this version does not know", role.substr(0, 40)));
    }
    const std::string& place = *found->second;
    if (place.empty()) {
      refuse(file, fmt::format("was made with {} file {}; say where it is with --{}", role, name, role));
    }
    const fs::path path = fs::is_directory(place) ? fs::path(place) / "config.json" : fs::path(place);
    if (const std::string hash = traces::sha256_file(path); hash != text_field(file, input, "sha256")) {
      refuse(file, fmt::format("was made with another {} than {}: sha256 {}, not {}", role, place,
                               text_field(file, input, "sha256").substr(0, 16), hash.substr(0, 16)));
    }
  }
}

RunConfig resolved_again(const std::string& file, const Recorded& recorded, const Places& places) {
  pb::RunConfig asked = parse_run_config(recorded.configuration, fmt::format("--reproduce {}: configuration", file));
  asked.set_trace(places.trace);
  if (!places.model.empty()) {
    asked.set_model(places.model);
  }
  if (!places.gpu.empty()) {
    asked.set_gpu(places.gpu);
  }
  if (!places.rates.empty()) {
    asked.set_rates(places.rates);
  }
  if (!places.server.empty()) {
    asked.set_server(places.server);
  }
  asked.clear_out();
  asked.clear_step_log();
  RunConfig config = resolve(asked);
  config.resolved_text = as_text(as_proto(config, asked));
  return config;
}

// Values of any length, cut for one line. Arrays and objects may be large.
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

}  // namespace

std::optional<std::string> first_difference(const std::string& name, const std::string& recorded,
                                            const std::string& now) {
  const Json before = parse_result(name, recorded);
  const Json after = parse_result("the new result", now);
  for (const auto& [key, value] : before.items()) {
    if (key == kReasons) {
      continue;
    }
    const auto found = after.find(key);
    if (found == after.end()) {
      return fmt::format("{}: recorded {}, now absent", key, shown(value));
    }
    if (*found != value) {
      return fmt::format("{}: recorded {}, now {}", key, shown(value), shown(*found));
    }
  }
  for (const auto& [key, value] : after.items()) {
    if (!before.contains(key)) {
      return fmt::format("{}: not recorded, now {}", key, shown(value));
    }
  }
  return std::nullopt;
}

bool asks_to_reproduce(std::span<const std::string> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--reproduce" || argument.starts_with("--reproduce=");
  });
}

int run_reproduce(std::span<const std::string> arguments) {
  std::string file;
  Places places;
  CLI::App app("Repeats the run of a result.json and compares: exit status 0 if all is equal, 1 if not.",
               "simulate --reproduce");
  app.add_option("--reproduce", file, "result.json of the run")->required();
  app.add_option("--trace", places.trace, "the trace it was made with")->required();
  app.add_option("--model", places.model, "the model's config.json, if it was a file");
  app.add_option("--gpu", places.gpu, "the GPU's .textproto, if it was a file");
  app.add_option("--rates", places.rates, "the rates, if they were a file");
  app.add_option("--server", places.server, "the measured server");
  app.footer("Example: simulate --reproduce result/result.json --trace bursty.pb");
  if (!parse_arguments(app, "--reproduce", arguments, "`simulate --reproduce x --help`")) {
    return 0;
  }
  const Recorded recorded = read_recorded(file);
  check_inputs(file, recorded.inputs, places);
  const RunConfig config = resolved_again(file, recorded, places);
  Progress progress(traces::TraceReader(config.trace).info().num_records);
  std::vector<RunObserver*> watchers = {&progress};
  const MeasuredRun measured = measure(config, watchers);
  progress.clear();
  const auto difference = first_difference(file, recorded.text, result_json(as_result(config, measured)));
  write_stdout(difference ? fmt::format("{}: not reproduced; first difference: {}\n", file, *difference)
                          : fmt::format("{}: reproduced, every key is equal\n", file));
  return difference ? 1 : 0;
}

}  // namespace kneepoint::sim
