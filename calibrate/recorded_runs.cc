#include "calibrate/recorded_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "calibrate/calibrate_error.h"

namespace kneepoint::calibrate {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// What one line of requests.jsonl says; seconds.
struct RecordedRequest {
  double arrival = 0;
  double ttft = 0;
  double decoding = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
};

double number(const Json& json, const char* field, const std::string& where) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_number() || !std::isfinite(found->get<double>())) {
    throw CalibrateError(fmt::format("{}: field '{}' is missing or no number", where, field));
  }
  return found->get<double>();
}

RecordedRequest read_request(const std::string& line, const std::string& where) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) {
    throw CalibrateError(fmt::format("{}: no JSON object", where));
  }
  const double first = number(json, "first_token_ts", where);
  RecordedRequest request;
  request.arrival = number(json, "arrival_time", where);
  request.ttft = first - number(json, "queued_ts", where);
  request.decoding = number(json, "last_token_ts", where) - first;
  request.prompt_tokens = std::llround(number(json, "input_toks", where));
  request.output_tokens = std::llround(number(json, "output_toks", where));
  if (request.prompt_tokens < 1 || request.output_tokens < 1 || request.ttft <= 0 || request.decoding < 0) {
    throw CalibrateError(fmt::format("{}: tokens below 1, or stamps that go backwards", where));
  }
  return request;
}

std::vector<RecordedRequest> read_requests(const fs::path& path) {
  std::ifstream in(path);
  std::vector<RecordedRequest> requests;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (!line.empty()) {
      requests.push_back(read_request(line, fmt::format("{}: line {}", path.string(), number)));
    }
  }
  if (requests.empty()) {
    throw CalibrateError(fmt::format("{}: no requests", path.string()));
  }
  std::stable_sort(requests.begin(), requests.end(),
                   [](const RecordedRequest& a, const RecordedRequest& b) { return a.arrival < b.arrival; });
  return requests;
}

template <class Value>
std::optional<Value> maybe(const Json& json, const char* field) {
  const auto found = json.find(field);
  return found == json.end() || found->is_null() ? std::nullopt : std::optional<Value>(found->get<Value>());
}

void read_setup(const fs::path& path, ServingRow& row) {
  std::ifstream in(path);
  const Json json = Json::parse(in, nullptr, false);
  if (!json.is_object() || !json.contains("model")) {
    throw CalibrateError(fmt::format("{}: no JSON object with a model", path.string()));
  }
  const Json flags = json.value("engine_kwargs", Json::object());
  try {
    ServingSetup& setup = row.setup;
    setup.model = json["model"].get<std::string>();
    setup.vllm_version = json.value("vllm_version", "");
    setup.weights = maybe<std::string>(flags, "quantization").value_or("");
    setup.kv_cache_dtype = maybe<std::string>(flags, "kv_cache_dtype").value_or("");
    setup.tensor_parallel_size = maybe<std::int64_t>(flags, "tensor_parallel_size").value_or(1);
    setup.attention_dp_size = maybe<std::int64_t>(flags, "data_parallel_size").value_or(1);
    setup.max_num_seqs = maybe<std::int64_t>(flags, "max_num_seqs");
    setup.max_num_batched_tokens = maybe<std::int64_t>(flags, "max_num_batched_tokens");
    setup.max_model_len = maybe<std::int64_t>(flags, "max_model_len");
    setup.block_size = maybe<std::int64_t>(flags, "block_size");
    setup.gpu_memory_utilization = maybe<double>(flags, "gpu_memory_utilization");
    setup.prefix_caching = maybe<bool>(flags, "enable_prefix_caching");
    setup.async_scheduling = maybe<bool>(flags, "async_scheduling");
  } catch (const Json::exception& error) {
    throw CalibrateError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

// Sorts `values`; numpy's percentile, linear between two.
double percentile(std::vector<double>& values, double p) {
  std::sort(values.begin(), values.end());
  const double at = static_cast<double>(values.size() - 1) * p;
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace

ServingRow read_recorded_run(const fs::path& folder) {
  ServingRow row;
  row.file = folder.filename().empty() ? folder.parent_path().filename() : folder.filename();
  read_setup(folder / "meta.json", row);
  const std::vector<RecordedRequest> requests = read_requests(folder / "requests.jsonl");
  RecordedClient client;
  std::vector<double> ttft_ms, tpot_ms;
  for (const RecordedRequest& request : requests) {
    client.requests.push_back({request.arrival - requests.front().arrival, request.prompt_tokens, request.output_tokens});
    ttft_ms.push_back(1e3 * request.ttft);
    if (request.output_tokens > 1) {
      tpot_ms.push_back(1e3 * request.decoding / static_cast<double>(request.output_tokens - 1));
    }
  }
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  row.mean_ttft_ms = mean(ttft_ms);
  row.p99_ttft_ms = percentile(ttft_ms, 0.99);
  if (!tpot_ms.empty()) {
    row.mean_tpot_ms = mean(tpot_ms);
  }
  row.recorded = std::move(client);
  const std::string name = row.file.string();
  identify(row, name, "recorded run", fmt::format("{} requests", requests.size()));
  if (row.setup.gpu.empty()) {
    row.not_run = fmt::format("meta.json names no GPU, and the folder's name begins with none ('{}')", name);
  }
  return row;
}

ServingRow unreadable_folder(const fs::path& folder) {
  ServingRow row;
  row.file = folder.filename().empty() ? folder.parent_path().filename() : folder.filename();
  row.name = row.file.string();
  row.not_run =
      "neither .csv tables nor meta.json with requests.jsonl; runs of vllm bench serve with a server log go to "
      "`calibrate fit-steps` and `calibrate validate`";
  return row;
}

}  // namespace kneepoint::calibrate
