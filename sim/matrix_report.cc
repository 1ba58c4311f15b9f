#include "sim/matrix_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/options.h"
#include "sim/result_json.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;

struct Metric {
  const char* name;
  LatencyStats MetricsReport::*stats;
};
constexpr std::array kMetrics{Metric{"ttft", &MetricsReport::ttft}, Metric{"tpot", &MetricsReport::tpot},
                              Metric{"e2el", &MetricsReport::e2el}};
constexpr std::string_view kRefusedMark = "!";

struct Percentile {
  const char* name;
  double LatencyStats::*value;
};
constexpr std::array kPercentiles{Percentile{"p50", &LatencyStats::p50_ms},
                                  Percentile{"p95", &LatencyStats::p95_ms},
                                  Percentile{"p99", &LatencyStats::p99_ms}};

std::string_view mark_of(const MatrixCell& cell) {
  return cell.refused.empty() ? hw::fit_mark(cell.fit) : kRefusedMark;
}

// "fits", "kv_exceeded", ...: for programs.
const char* status_of(const MatrixCell& cell) {
  if (!cell.refused.empty()) {
    return "server_would_not_start";
  }
  switch (cell.fit) {
    case hw::Fit::kFits:
      return "run";
    case hw::Fit::kKvExceeded:
      return "kv_exceeded";
    case hw::Fit::kWeightsDoNotFit:
      return "weights_do_not_fit";
    case hw::Fit::kNoSuchContext:
      return "no_such_context";
  }
  return "";
}

std::string context_text(std::int64_t context) {
  return context % 1024 == 0 ? fmt::format("{}K", context / 1024) : fmt::format("{}", context);
}

// The peak use of the KV cache, one GPU.
double kv_peak_bytes(const Matrix& matrix, const MatrixCell& cell) {
  return static_cast<double>(cell.run->run.summary.peak_used_blocks) *
         static_cast<double>(matrix.servers[cell.server].memory.block_bytes);
}

double kv_peak_share(const MatrixCell& cell) {
  const RunSummary& run = cell.run->run.summary;
  return static_cast<double>(run.peak_used_blocks) / static_cast<double>(run.num_blocks - 1);
}

// Enough digits to tell neighbours apart, no more than are worth reading.
std::string milliseconds(double ms) {
  return ms >= 1000  ? fmt::format("{:.0f}", ms)
         : ms >= 100 ? fmt::format("{:.1f}", ms)
                     : fmt::format("{:.2f}", ms);
}

std::string three(const LatencyStats& stats) {
  return stats.empty() ? "n/a"
                       : fmt::format("{} / {} / {}", milliseconds(stats.p50_ms), milliseconds(stats.p95_ms),
                                     milliseconds(stats.p99_ms));
}

void append_cell(std::string& text, const MatrixCell& cell) {
  auto out = std::back_inserter(text);
  fmt::format_to(out, "{:>7} {:>11}  ", context_text(cell.context), cell.concurrency);
  if (!cell.run) {
    fmt::format_to(out, "{}\n", mark_of(cell));
    return;
  }
  const MetricsReport& m = cell.run->metrics;
  fmt::format_to(out, "✓{:>27}{:>23}{:>27}{:>10.1f}{:>8.1f}{:>8.1f}{:>8.1f}\n", three(m.ttft), three(m.tpot),
                 three(m.e2el), m.output_throughput.value_or(0), 100 * m.error_rate().value_or(0),
                 cell.run->run.summary.peak_memory_bytes / 1e9, 100 * kv_peak_share(cell));
}

// What the run was, in a line or two.
std::string header(const Matrix& matrix) {
  const MatrixOptions& o = matrix.options;
  if (matrix.servers.empty()) {
    return "nothing fits: no cell was run\n";
  }
  const RunConfig& s = matrix.servers.front();
  std::string text = fmt::format(
      "{} on {}x {}: weights {}, KV cache {}, prefix caching {}, speculative decoding {}\n"
      "closed loop, {} requests a cell, all there from the start; answers of {} tokens, lengths {}\n",
      s.deployment.model.name, s.deployment.tensor_parallel_size * s.deployment.pipeline_parallel_size,
      s.deployment.gpu.full_name, s.quantization == "none" ? s.dtype : s.quantization, s.kv_cache_dtype,
      s.engine.enable_prefix_caching ? "on" : "off", s.engine.num_speculative_tokens > 0 ? "on" : "off",
      o.num_requests, o.output_tokens,
      o.random_range_ratio > 0 ? fmt::format("uniform within {:.0f} %", 100 * o.random_range_ratio)
                               : "fixed");
  if (o.prefix_tokens > 0) {
    text += fmt::format("all prompts begin with the same {} tokens\n", o.prefix_tokens);
  }
  return text;
}

Json server_json(const RunConfig& server) {
  Json json;
  json["max_model_len"] = server.engine.max_model_len;
  json["prefix_caching"] = server.engine.enable_prefix_caching;
  json["kv_cache_dtype"] = server.kv_cache_dtype;
  json["fp8_kv"] = server.deployment.kv_cache == hw::Precision::kFp8;
  json["speculative_tokens"] = server.engine.num_speculative_tokens;
  json["quantization"] = server.quantization;
  json["configuration"] = configuration_without_places(server.resolved_text);
  json["provenance"] = server.provenance;
  return json;
}

Json cell_json(const Matrix& matrix, const MatrixCell& cell) {
  Json json;
  json["context"] = cell.context;
  json["concurrency"] = cell.concurrency;
  json["mark"] = mark_of(cell);
  json["status"] = status_of(cell);
  if (!cell.refused.empty()) {
    json["reason"] = cell.refused;
  }
  if (!cell.run) {
    return json;
  }
  const MetricsReport& m = cell.run->metrics;
  const RunSummary& run = cell.run->run.summary;
  json["completed"] = m.completed;
  json["failed"] = m.failed;
  json["error_rate"] = m.error_rate().value_or(0);
  json["duration_s"] = to_seconds(m.duration);
  json["output_throughput"] = m.output_throughput ? Json(*m.output_throughput) : Json(nullptr);
  json["total_token_throughput"] = m.total_token_throughput ? Json(*m.total_token_throughput) : Json(nullptr);
  for (const Metric& metric : kMetrics) {
    const LatencyStats& stats = m.*metric.stats;
    for (const Percentile& p : kPercentiles) {
      json[fmt::format("{}_{}_ms", p.name, metric.name)] =
          stats.empty() ? Json(nullptr) : Json(stats.*p.value);
    }
  }
  json["peak_gpu_memory_bytes"] = run.peak_memory_bytes;
  json["peak_kv_bytes_per_gpu"] = kv_peak_bytes(matrix, cell);
  json["peak_kv_usage"] = kv_peak_share(cell);
  json["preemptions"] = run.preemptions;
  json["notices"] = run.notices;
  return json;
}

}  // namespace

std::string matrix_table(const Matrix& matrix) {
  std::string text = header(matrix);
  text += fmt::format("\n{:>7} {:>11}   {:>27}{:>23}{:>27}{:>10}{:>8}{:>8}{:>8}\n", "context", "concurrency",
                      "TTFT ms p50/p95/p99", "TPOT ms p50/p95/p99", "E2E ms p50/p95/p99", "out tok/s",
                      "err %", "GPU GB", "KV %");
  std::string refusal;
  for (const MatrixCell& cell : matrix.cells) {
    append_cell(text, cell);
    refusal = cell.refused.empty() ? refusal : cell.refused;
  }
  text += "\n✓ fits, was run   — KV exceeded: not run   ✕ weights do not fit   n/a no such context\n";
  text += fmt::format(
      "fits: the planner's rule, KV budget {} GB = 85 % of nominal memory minus weights (simulate capacity)\n"
      "GPU GB: what vLLM holds on one GPU, the KV cache as a whole; KV %: the most of that cache in use\n",
      hw::budget_gb_text(matrix.kv_budget_bytes));
  if (!refusal.empty()) {
    text +=
        fmt::format("{} fits by the planner, but the server would not start: {}\n", kRefusedMark, refusal);
  }
  return text;
}

std::string matrix_json(const Matrix& matrix) {
  const MatrixOptions& o = matrix.options;
  Json json;
  json["benchmark"] = {{"kind", "closed loop, all requests there from the start"},
                       {"num_prompts", o.num_requests},
                       {"output_len", o.output_tokens},
                       {"prefix_len", o.prefix_tokens},
                       {"random_range_ratio", o.random_range_ratio},
                       {"kneepoint_version", kVersion}};
  json["planner_kv_budget_bytes"] = matrix.kv_budget_bytes;
  json["servers"] = Json::array();
  for (const RunConfig& server : matrix.servers) {
    json["servers"].push_back(server_json(server));
  }
  json["cells"] = Json::array();
  for (const MatrixCell& cell : matrix.cells) {
    json["cells"].push_back(cell_json(matrix, cell));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string matrix_csv(const Matrix& matrix) {
  std::string text = "context,concurrency,status,prefix_caching,kv_cache_dtype,speculative_tokens";
  for (const Metric& metric : kMetrics) {
    for (const Percentile& p : kPercentiles) {
      text += fmt::format(",{}_{}_ms", p.name, metric.name);
    }
  }
  text += ",output_tokens_per_s,error_rate,peak_gpu_memory_gb,peak_kv_gb\n";
  for (const MatrixCell& cell : matrix.cells) {
    text += fmt::format("{},{},{}", cell.context, cell.concurrency, status_of(cell));
    if (!cell.run) {
      text += std::string(3 + kMetrics.size() * kPercentiles.size() + 4, ',') + "\n";
      continue;
    }
    const RunConfig& server = matrix.servers[cell.server];
    const MetricsReport& m = cell.run->metrics;
    text += fmt::format(",{},{},{}", server.engine.enable_prefix_caching, server.kv_cache_dtype,
                        server.engine.num_speculative_tokens);
    for (const Metric& metric : kMetrics) {
      const LatencyStats& stats = m.*metric.stats;
      for (const Percentile& p : kPercentiles) {
        text += stats.empty() ? "," : fmt::format(",{}", stats.*p.value);
      }
    }
    text += fmt::format(",{},{},{},{}\n", m.output_throughput.value_or(0), m.error_rate().value_or(0),
                        cell.run->run.summary.peak_memory_bytes / 1e9, kv_peak_bytes(matrix, cell) / 1e9);
  }
  return text;
}

}  // namespace kneepoint::sim
