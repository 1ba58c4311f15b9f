#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "sim/knee_report.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json estimate_json(const Estimate& estimate) {
  return {{"value", number(estimate.value)}, {"half_width", number(estimate.half_width)}};
}

Json maybe_json(const MaybeEstimate& estimate) {
  return estimate ? estimate_json(*estimate) : Json(nullptr);
}

Json latencies_json(const LatencyEstimates& latency) {
  return {{"mean", maybe_json(latency.mean_ms)},
          {"p50", maybe_json(latency.p50_ms)},
          {"p95", maybe_json(latency.p95_ms)},
          {"p99", maybe_json(latency.p99_ms)}};
}

Json point_json(const LoadPoint& p) {
  Json json;
  json["load"] = p.load;
  json["runs"] = p.runs;
  json["requests_a_run"] = p.requests_a_run;
  json["warm_up_requests"] = p.warm_up_requests;
  json["keeps_up"] = {{"verdict", p.keeps_up.keeps_up},
                      {"runs_with_trend", p.keeps_up.runs_with_trend},
                      {"trend_t", number(p.keeps_up.trend_t)},
                      {"throughput_share", number(p.keeps_up.throughput_share)}};
  json["beyond_saturation"] = p.beyond_saturation;
  json["meets_slo"] = p.meets_slo;
  json["ttft_ms"] = latencies_json(p.ttft);
  json["tpot_ms"] = latencies_json(p.tpot);
  json["e2el_ms"] = latencies_json(p.e2el);
  json["requests_per_s"] = estimate_json(p.requests_per_s);
  json["output_tokens_per_s"] = estimate_json(p.output_tokens_per_s);
  json["good_share"] = maybe_json(p.good_share);
  json["failed_share"] = p.failed_share;
  json["mean_running"] = p.mean_running;
  json["mean_waiting"] = p.mean_waiting;
  json["peak_waiting"] = p.peak_waiting;
  json["mean_kv_usage"] = p.mean_kv_usage;
  json["peak_kv_usage"] = p.peak_kv_usage;
  json["preemptions_a_request"] = p.preemptions_a_request;
  json["device_busy_share"] = p.device_busy_share;
  json["tokens_a_step"] = p.tokens_a_step;
  json["decodes_a_step"] = p.decodes_a_step;
  json["prompts_a_step"] = p.prompts_a_step;
  json["prompt_tokens_a_step"] = p.prompt_tokens_a_step;
  json["steps_per_s"] = p.steps_per_s;
  json["waits"] = Json::array();
  for (const WaitShare& wait : p.waits) {
    json["waits"].push_back(
        {{"cause", wait.cause}, {"share", wait.share}, {"ms_a_request", wait.ms_a_request}});
  }
  json["elasticity"] = maybe_json(p.elasticity);
  return json;
}

Json knee_of(const Knee& knee) {
  Json json;
  json["kind"] = knee_name(knee.kind);
  json["status"] = knee_status_name(knee.status);
  json["load"] = knee.load;
  json["lower"] = knee.found() ? Json(knee.lower()) : Json(nullptr);
  json["upper"] = knee.found() ? Json(knee.upper()) : Json(nullptr);
  json["arrivals_half_width"] = knee.arrivals_half_width;
  json["step_time_half_width"] = knee.step_time_half_width;
  json["step_time_sensitivity"] = knee.step_time_sensitivity;
  json["by_seed"] = knee.by_seed;
  json["requests_a_run"] = knee.requests_a_run;
  json["explanation"] = knee.explanation;
  return json;
}

Json binding_json(const Binding& binding) {
  return {{"load", binding.load},
          {"where", binding.where},
          {"resource", resource_name(binding.resource)},
          {"evidence", binding.evidence}};
}

Json what_if_json(const WhatIf& answer) {
  return {{"change", answer.change},
          {"knee", knee_name(answer.kind)},
          {"status", knee_status_name(answer.status)},
          {"load", answer.load},
          {"factor", answer.factor},
          {"factor_half_width", answer.factor_half_width}};
}

Json servers_json(const ServersNeeded& s) {
  return {{"mean_rate", s.mean_rate},
          {"peak_rate", s.peak_rate},
          {"peak_window_s", s.peak_window_s},
          {"for_mean", s.for_mean},
          {"for_peak", s.for_peak},
          {"for_mean_cautious", s.for_mean_cautious},
          {"for_peak_cautious", s.for_peak_cautious},
          {"assumes", "perfect balancing"}};
}

template <typename Items, typename Make>
Json list_of(const Items& items, Make make) {
  Json list = Json::array();
  for (const auto& item : items) {
    list.push_back(make(item));
  }
  return list;
}

}  // namespace

std::string knee_json(const KneeResult& r) {
  Json json;
  json["kneepoint_version"] = r.version;
  json["workload"] = r.workload;
  json["load_unit"] = load_unit(r.axis);
  json["closed_loop"] = r.axis == LoadAxis::kConcurrency;
  json["slo"] = r.slo;
  json["seeds"] = r.seeds;
  json["precision"] = r.precision;
  json["precise"] = r.precise;
  json["step_time_error"] = {{"model", r.step_time_error.model},
                             {"model_source", r.step_time_error.model_source},
                             {"drift", r.step_time_error.drift},
                             {"drift_source", r.step_time_error.drift_source},
                             {"total", r.step_time_error.total()}};
  json["knees"] = list_of(r.knees, knee_of);
  json["points"] = list_of(r.points, point_json);
  json["bindings"] = list_of(r.bindings, binding_json);
  json["what_ifs"] = list_of(r.what_ifs, what_if_json);
  json["servers"] = r.servers ? servers_json(*r.servers) : Json(nullptr);
  json["notices"] = r.notices;
  json["runs"] = r.runs;
  json["simulated_requests"] = r.simulated_requests;
  json["provenance"] = r.provenance;
  json["configuration"] = r.configuration;
  return json.dump(1) + "\n";
}

std::string points_csv(const KneeResult& result) {
  std::string text =
      "load,runs,requests_a_run,warm_up_requests,keeps_up,trend_t,beyond_saturation,meets_slo,"
      "ttft_mean_ms,ttft_p50_ms,ttft_p95_ms,ttft_p99_ms,ttft_p99_half_width_ms,tpot_mean_ms,tpot_p50_ms,tpot_"
      "p95_ms,tpot_p99_ms,"
      "e2el_p50_ms,e2el_p95_ms,e2el_p99_ms,requests_per_s,output_tokens_per_s,failed_share,mean_running,mean_"
      "waiting,peak_waiting,"
      "mean_kv_usage,peak_kv_usage,preemptions_a_request,device_busy_share,tokens_a_step,steps_per_s,"
      "elasticity\n";
  const auto value = [](const MaybeEstimate& e) { return e ? fmt::format("{}", e->value) : std::string(); };
  for (const LoadPoint& p : result.points) {
    text += fmt::format("{},{},{},{},{},{},{},{},", p.load, p.runs, p.requests_a_run, p.warm_up_requests,
                        p.keeps_up.keeps_up ? 1 : 0, p.keeps_up.trend_t, p.beyond_saturation ? 1 : 0,
                        p.meets_slo ? 1 : 0);
    text +=
        fmt::format("{},{},{},{},{},", value(p.ttft.mean_ms), value(p.ttft.p50_ms), value(p.ttft.p95_ms),
                    value(p.ttft.p99_ms), p.ttft.p99_ms ? fmt::format("{}", p.ttft.p99_ms->half_width) : "");
    text += fmt::format("{},{},{},{},{},{},{},", value(p.tpot.mean_ms), value(p.tpot.p50_ms),
                        value(p.tpot.p95_ms), value(p.tpot.p99_ms), value(p.e2el.p50_ms),
                        value(p.e2el.p95_ms), value(p.e2el.p99_ms));
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}\n", p.requests_per_s.value,
                        p.output_tokens_per_s.value, p.failed_share, p.mean_running, p.mean_waiting,
                        p.peak_waiting, p.mean_kv_usage, p.peak_kv_usage, p.preemptions_a_request,
                        p.device_busy_share, p.tokens_a_step, p.steps_per_s, value(p.elasticity));
  }
  return text;
}

}  // namespace kneepoint::sim
