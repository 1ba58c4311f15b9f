#include "calibrate/client_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/calibrate_error.h"
#include "calibrate/robust_linear.h"

namespace kneepoint::calibrate {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw CalibrateError(fmt::format("{}: {}", path.string(), why));
}

// Stamps further apart than any run lasts are of two clocks.
constexpr double kOtherClock_s = 1e6;

/// One request, as far as a row tells. Times as stamps of the row's own clock.
struct Row {
  std::optional<double> sent_s, queued_s, first_s, last_s, ttft_s, latency_s;
  std::optional<double> prompt_tokens, output_tokens;
};

struct Column {
  std::string_view name;  ///< Without a unit at its end.
  std::optional<double> Row::*field;
  bool is_time;
};

constexpr std::array kColumns{
    Column{"arrival", &Row::sent_s, true},
    Column{"arrival_time", &Row::sent_s, true},
    Column{"request_start", &Row::sent_s, true},
    Column{"request_start_time", &Row::sent_s, true},
    Column{"sent", &Row::sent_s, true},
    Column{"start", &Row::sent_s, true},
    Column{"start_time", &Row::sent_s, true},
    Column{"timestamp", &Row::sent_s, true},
    Column{"queued", &Row::queued_s, true},
    Column{"queued_ts", &Row::queued_s, true},
    Column{"first_token", &Row::first_s, true},
    Column{"first_token_time", &Row::first_s, true},
    Column{"first_token_ts", &Row::first_s, true},
    Column{"end", &Row::last_s, true},
    Column{"end_time", &Row::last_s, true},
    Column{"last_token", &Row::last_s, true},
    Column{"last_token_time", &Row::last_s, true},
    Column{"last_token_ts", &Row::last_s, true},
    Column{"request_end", &Row::last_s, true},
    Column{"time_to_first_token", &Row::ttft_s, true},
    Column{"ttft", &Row::ttft_s, true},
    Column{"e2e", &Row::latency_s, true},
    Column{"e2el", &Row::latency_s, true},
    Column{"latency", &Row::latency_s, true},
    Column{"request_latency", &Row::latency_s, true},
    Column{"input_length", &Row::prompt_tokens, false},
    Column{"input_sequence_length", &Row::prompt_tokens, false},
    Column{"input_tokens", &Row::prompt_tokens, false},
    Column{"input_toks", &Row::prompt_tokens, false},
    Column{"prompt_tokens", &Row::prompt_tokens, false},
    Column{"completion_tokens", &Row::output_tokens, false},
    Column{"output_length", &Row::output_tokens, false},
    Column{"output_sequence_length", &Row::output_tokens, false},
    Column{"output_tokens", &Row::output_tokens, false},
    Column{"output_toks", &Row::output_tokens, false},
};

double unit_seconds(const fs::path& path, std::string_view unit) {
  if (unit == "s" || unit == "sec" || unit == "seconds") return 1;
  if (unit == "ms") return 1e-3;
  if (unit == "us") return 1e-6;
  if (unit == "ns") return 1e-9;
  refuse(path, fmt::format("unit '{}' is unknown; s, ms, us and ns are known", unit));
}

// Puts one named value where it belongs; false for a name nobody knows.
bool set_column(const fs::path& path, std::string name, double value, std::optional<std::string> unit, Row& row) {
  for (const char* suffix : {"_ms", "_us", "_ns", "_s"}) {
    const std::string_view end(suffix);
    if (!unit && name.size() > end.size() && std::string_view(name).substr(name.size() - end.size()) == end) {
      unit = std::string(end.substr(1));
      name.resize(name.size() - end.size());
    }
  }
  const auto found = std::find_if(kColumns.begin(), kColumns.end(),
                                  [&](const Column& column) { return column.name == name; });
  if (found == kColumns.end()) return false;
  std::optional<double>& field = row.*(found->field);
  if (!field) field = found->is_time ? value * unit_seconds(path, unit.value_or("s")) : value;
  return true;
}

// One clock for sends and server stamps.
void align_clocks(std::vector<Row>& rows, const fs::path& path, ClientRun& run) {
  double quickest = std::numeric_limits<double>::infinity();
  bool other = false;
  for (const Row& row : rows) {
    if (!row.sent_s || !row.first_s) return;
    other = other || std::abs(*row.first_s - *row.sent_s) > kOtherClock_s;
    if (row.queued_s) quickest = std::min(quickest, *row.queued_s - *row.sent_s);
  }
  if (!other) return;
  if (!std::isfinite(quickest)) {
    refuse(path, "first tokens are stamped on another clock than the sends, and no row says when it was queued");
  }
  for (Row& row : rows) {
    *row.first_s -= quickest;
    if (row.last_s) *row.last_s -= quickest;
  }
  run.notes.push_back(fmt::format(
      "{}: server stamps are on a clock of their own; the quickest request is taken to be queued as it is sent",
      path.string()));
}

double checked(const fs::path& path, std::size_t row, const char* what, const std::optional<double>& value,
               double least) {
  if (!value) refuse(path, fmt::format("request {} has no {}", row, what));
  if (!std::isfinite(*value) || *value < least) {
    refuse(path, fmt::format("request {}: {} is {}; at least {} and finite is needed", row, what, *value, least));
  }
  return *value;
}

std::int64_t checked_count(const fs::path& path, std::size_t row, const char* what,
                           const std::optional<double>& value) {
  const double count = checked(path, row, what, value, 1);
  if (count != std::floor(count)) refuse(path, fmt::format("request {}: {} is {}, no whole number", row, what, count));
  return static_cast<std::int64_t>(count);
}

ClientRun run_of(const fs::path& path, std::vector<Row> rows) {
  if (rows.empty()) refuse(path, "holds no request");
  ClientRun run;
  align_clocks(rows, path, run);
  double first_sent = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    ClientRequest request;
    request.start_s = checked(path, i, "send time", row.sent_s, 0);
    request.prompt_tokens = checked_count(path, i, "prompt tokens", row.prompt_tokens);
    request.output_tokens = checked_count(path, i, "output tokens", row.output_tokens);
    std::optional<double> ttft = row.ttft_s, latency = row.latency_s;
    if (!ttft && row.first_s) ttft = *row.first_s - *row.sent_s;
    if (!latency && row.last_s) latency = *row.last_s - *row.sent_s;
    request.ttft_s = checked(path, i, "time to first token", ttft, 0);
    request.latency_s = checked(path, i, "latency", latency, 0);
    if (request.ttft_s > request.latency_s + 1e-4) {
      refuse(path, fmt::format("request {}: its first token comes after {} s, its last after {}: other units?", i,
                               request.ttft_s, request.latency_s));
    }
    first_sent = std::min(first_sent, request.start_s);
    run.requests.push_back(std::move(request));
  }
  std::stable_sort(run.requests.begin(), run.requests.end(),
                   [](const ClientRequest& a, const ClientRequest& b) { return a.start_s < b.start_s; });
  for (ClientRequest& request : run.requests) {
    request.start_s -= first_sent;
    run.duration_s = std::max(run.duration_s, request.start_s + request.latency_s);
  }
  // No server that anyone measures takes seconds for each token.
  constexpr double kSlowestTpot_s = 2;
  std::vector<double> tpots;
  for (const ClientRequest& request : run.requests) {
    if (request.output_tokens > 1) {
      tpots.push_back((request.latency_s - request.ttft_s) / static_cast<double>(request.output_tokens - 1));
    }
  }
  if (quantile(tpots, 0.5) > kSlowestTpot_s) {
    refuse(path, fmt::format("the median request takes {:.1f} s for each output token: are the latencies in ms? Name "
                             "their columns with _ms, or give seconds",
                             quantile(tpots, 0.5)));
  }
  return run;
}

// aiperf: {"metadata": {"request_start_ns": 1, ...}, "metrics": {"time_to_first_token": {"value": 1, "unit": "ms"}}}
Row aiperf_row(const fs::path& path, const Json& line, std::size_t number) {
  Row row;
  const Json metadata = line.value("metadata", Json::object());
  const auto error = line.find("error");
  if ((error != line.end() && !error->is_null()) || metadata.value("was_cancelled", false)) {
    refuse(path, fmt::format("line {}: request failed or was cancelled; a run with failures cannot be fitted", number));
  }
  for (const auto& [name, value] : metadata.items()) {
    if (value.is_number()) set_column(path, name, value.get<double>(), std::nullopt, row);
  }
  for (const auto& [name, value] : line.at("metrics").items()) {
    if (!value.is_object() || !value.contains("value") || !value["value"].is_number()) continue;
    std::optional<std::string> unit;
    if (value.contains("unit") && value["unit"].is_string()) unit = value["unit"].get<std::string>();
    const bool count = unit && (*unit == "tokens" || *unit == "requests");
    // Without a unit aiperf's times are ms.
    set_column(path, name, value["value"].get<double>(), count ? std::optional<std::string>("s") : unit.value_or("ms"),
               row);
  }
  return row;
}

bool says_failed(const Json& line) {
  const auto status = line.find("status");
  const auto success = line.find("success");
  const auto error = line.find("error");
  return (status != line.end() && status->is_string() && *status != "ok" && *status != "success" &&
          *status != "completed") ||
         (success != line.end() && success->is_boolean() && !success->get<bool>()) ||
         (error != line.end() && !error->is_null() && *error != "");
}

ClientRun read_json_lines(const fs::path& path, std::istream& in) {
  std::vector<Row> rows;
  std::size_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (text.empty() || text == "\r") continue;
    const Json line = Json::parse(text, nullptr, false);
    if (line.is_discarded() || !line.is_object()) {
      refuse(path, fmt::format("line {} is no JSON object: cut short, or NaN in it?", number));
    }
    if (line.contains("metrics") && line["metrics"].is_object()) {
      const std::string phase = line.value("metadata", Json::object()).value("benchmark_phase", "profiling");
      if (phase == "profiling") rows.push_back(aiperf_row(path, line, number));
      continue;
    }
    if (says_failed(line)) {
      refuse(path, fmt::format("line {}: request failed; a run with failures cannot be fitted", number));
    }
    Row row;
    for (const auto& [name, value] : line.items()) {
      if (value.is_number()) set_column(path, name, value.get<double>(), std::nullopt, row);
    }
    rows.push_back(row);
  }
  return run_of(path, std::move(rows));
}

std::vector<std::string> split_commas(const std::string& line) {
  std::vector<std::string> cells(1);
  for (const char c : line) {
    if (c == ',') {
      cells.emplace_back();
    } else if (c != '\r' && c != '"' && c != ' ') {
      cells.back() += c;
    }
  }
  return cells;
}

ClientRun read_csv(const fs::path& path, std::istream& in) {
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = split_commas(line);
  std::vector<Row> rows;
  for (std::size_t number = 2; std::getline(in, line); ++number) {
    if (line.empty() || line == "\r") continue;
    const std::vector<std::string> cells = split_commas(line);
    if (cells.size() != names.size()) {
      refuse(path, fmt::format("line {} has {} cells, the header {}: cut short?", number, cells.size(), names.size()));
    }
    Row row;
    for (std::size_t i = 0; i < names.size(); ++i) {
      double value = 0;
      const char* end = cells[i].data() + cells[i].size();
      const auto [stop, error] = std::from_chars(cells[i].data(), end, value);
      const bool number_read = error == std::errc() && stop == end;
      if (number_read) {
        set_column(path, names[i], value, std::nullopt, row);
      } else if (Row probe; set_column(path, names[i], 0, std::nullopt, probe)) {
        refuse(path, fmt::format("line {}: {} is '{}', no number", number, names[i], cells[i]));
      }
    }
    rows.push_back(row);
  }
  return run_of(path, std::move(rows));
}

ClientRun read_guidellm(const fs::path& path, const Json& report) {
  const Json& benchmarks = report["benchmarks"];
  if (!benchmarks.is_array() || benchmarks.size() != 1) {
    refuse(path, fmt::format("holds {} benchmarks; export one at a time, a run is one of them",
                             benchmarks.is_array() ? benchmarks.size() : 0));
  }
  const Json requests = benchmarks[0].value("requests", Json::object());
  for (const char* kind : {"errored", "incomplete"}) {
    if (requests.contains(kind) && requests[kind].is_array() && !requests[kind].empty()) {
      refuse(path, fmt::format("{} requests are {}; a run with failures cannot be fitted", requests[kind].size(), kind));
    }
  }
  std::vector<Row> rows;
  for (const Json& request : requests.value("successful", Json::array())) {
    Row row;
    for (const auto& [name, value] : request.items()) {
      if (value.is_number()) set_column(path, name, value.get<double>(), std::nullopt, row);
    }
    rows.push_back(row);
  }
  return run_of(path, std::move(rows));
}

}  // namespace

ClientRun read_client_file(const fs::path& path) {
  std::ifstream in(path);
  if (!in) refuse(path, "cannot be read; is the path right?");
  char first = 0;
  in >> first;
  in.seekg(0);
  if (first != '{' && first != '[') return read_csv(path, in);
  std::string line;
  std::getline(in, line);
  in.seekg(0);
  const Json one = Json::parse(line, nullptr, false);
  const bool whole_in_line = !one.is_discarded() && one.is_object();
  if (whole_in_line && !one.contains("input_lens") && !one.contains("benchmarks")) return read_json_lines(path, in);
  if (whole_in_line && one.contains("benchmarks")) return read_guidellm(path, one);
  if (!whole_in_line) {
    const Json all = Json::parse(in, nullptr, false);
    if (!all.is_discarded() && all.is_object() && all.contains("benchmarks")) return read_guidellm(path, all);
  }
  return read_client_result(path);
}

}  // namespace kneepoint::calibrate
