#include "sim/knee_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace kneepoint::sim {
namespace {

constexpr std::size_t kWidth = 100;

std::string heading(std::string_view title) {
  return fmt::format("{:-^{}}\n", fmt::format(" {} ", title), kWidth);
}

// Latencies to three digits, n/a where no run was finished.
std::string ms_text(const MaybeEstimate& estimate) {
  if (!estimate) {
    return "n/a";
  }
  return estimate->value < 1000 ? fmt::format("{:.1f}", estimate->value)
                                : fmt::format("{:.0f}", estimate->value);
}

// Beyond saturation a latency is no answer, only a band: from the middle of the
// run's requests to the worst percentile, and growing with the run.
std::string p99_text(const LoadPoint& point, LoadAxis axis) {
  if (!point.ttft.p99_ms) {
    return "n/a";
  }
  const Estimate& p99 = *point.ttft.p99_ms;
  if (point.beyond_saturation && axis == LoadAxis::kRate) {
    return fmt::format("{:.0f}..{:.0f}", point.ttft.p50_ms ? point.ttft.p50_ms->value : 0.0,
                       p99.value + p99.half_width);
  }
  return fmt::format("{} ± {:.0f} %", ms_text(point.ttft.p99_ms),
                     p99.value > 0 ? 100 * p99.half_width / p99.value : 0.0);
}

std::string load_text(double load, LoadAxis axis) {
  return axis == LoadAxis::kConcurrency ? fmt::format("{:.0f}", load) : fmt::format("{:.4g}", load);
}

// A "±" is one column and two bytes.
std::string padded(const std::string& text, std::size_t width) {
  const auto columns = static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  return fmt::format("{:>{}}{}", "", width > columns ? width - columns : 0, text);
}

void append_knees(const KneeResult& result, std::string& text) {
  for (const Knee& knee : result.knees) {
    std::string name = knee_name(knee.kind);
    if (knee.kind == KneeKind::kSlo) {
      name = fmt::format("SLO {}", fmt::join(result.slo, ", "));
    }
    if (!knee.found()) {
      text += fmt::format("{:<25} {}\n", name, knee.explanation);
      continue;
    }
    text += fmt::format("{:<25} {} {}   [{:.4g}, {:.4g}]   ± {:.2g} arrivals, ± {:.2g} step time\n", name,
                        load_text(knee.load, result.axis), load_unit(result.axis), knee.lower(), knee.upper(),
                        knee.arrivals_half_width, knee.step_time_half_width);
  }
  const StepTimeError& error = result.step_time_error;
  text += fmt::format(
      "95 % intervals over {} seeds; step time known to {:.2g} % (model {:.2g} %: {}; drift {:.2g} %: {})\n",
      result.seeds, 100 * error.total(), 100 * error.model, error.model_source, 100 * error.drift,
      error.drift_source);
  if (!result.precise) {
    text += fmt::format(
        "The arrivals' part is wider than --precision {:g} asks for: more --max-requests or --seeds would "
        "narrow it\n",
        result.precision);
  }
}

void append_curve(const KneeResult& result, std::string& text) {
  text += fmt::format("{:>10} {:>20} {:>9} {:>9} {:>10} {:>8} {:>8} {:>8} {:>6} {}\n", "load", "p99 TTFT ms",
                      "p50 TTFT", "p99 TPOT", "out tok/s", "running", "waiting", "KV mean", "elast.",
                      " keeps up");
  for (const LoadPoint& point : result.points) {
    text += fmt::format(
        "{:>10} {} {:>9} {:>9} {:>10.0f} {:>8.1f} {:>8.1f} {:>6.0f} % {:>6} {}{}\n",
        load_text(point.load, result.axis), padded(p99_text(point, result.axis), 20),
        point.beyond_saturation && result.axis == LoadAxis::kRate ? "" : ms_text(point.ttft.p50_ms),
        ms_text(point.tpot.p99_ms), point.output_tokens_per_s.value, point.mean_running, point.mean_waiting,
        100 * point.mean_kv_usage, point.elasticity ? fmt::format("{:.1f}", point.elasticity->value) : "",
        point.keeps_up.keeps_up ? " yes" : " no", point.meets_slo ? ", meets the SLO" : "");
  }
  text += "elast.: percent of p99 TTFT for one percent of step time\n";
  if (result.axis == LoadAxis::kRate) {
    text += "Beyond saturation: p50..p99 of runs of this length; longer ones wait longer\n";
  }
}

void append_what_ifs(const KneeResult& result, std::string& text) {
  for (const WhatIf& answer : result.what_ifs) {
    if (answer.status != KneeStatus::kFound) {
      text += fmt::format("with {:<44} the {} knee is {} {}\n", answer.change, knee_name(answer.kind),
                          knee_status_name(answer.status), load_text(answer.load, result.axis));
      continue;
    }
    text += fmt::format("with {:<44} the {} knee moves to {} {} ({:+.1f} %)\n", answer.change,
                        knee_name(answer.kind), load_text(answer.load, result.axis), load_unit(result.axis),
                        100 * (answer.factor - 1));
  }
}

void append_servers(const KneeResult& result, std::string& text) {
  if (!result.servers) {
    return;
  }
  const ServersNeeded& s = *result.servers;
  const auto count = [](std::int64_t likely, std::int64_t cautious) {
    return likely == cautious ? fmt::format("{}", likely)
                              : fmt::format("{} ({} by the lower end of the interval)", likely, cautious);
  };
  text += heading("Servers for this trace's own traffic");
  text +=
      fmt::format("mean {:.3g} req/s: {}; peak {:.3g} req/s (over {:.3g} s): {}. Assumes perfect balancing\n",
                  s.mean_rate, count(s.for_mean, s.for_mean_cautious), s.peak_rate, s.peak_window_s,
                  count(s.for_peak, s.for_peak_cautious));
}

}  // namespace

std::string knee_table(const KneeResult& result) {
  std::string text = fmt::format("{:=^{}}\n", " Where the latency breaks ", kWidth);
  text += fmt::format("{}\n", result.workload);
  append_knees(result, text);
  text += heading(fmt::format("Load, {}", load_unit(result.axis)));
  append_curve(result, text);
  if (!result.bindings.empty()) {
    text += heading("What binds");
  }
  for (const Binding& binding : result.bindings) {
    text += fmt::format("{} ({} {}): {}\n", binding.where, load_text(binding.load, result.axis),
                        load_unit(result.axis), resource_name(binding.resource));
    for (const std::string& line : binding.evidence) {
      text += fmt::format("  {}\n", line);
    }
  }
  if (!result.what_ifs.empty()) {
    text += heading("What if");
    append_what_ifs(result, text);
  }
  append_servers(result, text);
  text += heading("Where the numbers come from");
  for (const std::string& line : result.provenance) {
    text += line + "\n";
  }
  for (const std::string& notice : result.notices) {
    text += fmt::format("Note: {}\n", notice);
  }
  text += fmt::format("{} simulations of {} requests in all\n", result.runs, result.simulated_requests);
  return text + std::string(kWidth, '=') + "\n";
}

}  // namespace kneepoint::sim
