#include "calibrate/server_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string_view>

#include "calibrate/calibrate_error.h"

namespace kneepoint::calibrate {

namespace {

// The number behind `label` in `text`, thousands separators dropped: "19,200".
std::optional<double> number_behind(std::string_view text, std::string_view label) {
  const std::size_t at = text.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  std::string digits;
  for (const char c : text.substr(at + label.size())) {
    if ((c >= '0' && c <= '9') || c == '.') {
      digits.push_back(c);
    } else if (c != ',' && !(digits.empty() && c == ' ')) {
      break;
    }
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  static_cast<void>(end);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> count_behind(std::string_view text, std::string_view label) {
  const auto value = number_behind(text, label);
  return value ? std::optional(static_cast<std::int64_t>(*value)) : std::nullopt;
}

std::optional<std::int64_t> integer_value(const std::map<std::string, std::string>& values,
                                          const std::string& key) {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  std::int64_t value = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::string first_word(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_first_of(" )", begin) - begin));
}

std::string word_behind(std::string_view text, std::string_view label) {
  const std::size_t at = text.find(label);
  return at == std::string_view::npos ? std::string() : first_word(text.substr(at + label.size()));
}

// Whether a line of the API server begins a new start: the banner or, without
// one, the arguments.
bool begins_start(const LoggedServer& server, std::string_view text) {
  const bool banner = text.find("  version ") != std::string_view::npos ||
                      text.find("vLLM API server version ") != std::string_view::npos;
  const bool args = text.find("non-default args: ") != std::string_view::npos;
  return (banner && !server.version.empty()) || (args && !server.args.empty());
}

}  // namespace

void ServerLogReader::read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw CalibrateError(fmt::format("{}: cannot be read; is the path right?", path.string()));
  read(in, path.filename().string());
}

void ServerLogReader::read(std::istream& in, const std::string& name) {
  file_ = name;
  line_in_file_ = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_in_file_;
    ++log_.lines;
    if (line.ends_with('\r')) line.pop_back();
    take_line(line);
  }
}

ServerLog ServerLogReader::take() {
  return std::move(log_);
}

LoggedServer& ServerLogReader::new_server(const LogLine& line) {
  LoggedServer server;
  server.where = fmt::format("{}:{}", file_, line_in_file_);
  server.stream = line.stream;
  log_.servers.push_back(std::move(server));
  return log_.servers.back();
}

LoggedServer& ServerLogReader::server_of(const LogLine& line, bool starts_a_server) {
  auto& servers = log_.servers;
  const auto newest = [&](const auto& fits) -> LoggedServer* {
    const auto found = std::find_if(servers.rbegin(), servers.rend(), [&](const LoggedServer& server) {
      return server.stream == line.stream && fits(server);
    });
    return found == servers.rend() ? nullptr : &*found;
  };
  if (line.process == LogProcess::kApiServer && line.pid >= 0) {
    LoggedServer* server = newest([&](const LoggedServer& s) { return s.api_pid == line.pid; });
    if (server == nullptr) {
      // An engine core may have spoken first; several API servers of one
      // deployment speak for the same engines.
      server = newest([&](const LoggedServer& s) { return s.api_pid < 0 && !s.core_pids.empty(); });
    }
    if (server == nullptr || (starts_a_server && begins_start(*server, line.text)))
      server = &new_server(line);
    server->api_pid = line.pid;
    return *server;
  }
  if (line.process == LogProcess::kEngineCore && line.pid >= 0) {
    const auto has_core = [&](const LoggedServer& s) {
      return std::find(s.core_pids.begin(), s.core_pids.end(), line.pid) != s.core_pids.end();
    };
    LoggedServer* server = newest(has_core);
    // Containers give every start the same process ids.
    if (server != nullptr && starts_a_server && !server->config.empty()) server = nullptr;
    if (server == nullptr) {
      // The start that still waits for an engine core of this rank: its number of cores says so.
      const std::size_t rank = static_cast<std::size_t>(std::max<std::int64_t>(line.rank, 0));
      for (LoggedServer& candidate : servers) {
        if (server == nullptr && candidate.stream == line.stream && candidate.core_pids.size() <= rank &&
            candidate.started_in_log) {
          server = &candidate;
        }
      }
      if (server == nullptr) server = &new_server(line);
      server->core_pids.push_back(line.pid);
    }
    return *server;
  }
  LoggedServer* server = newest([](const LoggedServer&) { return true; });
  if (server == nullptr || (starts_a_server && begins_start(*server, line.text))) server = &new_server(line);
  return *server;
}

void ServerLogReader::take_line(std::string_view text) {
  const LogLine line = parse_log_line(text);
  IterationLine step;
  StatsLine stats;
  switch (parse_iteration(line, step, log_.unknown_fields)) {
    case LineResult::kRead:
      step.line = line_in_file_;
      take_step(line, step);
      return;
    case LineResult::kCutShort:
      ++log_.unreadable["iteration lines cut short"];
      return;
    case LineResult::kAbsurd:
      ++log_.unreadable["iteration lines with absurd numbers"];
      return;
    case LineResult::kOtherKind:
      break;
  }
  switch (parse_stats(line, stats, log_.unknown_fields)) {
    case LineResult::kRead: {
      LoggedEngine& engine = server_of(line, false).engines[stats.rank];
      engine.rank = stats.rank;
      engine.stats.push_back(stats);
      return;
    }
    case LineResult::kCutShort:
      ++log_.unreadable["10-second lines cut short"];
      return;
    case LineResult::kAbsurd:
      ++log_.unreadable["10-second lines with absurd numbers"];
      return;
    case LineResult::kOtherKind:
      break;
  }
  static_cast<void>(take_start_line(line));
}

void ServerLogReader::take_step(const LogLine& line, const IterationLine& step) {
  LoggedServer* server = &server_of(line, false);
  LoggedEngine* engine = &server->engines[step.rank];
  engine->rank = step.rank;
  if (!engine->steps.empty()) {
    const IterationLine& last = engine->steps.back();
    if (step.iteration == last.iteration && step.elapsed_s == last.elapsed_s) {
      ++log_.unreadable["iteration lines that repeat the one before"];
      return;
    }
    if (step.iteration <= last.iteration) {
      // The counter went back: the server was restarted and its start is not in the log.
      LoggedServer again;
      again.where = fmt::format("{}:{}", file_, line_in_file_);
      again.stream = server->stream;
      again.api_pid = server->api_pid;
      again.core_pids = server->core_pids;
      log_.servers.push_back(std::move(again));
      ++log_.unreadable["restarts without start-up lines"];
      engine = &log_.servers.back().engines[step.rank];
      engine->rank = step.rank;
    } else {
      engine->missing_steps += step.iteration - last.iteration - 1;
    }
  }
  engine->steps.push_back(step);
}

bool ServerLogReader::take_start_line(const LogLine& line) {
  const std::string_view text = line.text;
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (has("non-default args: ")) {
    LoggedServer& server = server_of(line, true);
    server.started_in_log = true;
    const std::size_t open = text.find('{');
    bool complete = false;
    if (open != std::string_view::npos && text.ends_with('}')) {
      for (auto& [key, value] :
           split_python_pairs(text.substr(open + 1, text.size() - open - 2), ':', complete)) {
        server.args[key] = value;
      }
    }
    if (!complete) ++log_.unreadable["argument lines cut short"];
    if (server.args.contains("model")) server.model = server.args["model"];
    return true;
  }
  if (has("Initializing a V1 LLM engine") && has(" with config: ")) {
    LoggedServer& server = server_of(line, line.process == LogProcess::kEngineCore);
    server.started_in_log = true;
    std::string version = word_behind(text, "engine (v");
    if (server.version.empty()) server.version = version;
    bool complete = false;
    constexpr std::string_view kLabel = " with config: ";
    for (auto& [key, value] :
         split_python_pairs(text.substr(text.find(kLabel) + kLabel.size()), '=', complete)) {
      server.config[key] = value;
    }
    if (!complete) ++log_.unreadable["engine configuration lines cut short"];
    if (server.model.empty() && server.config.contains("model")) server.model = server.config["model"];
    if (!server.max_model_len) server.max_model_len = integer_value(server.config, "max_seq_len");
    return true;
  }
  if (has("  version ") || has("vLLM API server version ")) {
    const bool banner = has("  version ");
    LoggedServer& server = server_of(line, true);
    server.started_in_log = true;
    server.version = word_behind(text, banner ? "  version " : "server version ");
    return true;
  }
  if (has("Resolved architecture: ")) {
    server_of(line, false).architecture = word_behind(text, "Resolved architecture: ");
  } else if (has("Using max model len ")) {
    server_of(line, false).max_model_len = count_behind(text, "Using max model len ");
  } else if (has("max_num_batched_tokens=")) {
    server_of(line, false).max_num_batched_tokens = count_behind(text, "max_num_batched_tokens=");
  } else if (has("Asynchronous scheduling is ")) {
    server_of(line, false).async_scheduling = has("is enabled");
  } else if (has("using the V1 model runner instead")) {
    server_of(line, false).v2_model_runner = false;
  } else if (has("num_gpu_blocks_override=")) {
    server_of(line, false).num_blocks = count_behind(text, "num_gpu_blocks_override=");
  } else if (has("GPU blocks: ")) {
    server_of(line, false).num_blocks = count_behind(text, "GPU blocks: ");
  } else if (has("kv cache block size to ")) {
    server_of(line, false).block_size = count_behind(text, "kv cache block size to ");
  } else if (has("KV cache size: ") && has(" tokens")) {
    LoggedServer& server = server_of(line, false);
    server.kv_cache_tokens = count_behind(text, "KV cache size: ");
    if (has("Maximum concurrency for ")) server.max_concurrency = number_behind(text, "per request: ");
  } else if (has("Maximum concurrency for ")) {
    server_of(line, false).max_concurrency = number_behind(text, "per request: ");
  } else {
    return false;
  }
  return true;
}

const LoggedServer& only_server(const ServerLog& log, const std::string& what) {
  const LoggedServer* found = nullptr;
  for (const LoggedServer& server : log.servers) {
    std::int64_t engines = 0;
    for (const auto& [rank, engine] : server.engines) engines += engine.steps.empty() ? 0 : 1;
    if (engines == 0) continue;
    if (found != nullptr) {
      throw CalibrateError(
          fmt::format("{}: steps of two servers or of a restart in one log ({} and {}); give one "
                      "server's part as its own file",
                      what, found->where, server.where));
    }
    if (engines > 1) {
      throw CalibrateError(
          fmt::format("{}: steps of {} engines (data-parallel ranks) in one log; give the lines of "
                      "one rank as its own file",
                      what, engines));
    }
    found = &server;
  }
  if (found == nullptr) {
    throw CalibrateError(
        fmt::format("{}: no 'Iteration(' lines; start the server with "
                    "--enable-logging-iteration-details",
                    what));
  }
  return *found;
}

}  // namespace kneepoint::calibrate
