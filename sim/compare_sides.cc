#include "sim/compare_sides.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "sim/options.h"
#include "sim/study_store.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kResult = "result.json";
constexpr const char* kStudyResults = "results.jsonl";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    throw UsageError(fmt::format("compare: {}: cannot be read", path.string()));
  }
  return text.str();
}

// "field: value" line by line; comments aside. A field that repeats is joined.
std::map<std::string, std::string> fields_of(std::string_view text) {
  std::map<std::string, std::string> fields;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t colon = line.find(": ");
    if (line.empty() || line.front() == '#' || colon == std::string_view::npos) {
      continue;
    }
    std::string& value = fields[std::string(line.substr(0, colon))];
    value += fmt::format("{}{}", value.empty() ? "" : " ", line.substr(colon + 2));
  }
  return fields;
}

void add_study(CompareSide& side, const fs::path& folder) {
  const StudyScan scan(folder);
  if (!scan.header() || scan.num_found() != scan.header()->points) {
    throw UsageError(
        fmt::format("compare: {}: the study is not complete; run it again to go on", folder.string()));
  }
  for (const std::string& option : scan.header()->options) {
    if (option != "sim_seed") {
      throw UsageError(
          fmt::format("compare: {}: varies {} too; compare takes a study in which only the seed varies",
                      folder.string(), option));
    }
  }
  for (std::int64_t i = 0; i < scan.header()->points; ++i) {
    const Json record = Json::parse(scan.line_of(i));
    if (record["result"].is_null()) {
      throw UsageError(fmt::format("compare: {}: point {} could not run: {}", folder.string(), i,
                                   record["reason"].get<std::string>()));
    }
    add_result(side, fmt::format("{} point {}", folder.string(), i), record["result"].dump());
  }
  const Json header = Json::parse(scan.header()->line);
  for (const Json& input : header["inputs"]) {
    if (input["role"] == "trace") {
      side.trace_sha256 = input["sha256"].get<std::string>();
    }
  }
}

void add_folder(CompareSide& side, const fs::path& folder) {
  if (fs::exists(folder / kResult)) {
    add_result(side, (folder / kResult).string(), read_file(folder / kResult));
    return;
  }
  if (fs::exists(folder / kStudyResults)) {
    add_study(side, folder);
    return;
  }
  std::vector<fs::path> results;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (fs::exists(entry.path() / kResult)) {
      results.push_back(entry.path() / kResult);
    }
  }
  std::sort(results.begin(), results.end());
  for (const fs::path& result : results) {
    add_result(side, result.string(), read_file(result));
  }
  if (results.empty()) {
    throw UsageError(fmt::format("compare: {}: has no {}, no folders with one and no study's {}",
                                 folder.string(), kResult, kStudyResults));
  }
}

}  // namespace

void add_result(CompareSide& side, const std::string& where, const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("mean_ttft_ms")) {
    throw UsageError(fmt::format("compare: {}: is no result of `simulate` or `vllm bench serve`", where));
  }
  const std::uint64_t seed =
      json.contains("seed") && json["seed"].is_number_unsigned() ? json["seed"].get<std::uint64_t>() : 0;
  if (!side.results.emplace(seed, text).second) {
    throw UsageError(
        fmt::format("compare: {}: {} has a result of seed {} already; each seed must be there once", where,
                    side.name, seed));
  }
  if (json.contains("configuration") && json["configuration"].is_string()) {
    side.configuration = fields_of(json["configuration"].get<std::string>());
  }
  if (json.contains("inputs") && json["inputs"].is_array()) {
    for (const Json& input : json["inputs"]) {
      if (input.value("role", "") == "trace") {
        side.trace_sha256 = input.value("sha256", "");
      }
    }
  }
}

CompareSide read_side(const std::string& path) {
  CompareSide side;
  side.name = path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw UsageError(
        fmt::format("compare: {}: is not there; give a result folder, a result.json or a run config", path));
  }
  if (fs::is_directory(status)) {
    add_folder(side, path);
  } else if (path.ends_with(".json")) {
    add_result(side, path, read_file(path));
  } else if (path.ends_with(".textproto")) {
    side.is_config = true;
  } else {
    throw UsageError(
        fmt::format("compare: {}: a result folder, a .json or a run config (.textproto) is needed", path));
  }
  return side;
}

}  // namespace kneepoint::sim
