#include "sim/result_json.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json seconds_or_null(SimTime time) {
  return time == kNever ? Json(nullptr) : Json(to_seconds(time));
}

Json share_or_null(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? Json(static_cast<double>(part) / static_cast<double>(whole)) : Json(nullptr);
}

// A name that is a file's path loses its folders; meta-llama/Llama-3.1-8B is a name.
std::string without_folders(std::string_view name) {
  const bool is_file = name.ends_with(".json") || name.ends_with(".textproto") || name.ends_with(".pb");
  const std::size_t slash = name.rfind('/');
  return std::string(is_file && slash != std::string_view::npos ? name.substr(slash + 1) : name);
}

bool all_at_once(const ClientConfig& client) {
  return client.request_rate && std::isinf(*client.request_rate);
}

void add_stats(Json& json, std::string_view metric, const LatencyStats& stats) {
  const auto add = [&](std::string_view statistic, double value) {
    json[std::string(statistic) + "_" + std::string(metric) + "_ms"] =
        stats.empty() ? Json(nullptr) : Json(value);
  };
  add("mean", stats.mean_ms);
  add("median", stats.median_ms);
  add("std", stats.std_ms);
  add("p50", stats.p50_ms);
  add("p90", stats.p90_ms);
  add("p95", stats.p95_ms);
  add("p99", stats.p99_ms);
}

// The arrays of --save-detailed, one entry a request in the order of the workload.
void add_detailed(Json& json, const std::vector<DetailedRequest>& requests) {
  const auto add = [&](const char* key, auto value_of) {
    Json values = Json::array();
    for (const DetailedRequest& request : requests) {
      values.push_back(value_of(request, is_completed(request.record.end)));
    }
    json[key] = std::move(values);
  };
  using D = DetailedRequest;
  add("input_lens", [](const D& d, bool) { return Json(d.record.prompt_tokens); });
  add("output_lens", [](const D& d, bool ok) { return Json(ok ? d.record.output_tokens : 0); });
  add("ttfts", [](const D& d, bool) {
    return d.record.first_token == kNever ? Json(nullptr)
                                          : Json(to_seconds(d.record.first_token - d.record.sent));
  });
  add("itls", [](const D& d, bool) {
    Json gaps = Json::array();
    for (const std::int64_t gap : d.gaps_ns) {
      gaps.push_back(to_seconds(SimDuration(gap)));
    }
    return gaps;
  });
  add("latencies", [](const D& d, bool) { return Json(to_seconds(d.record.last_token - d.record.sent)); });
  add("start_times", [](const D& d, bool) { return Json(to_seconds(d.record.sent)); });
  add("queue_times", [](const D& d, bool) { return Json(to_seconds(d.record.sent - d.record.arrival)); });
  add("errors", [](const D& d, bool ok) {
    return Json(ok ? std::string() : std::string(request_end_name(d.record.end)));
  });
}

// The keys of `vllm bench serve --save-result`, in its order (spec.md 7.2).
void add_vllm_keys(Json& json, const RunResult& result) {
  const ClientConfig& client = result.config.client;
  const MetricsReport& metrics = result.metrics;
  json["date"] = nullptr;
  json["endpoint_type"] = "kneepoint";
  json["backend"] = "kneepoint";
  json["label"] = nullptr;
  json["model_id"] = without_folders(result.config.model_name);
  json["tokenizer_id"] = json["model_id"];
  json["num_prompts"] = metrics.requests() + result.summary.unfinished;
  json["request_rate"] =
      client.request_rate && !all_at_once(client) ? Json(*client.request_rate) : Json("inf");
  json["burstiness"] = client.burstiness;
  json["max_concurrency"] = or_null(client.max_concurrency);
  json["duration"] = to_seconds(metrics.duration);
  json["completed"] = metrics.completed;
  json["failed"] = metrics.failed;
  json["total_input_tokens"] = metrics.total_input_tokens;
  json["total_output_tokens"] = metrics.total_output_tokens;
  json["request_throughput"] = or_null(metrics.request_throughput);
  json["request_goodput"] = or_null(metrics.request_goodput);
  json["output_throughput"] = or_null(metrics.output_throughput);
  json["total_token_throughput"] = or_null(metrics.total_token_throughput);
  if (result.config.report.save_detailed) {
    add_detailed(json, metrics.detailed);
  }
  json["max_output_tokens_per_s"] = static_cast<double>(metrics.max_chunks_per_s);
  json["max_concurrent_requests"] = metrics.max_concurrent_requests;
  json["rtfx"] = 0.0;  // Of audio; vLLM writes it for text, too.
  add_stats(json, "ttft", metrics.ttft);
  add_stats(json, "tpot", metrics.tpot);
  add_stats(json, "itl", metrics.itl);
  add_stats(json, "e2el", metrics.e2el);
  if (client.max_concurrency) {
    add_stats(json, "client_queue_time", metrics.client_queue);
    if (!all_at_once(client)) {
      add_stats(json, "e2el_including_client_queue", metrics.e2el_with_client_queue);
    }
  }
}

void add_requests(Json& json, const RunResult& result) {
  const MetricsReport& metrics = result.metrics;
  const ClientConfig& client = result.config.client;
  json["arrivals"] = all_at_once(client) ? "all at once" : client.request_rate ? "drawn" : "trace";
  Json by_reason = Json::object();
  for (std::size_t i = 0; i < kNumRequestEnds; ++i) {
    const auto end = static_cast<RequestEnd>(i);
    if (!is_completed(end)) {
      by_reason[std::string(request_end_name(end))] = metrics.ended[i];
    }
  }
  json["failed_by_reason"] = std::move(by_reason);
  json["unfinished"] = result.summary.unfinished;
  json["error_rate"] = or_null(metrics.error_rate());
  json["peak_in_flight_requests"] = metrics.peak_in_flight;
  json["itl_percentiles"] = metrics.itl_exact ? "exact" : "within 0.1 %";
  add_stats(json, "queue", metrics.queue);
  add_stats(json, "prefill", metrics.prefill);
}

void add_server(Json& json, const RunResult& result) {
  const RunSummary& run = result.summary;
  const hw::MemoryBudget& memory = result.config.memory;
  const std::int64_t usable = run.num_blocks - 1;
  json["kv_cache"] = {{"block_size", result.config.engine.block_size},
                      {"usable_blocks", usable},
                      {"peak_used_blocks", run.peak_used_blocks},
                      {"peak_usage", share_or_null(run.peak_used_blocks, usable)},
                      {"block_bytes_per_gpu", memory.block_bytes},
                      {"peak_bytes_per_gpu", run.peak_used_blocks * memory.block_bytes}};
  json["peak_gpu_memory_bytes"] = run.peak_memory_bytes > 0 ? Json(run.peak_memory_bytes) : Json(nullptr);
  json["preemptions"] = run.preemptions;
  json["prefix_cache"] = {{"query_tokens", run.prefix_query_tokens},
                          {"hit_tokens", run.prefix_hit_tokens},
                          {"hit_rate", share_or_null(run.prefix_hit_tokens, run.prefix_query_tokens)}};
  json["steps"] = run.steps;
  json["scheduled_tokens"] = run.scheduled_tokens;
  json["device_busy_s"] = to_seconds(run.device_busy);
  json["mean_running"] = run.mean_running;
  json["mean_waiting"] = run.mean_waiting;
  json["peak_running"] = run.peak_running;
  json["peak_waiting"] = run.peak_waiting;
  Json causes = Json::object();
  for (const WaitCause& cause : run.wait_causes) {
    causes[cause.cause] = to_seconds(cause.time);
  }
  json["waiting_s_by_cause"] = std::move(causes);
}

void add_verdicts(Json& json, const RunResult& result) {
  const RunSummary& run = result.summary;
  json["overloaded"] = run.overloaded;
  json["overload_reason"] = run.overloaded ? Json(run.overload_reason) : Json(nullptr);
  json["vllm_would_hang_from_s"] = seconds_or_null(run.hangs_from);
  json["preemption_storm"] = run.storm;
  json["partial"] = !run.stopped_by.empty();
  json["stopped_by"] = run.stopped_by.empty() ? Json(nullptr) : Json(run.stopped_by);
  json["unsent"] = result.num_unsent;
  json["notices"] = run.notices;
}

// Each total with both ways it was counted; equal, or the run would not have ended.
void add_audit(Json& json, const RunSummary& run) {
  Json audit = Json::object();
  for (const AuditLine& line : run.audit) {
    audit[std::string(line.total)] = {{std::string(line.one_way), line.first},
                                      {std::string(line.other_way), line.second}};
  }
  json["audit"] = std::move(audit);
}

void add_origin(Json& json, const RunResult& result) {
  json["kneepoint_version"] = result.version;
  json["seed"] = result.config.seed;
  Json inputs = Json::array();
  for (const InputFile& input : result.inputs) {
    inputs.push_back({{"role", input.role}, {"name", input.name}, {"sha256", input.sha256}});
  }
  json["inputs"] = std::move(inputs);
  json["provenance"] = result.provenance;
  json["configuration"] = configuration_without_places(result.configuration);
}

}  // namespace

std::string configuration_without_places(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(length);
    const std::string_view field = line.substr(0, line.find(':'));
    constexpr std::string_view kPlaces[] = {"out",   "step_log", "format",     "report",
                                            "plots", "timeline", "plain_steps"};
    if (std::find(std::begin(kPlaces), std::end(kPlaces), field) != std::end(kPlaces)) {
      continue;
    }
    const std::size_t open = line.find('"');
    const std::size_t close = line.rfind('"');
    if (line.front() == '#' || open == close) {
      kept += line;
      continue;
    }
    kept += line.substr(0, open + 1);
    kept += field == "trace"
                ? std::filesystem::path(line.substr(open + 1, close - open - 1)).filename().string()
                : without_folders(line.substr(open + 1, close - open - 1));
    kept += line.substr(close);
  }
  return kept;
}

std::string result_json(const RunResult& result) {
  Json json;
  add_vllm_keys(json, result);
  add_requests(json, result);
  add_server(json, result);
  add_verdicts(json, result);
  add_audit(json, result.summary);
  add_origin(json, result);

  // A file name need not be UTF-8; JSON must be.
  const auto text_of = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text;
  for (const auto& [key, value] : json.items()) {
    text += (text.empty() ? "{\n  " : ",\n  ") + text_of(key) + ": " + text_of(value);
  }
  return text + "\n}\n";
}

}  // namespace kneepoint::sim
