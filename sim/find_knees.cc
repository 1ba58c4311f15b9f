#include "sim/find_knees.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hw/measured_step.h"
#include "hw/step_time_error.h"
#include "sim/interval.h"
#include "sim/knee_binds.h"
#include "sim/simulation.h"

namespace kneepoint::sim {
namespace {

constexpr double kNormal95 = 1.959964;
constexpr std::size_t kPairedSeeds = 2;  // Of a what-if.
// An SLO that holds to within a percent of saturation is saturation.
constexpr double kSameAsSaturation = 0.99;
constexpr double kPeakWindow_s = 60;
constexpr double kShortestPeakShare = 0.05;  // Of a trace that is shorter than 20 windows.

const LoadPoint* nearest_point(const std::vector<LoadPoint>& points, double load) {
  const LoadPoint* best = nullptr;
  for (const LoadPoint& point : points) {
    if (best == nullptr || std::abs(point.load - load) < std::abs(best->load - load)) {
      best = &point;
    }
  }
  return best;
}

StepTimeError step_time_error(const KneeQuestion& question, const LoadPoint* typical) {
  StepTimeError error;
  error.drift = question.step_time_sd.value_or(0);
  error.drift_source =
      question.step_time_sd ? "--step-time-sd" : "not known for this GPU; give --step-time-sd";
  error.model_source = "step times are given";
  if (question.make_times || typical == nullptr) {
    return error;
  }
  hw::StepTimeSd model;
  if (!question.config.server_file.empty()) {
    const hw::MeasuredServer server = hw::load_server(question.config.server_file);
    const double context = mean_context(question.config, *typical);
    const double prompt =
        typical->prompts_a_step > 0 ? typical->prompt_tokens_a_step / typical->prompts_a_step : 0;
    model =
        hw::measured_step_sd(server, {.prefill_tokens = typical->prompt_tokens_a_step,
                                      .attention_pairs = typical->prompts_a_step * prompt * (prompt + 1) / 2,
                                      .sequences = typical->decodes_a_step,
                                      .context_sum = typical->decodes_a_step * context});
    if (!question.step_time_sd) {
      error.drift = server.speed_sd_per_run;
      error.drift_source = "residuals of the fit, mean over a run";
    }
  } else {
    model = hw::roofline_step_sd(question.config.deployment, question.config.rates_file,
                                 typical_step(question.config, *typical));
  }
  error.model = model.relative;
  error.model_source = model.source;
  return error;
}

// What a knee, or its absence, means in words.
void explain(const KneeResult& result, Knee& knee) {
  const char* unit = load_unit(result.axis);
  const double end = knee.load;
  switch (knee.status) {
    case KneeStatus::kFound: {
      knee.explanation = fmt::format("{:.4g} {}, the mean of {} seeds", knee.load, unit, knee.by_seed.size());
      if (knee.kind == KneeKind::kElbow)
        knee.explanation += ", by the shape of the curve over the loads swept";
      return;
    }
    case KneeStatus::kAboveRange:
      knee.explanation =
          knee.kind == KneeKind::kSaturation
              ? fmt::format("never saturates up to {:.4g} {}", end, unit)
              : fmt::format("the SLO is met up to {:.4g} {}, the highest load tried", end, unit);
      return;
    case KneeStatus::kBelowRange:
      knee.explanation =
          knee.kind == KneeKind::kSaturation
              ? fmt::format(
                    "overloaded from the start: at {:.4g} {}, the lowest load tried, the queue grows already",
                    end, unit)
              : fmt::format(
                    "no load meets the SLO: at {:.4g} {}, the lowest load tried, it is missed already", end,
                    unit);
      return;
    case KneeStatus::kNone:
      knee.explanation =
          knee.kind == KneeKind::kElbow ? "the curve has no elbow within the loads swept" : "not found";
      return;
  }
}

// A knee with a change, by the seeds it shares with the knee without.
WhatIf follow(const KneeQuestion& question, const Change& change, const SearchResult& found,
              const Knee& headline, const std::function<void()>& on_run, std::int64_t& runs,
              std::int64_t& requests) {
  const auto paired = std::find_if(found.first_knees.begin(), found.first_knees.end(),
                                   [&](const Knee& knee) { return knee.kind == headline.kind; });
  // A seed that found nothing leaves no gap in by_seed, so who is who is known of all seeds or of none.
  const bool all = paired->by_seed.size() == question.seeds;
  std::vector<double> before = all ? paired->by_seed : std::vector<double>(question.seeds, paired->load);
  before.resize(std::min(kPairedSeeds, before.size()));
  KneeLab lab({.config = change.config,
               .axis = question.axis,
               .workload = change.workload != nullptr ? *change.workload : *question.workload,
               .make_times = question.make_times ? question.make_times
                                                 : [&change] { return make_step_times(change.config); },
               .first_seed = question.config.seed,
               .seeds = before.size(),
               .threads = question.threads,
               .keep_gaps = question.search.slo.needs_gaps(),
               .on_run = on_run});
  SearchOptions options = question.search;
  // An SLO that gives way with the queue is followed as saturation is.
  const auto full = std::find_if(found.first_knees.begin(), found.first_knees.end(),
                                 [](const Knee& knee) { return knee.kind == KneeKind::kSaturation; });
  bool same = false;
  for (std::size_t seed = 0; seed < std::min(before.size(), full->by_seed.size()); ++seed) {
    same = same || before[seed] > kSameAsSaturation * full->by_seed[seed];
  }
  WhatIf answer;
  answer.change = change.name;
  answer.kind = headline.kind == KneeKind::kSlo && same && question.axis == LoadAxis::kRate
                    ? KneeKind::kSaturation
                    : headline.kind;
  const std::vector<SeedKnee> knees = follow_knee(
      lab, options, answer.kind, before, {found.requests_a_run, found.warm_up_at_knees, found.lag_at_rest});
  std::vector<double> factors;
  answer.status = KneeStatus::kFound;
  for (std::size_t seed = 0; seed < knees.size(); ++seed) {
    if (knees[seed].status != KneeStatus::kFound) {
      answer.status = knees[seed].status;
    }
    factors.push_back(knees[seed].load / before[seed]);
  }
  const Estimate factor = mean_with_interval(factors);
  answer.factor = factor.value;
  answer.factor_half_width = factor.half_width;
  answer.load = headline.load * factor.value;
  runs += lab.runs();
  requests += lab.simulated_requests();
  return answer;
}

void fill_servers(const KneeQuestion& question, const Knee* headline, KneeResult& result) {
  if (!question.traffic || headline == nullptr || question.axis != LoadAxis::kRate) {
    return;
  }
  ServersNeeded servers = *question.traffic;
  const auto needed = [](double rate, double each) {
    return each > 0 ? static_cast<std::int64_t>(std::ceil(rate / each)) : 0;
  };
  servers.for_mean = needed(servers.mean_rate, headline->load);
  servers.for_peak = needed(servers.peak_rate, headline->load);
  servers.for_mean_cautious = needed(servers.mean_rate, headline->lower());
  servers.for_peak_cautious = needed(servers.peak_rate, headline->lower());
  result.servers = servers;
}

}  // namespace

ServersNeeded traffic_of(const std::vector<traces::TraceRecord>& trace) {
  ServersNeeded traffic;
  if (trace.size() < 2) {
    return traffic;
  }
  const double span = static_cast<double>((trace.back().arrival - trace.front().arrival).count()) / 1e9;
  if (!(span > 0)) {
    return traffic;
  }
  traffic.mean_rate = static_cast<double>(trace.size() - 1) / span;
  traffic.peak_window_s = std::min(kPeakWindow_s, kShortestPeakShare * span);
  std::size_t first = 0;
  std::size_t most = 0;
  for (std::size_t last = 0; last < trace.size(); ++last) {
    while (static_cast<double>((trace[last].arrival - trace[first].arrival).count()) / 1e9 >
           traffic.peak_window_s) {
      ++first;
    }
    most = std::max(most, last - first + 1);
  }
  traffic.peak_rate = static_cast<double>(most) / traffic.peak_window_s;
  return traffic;
}

KneeResult find_knees(const KneeQuestion& question, const std::function<void()>& on_run) {
  KneeLab lab({.config = question.config,
               .axis = question.axis,
               .workload = *question.workload,
               .make_times = question.make_times ? question.make_times
                                                 : [&question] { return make_step_times(question.config); },
               .first_seed = question.config.seed,
               .seeds = question.seeds,
               .threads = question.threads,
               .keep_gaps = question.search.slo.needs_gaps(),
               .on_run = on_run});
  SearchResult found = search_knees(lab, question.search);
  KneeResult result;
  result.axis = question.axis;
  result.slo = question.search.slo.texts;
  result.seeds = static_cast<int>(question.seeds);
  result.precision = question.search.precision;
  result.precise = found.precise;
  result.points = std::move(found.points);
  result.knees = std::move(found.knees);
  result.runs = lab.runs();
  result.simulated_requests = lab.simulated_requests();
  result.provenance.push_back(lab.time_provenance());

  const Knee* headline = result.headline();
  result.step_time_error = step_time_error(
      question, headline != nullptr ? nearest_point(result.points, headline->load) : &result.points.front());
  for (Knee& knee : result.knees) {
    if (knee.found()) {
      knee.step_time_half_width =
          kNormal95 * result.step_time_error.total() * knee.step_time_sensitivity * knee.load;
    }
    explain(result, knee);
  }
  if (headline != nullptr) {
    for (const Change& change : question.changes) {
      result.what_ifs.push_back(
          follow(question, change, found, *headline, on_run, result.runs, result.simulated_requests));
    }
  }
  result.bindings = find_bindings(question, result);
  fill_servers(question, headline, result);
  return result;
}

}  // namespace kneepoint::sim
