// Who sends, what the front end refuses, what is reported.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "sim/choices.h"
#include "sim/defaults_parts.h"

namespace kneepoint::sim {
namespace {

constexpr std::array kFormats{Choice<OutputFormat>{"table", OutputFormat::kTable},
                              Choice<OutputFormat>{"json", OutputFormat::kJson}};

std::optional<std::int64_t> at_least(const char* flag, bool given, std::int64_t value, std::int64_t least) {
  if (!given) {
    return std::nullopt;
  }
  if (value < least) {
    throw UsageError(fmt::format("--{} is {}; a value of at least {} is needed", flag, value, least));
  }
  return value;
}

GoodputLimits parse_goodput(const pb::RunConfig& asked) {
  GoodputLimits limits;
  for (const std::string& text : asked.goodput()) {
    const std::size_t colon = text.find(':');
    const char* const number = colon == std::string::npos ? "" : text.c_str() + colon + 1;
    char* end = nullptr;
    const double ms = std::strtod(number, &end);
    if (end == number || *end != '\0' || !(ms >= 0) || ms > 1e12) {
      throw UsageError(fmt::format("--goodput '{}': write METRIC:MS, as in ttft:500", text));
    }
    const std::string metric = text.substr(0, colon);
    const SimDuration limit = to_sim_duration(ms * 1e-3);
    if (metric == "ttft") {
      limits.ttft = limit;
    } else if (metric == "tpot") {
      limits.tpot = limit;
    } else if (metric == "e2el") {
      limits.e2el = limit;
    } else {
      throw UsageError(fmt::format("--goodput '{}': the metric is ttft, tpot or e2el", text));
    }
  }
  return limits;
}

}  // namespace

void resolve_client(const pb::RunConfig& asked, RunConfig& config) {
  ClientConfig& c = config.client;
  if (asked.has_request_rate()) {
    if (!(asked.request_rate() > 0)) {
      throw UsageError(
          fmt::format("--request-rate is {}; a rate above 0, or inf, is needed", asked.request_rate()));
    }
    c.request_rate = asked.request_rate();
  }
  if (asked.has_burstiness()) {
    if (!(asked.burstiness() > 0) || std::isinf(asked.burstiness())) {
      throw UsageError(
          fmt::format("--burstiness is {}; a finite value above 0 is needed", asked.burstiness()));
    }
    if (!asked.has_request_rate()) {
      throw UsageError("--burstiness shapes the arrivals of --request-rate; give that too, or leave it out");
    }
    c.burstiness = asked.burstiness();
  }
  c.max_concurrency = at_least("max-concurrency", asked.has_max_concurrency(), asked.max_concurrency(), 1);
  if (asked.has_client_timeout()) {
    if (!(asked.client_timeout() > 0) || asked.client_timeout() > 1e9) {
      throw UsageError(fmt::format("--client-timeout is {}; seconds above 0, at most 1e9, are needed",
                                   asked.client_timeout()));
    }
    c.timeout = to_sim_duration(asked.client_timeout());
  }
  config.admission.max_num_queued_reqs =
      at_least("max-num-queued-reqs", asked.has_max_num_queued_reqs(), asked.max_num_queued_reqs(), 0);
  config.admission.max_num_queued_tokens =
      at_least("max-num-queued-tokens", asked.has_max_num_queued_tokens(), asked.max_num_queued_tokens(), 0);
}

void resolve_limits_of_run(const pb::RunConfig& asked, RunConfig& config) {
  const auto seconds = [](const char* flag, bool given, double value) -> std::optional<double> {
    if (given && (!(value > 0) || value > 1e9)) {
      throw UsageError(fmt::format("--{} is {}; seconds above 0, at most 1e9, are needed", flag, value));
    }
    return given ? std::optional(value) : std::nullopt;
  };
  if (const auto limit = seconds("max-sim-time", asked.has_max_sim_time(), asked.max_sim_time())) {
    config.limits.sim_time = to_sim_duration(*limit);
  }
  config.limits.wall_s = seconds("max-wall-time", asked.has_max_wall_time(), asked.max_wall_time());
  config.limits.requests = at_least("max-requests", asked.has_max_requests(), asked.max_requests(), 1);
}

void resolve_report(const pb::RunConfig& asked, RunConfig& config) {
  ReportConfig& r = config.report;
  r.format = choose("--format", asked.has_format() ? asked.format() : "table", kFormats);
  r.out_dir = asked.out();
  r.save_detailed = asked.save_detailed();
  r.requests_csv = !asked.has_requests_csv() || asked.requests_csv();
  r.page = !asked.has_report() || asked.report();
  r.plots = asked.plots();
  if (r.plots && r.out_dir.empty()) {
    throw UsageError("--plots writes its files into the folder of --out; give that, too");
  }
  if (r.plots && !r.page) {
    throw UsageError("--plots draws the figures of the report; leave out --no-report");
  }
  r.step_log = asked.step_log();
  r.timeline = asked.timeline();
  r.goodput = parse_goodput(asked);
}

}  // namespace kneepoint::sim
