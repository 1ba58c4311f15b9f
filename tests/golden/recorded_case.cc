#include "tests/golden/recorded_case.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace kneepoint::golden {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The whole file; gunzipped if it is gzipped.
std::string read_all(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    throw RecordingError(
        fmt::format("{}: {}", file.string(), fs::exists(file) ? "not a file" : "no such file"));
  }
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in{gzopen(file.c_str(), "rb"), &gzclose};
  if (in == nullptr) {
    throw RecordingError(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  }
  std::string text;
  std::vector<char> buffer(1 << 20);
  int got = 0;
  while ((got = gzread(in.get(), buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  int code = Z_OK;
  const char* message = gzerror(in.get(), &code);
  if (got < 0 || code != Z_OK) {
    throw RecordingError(fmt::format("{}: damaged or cut short: {}", file.string(), message));
  }
  return text;
}

json parse_json(std::string_view text, const std::string& where) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw RecordingError(fmt::format("{}: no valid JSON, or cut short: {}", where, error.what()));
  }
}

void for_each_line(std::string_view text, const std::function<void(std::string_view, int)>& visit) {
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      visit(line, number);
    }
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
}

const json& require(const json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key)) {
    throw RecordingError(fmt::format("{}: no '{}'; is this a file of recorded cases?", where, key));
  }
  return object.at(key);
}

std::vector<json> checked_trace(std::vector<json> trace, const std::string& where) {
  if (trace.empty()) {
    throw RecordingError(fmt::format("{}: the trace has no event", where));
  }
  for (const json& event : trace) {
    const json& kind = require(event, "ev", where);
    if (kind != "schedule" && kind != "update") {
      throw RecordingError(fmt::format("{}: unknown event {}", where, kind.dump()));
    }
  }
  return trace;
}

void read_scenarios(const fs::path& file, const json& scenarios,
                    const std::function<void(const RecordedCase&)>& visit) {
  for (const json& scenario : scenarios) {
    const std::string name = require(scenario, "name", file.string()).get<std::string>();
    const fs::path trace_file = file.parent_path() / "golden" / (name + ".jsonl");
    std::vector<json> trace;
    for_each_line(read_all(trace_file), [&](std::string_view line, int number) {
      trace.push_back(parse_json(line, fmt::format("{}:{}", trace_file.string(), number)));
    });
    const std::string where = fmt::format("{}: {}", file.string(), name);
    visit({name, parse_script(require(scenario, "script", where), where),
           checked_trace(std::move(trace), where)});
  }
}

void read_line(const fs::path& file, std::string_view line, int number,
               const std::function<void(const RecordedCase&)>& visit) {
  const std::string where = fmt::format("{}:{}", file.string(), number);
  const json entry = parse_json(line, where);
  const json& script = require(entry, "script", where);
  const json& trace = require(entry, "trace", where);
  if (!trace.is_array()) {
    throw RecordingError(fmt::format("{}: 'trace' is no list", where));
  }
  std::string name = fmt::format("line {}", number);
  if (entry.contains("name")) {
    name = entry.at("name").get<std::string>();
  } else if (entry.contains("seed")) {
    name = "seed " + entry.at("seed").dump();
  }
  visit({name, parse_script(script, where), checked_trace(trace.get<std::vector<json>>(), where)});
}

}  // namespace

void for_each_case(const fs::path& file, const std::function<void(const RecordedCase&)>& visit) {
  const std::string text = read_all(file);
  int cases = 0;
  const auto counted = [&](const RecordedCase& recorded) {
    ++cases;
    visit(recorded);
  };
  try {
    const std::size_t start = text.find_first_not_of(" \t\r\n");
    if (start != std::string::npos && text[start] == '[') {
      read_scenarios(file, parse_json(text, file.string()), counted);
    } else {
      for_each_line(text, [&](std::string_view line, int number) { read_line(file, line, number, counted); });
    }
  } catch (const json::exception& error) {
    throw RecordingError(fmt::format("{}: {}", file.string(), error.what()));
  }
  if (cases == 0) {
    throw RecordingError(fmt::format("{}: has no recorded case", file.string()));
  }
}

}  // namespace kneepoint::golden
