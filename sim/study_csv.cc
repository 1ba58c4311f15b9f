#include "sim/study_csv.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;

// A column and the member of `result` it comes from.
struct Column {
  const char* name;
  const char* pointer;
};
constexpr std::array kColumns{
    Column{"duration_s", "/duration"},
    Column{"num_prompts", "/num_prompts"},
    Column{"completed", "/completed"},
    Column{"failed", "/failed"},
    Column{"error_rate", "/error_rate"},
    Column{"request_throughput_per_s", "/request_throughput"},
    Column{"request_goodput_per_s", "/request_goodput"},
    Column{"output_tokens_per_s", "/output_throughput"},
    Column{"total_tokens_per_s", "/total_token_throughput"},
    Column{"mean_ttft_ms", "/mean_ttft_ms"},
    Column{"p50_ttft_ms", "/p50_ttft_ms"},
    Column{"p90_ttft_ms", "/p90_ttft_ms"},
    Column{"p95_ttft_ms", "/p95_ttft_ms"},
    Column{"p99_ttft_ms", "/p99_ttft_ms"},
    Column{"mean_tpot_ms", "/mean_tpot_ms"},
    Column{"p50_tpot_ms", "/p50_tpot_ms"},
    Column{"p90_tpot_ms", "/p90_tpot_ms"},
    Column{"p95_tpot_ms", "/p95_tpot_ms"},
    Column{"p99_tpot_ms", "/p99_tpot_ms"},
    Column{"mean_itl_ms", "/mean_itl_ms"},
    Column{"p99_itl_ms", "/p99_itl_ms"},
    Column{"mean_e2el_ms", "/mean_e2el_ms"},
    Column{"p50_e2el_ms", "/p50_e2el_ms"},
    Column{"p95_e2el_ms", "/p95_e2el_ms"},
    Column{"p99_e2el_ms", "/p99_e2el_ms"},
    Column{"mean_queue_ms", "/mean_queue_ms"},
    Column{"p99_queue_ms", "/p99_queue_ms"},
    Column{"kv_blocks", "/kv_cache/usable_blocks"},
    Column{"kv_peak_usage", "/kv_cache/peak_usage"},
    Column{"peak_gpu_memory_bytes", "/peak_gpu_memory_bytes"},
    Column{"preemptions", "/preemptions"},
    Column{"prefix_hit_rate", "/prefix_cache/hit_rate"},
    Column{"steps", "/steps"},
    Column{"device_busy_s", "/device_busy_s"},
    Column{"mean_running", "/mean_running"},
    Column{"mean_waiting", "/mean_waiting"},
    Column{"peak_running", "/peak_running"},
    Column{"peak_waiting", "/peak_waiting"},
    Column{"overloaded", "/overloaded"},
};

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string out = "\"";
  for (const char c : text) {
    out += c;
    if (c == '"') {
      out += c;
    }
  }
  return out + "\"";
}

std::string field(const Json& value) {
  return value.is_null() ? "" : value.is_string() ? quoted(value.get<std::string>()) : value.dump();
}

Json member(const Json& json, const std::string& key) {
  return json.contains(key) ? json[key] : Json(nullptr);
}

Json at_pointer(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) ? json[at] : Json(nullptr);
}

}  // namespace

std::string study_csv_header(const std::vector<std::string>& options) {
  std::string text = "point";
  for (const std::string& option : options) {
    text += ',';
    text += quoted(option);
  }
  text += ",status";
  for (const Column& column : kColumns) {
    text += fmt::format(",{}", column.name);
  }
  return text + ",reason\n";
}

std::string study_csv_line(const std::vector<std::string>& options, const std::string& record) {
  const Json json = Json::parse(record);
  std::string text = json["point"].dump();
  for (const std::string& option : options) {
    text += ',';
    text += field(member(json["settings"], option));
  }
  text += ',';
  text += field(json["status"]);
  const Json& result = json["result"];
  for (const Column& column : kColumns) {
    text += ',';
    text += field(at_pointer(result, column.pointer));
  }
  text += ',';
  text += field(json["reason"]);
  text += '\n';
  return text;
}

}  // namespace kneepoint::sim
