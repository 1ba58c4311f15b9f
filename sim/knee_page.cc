#include "sim/knee_page.h"

#include <fmt/format.h>

#include <cctype>
#include <iterator>
#include <utility>

#include "sim/page.h"

namespace kneepoint::sim {
namespace {

std::string capital(std::string text) {
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

std::string with_unit(const KneeResult& r, double load) {
  return fmt::format("{} {}", short_number(load), r.axis == LoadAxis::kRate ? "req/s" : "in flight");
}

void add_tiles(Page& page, const KneeResult& r) {
  std::vector<Tile> tiles;
  for (const Knee& knee : r.knees) {
    const std::string name = capital(fmt::format("{} knee", knee_name(knee.kind)));
    if (knee.found()) {
      tiles.push_back(
          {name, with_unit(r, knee.load),
           fmt::format("± {}: arrivals ± {}, step time ± {}", short_number(knee.half_width()),
                       short_number(knee.arrivals_half_width), short_number(knee.step_time_half_width))});
    } else {
      tiles.push_back({name, knee_status_name(knee.status), knee.explanation});
    }
  }
  if (!r.bindings.empty()) {
    tiles.push_back({fmt::format("Binds {}", r.bindings.front().where),
                     capital(resource_name(r.bindings.front().resource)),
                     fmt::format("at {}", with_unit(r, r.bindings.front().load))});
  }
  if (r.servers) {
    const ServersNeeded& s = *r.servers;
    tiles.push_back(
        {"Servers for this trace", fmt::format("{} (mean), {} (peak)", s.for_mean, s.for_peak),
         fmt::format("cautiously {} and {}; {} req/s on average, {} over {} s; assumes perfect balancing",
                     s.for_mean_cautious, s.for_peak_cautious, short_number(s.mean_rate),
                     short_number(s.peak_rate), short_number(s.peak_window_s))});
  }
  page.tiles(tiles);
}

void add_bindings(Page& page, const KneeResult& r) {
  if (r.bindings.empty()) {
    return;
  }
  page.heading("What binds");
  PageTable table;
  table.header = {"Where", "Load", "Resource"};
  for (const Binding& binding : r.bindings) {
    table.rows.push_back(
        {capital(binding.where), with_unit(r, binding.load), capital(resource_name(binding.resource))});
  }
  page.table(table);
  for (const Binding& binding : r.bindings) {
    page.folded(fmt::format("Evidence {}", binding.where),
                fmt::format("{}", fmt::join(binding.evidence, "\n")));
  }
}

void add_what_ifs(Page& page, const KneeResult& r) {
  if (r.what_ifs.empty()) {
    return;
  }
  page.heading("What if");
  page.paragraph("The knee with one thing changed, by the same seeds.");
  PageTable table;
  table.header = {"Change", "Knee", "Moves to", "Factor", "95 %"};
  for (const WhatIf& answer : r.what_ifs) {
    const bool found = answer.status == KneeStatus::kFound;
    table.rows.push_back(
        {answer.change, knee_name(answer.kind),
         found ? with_unit(r, answer.load) : knee_status_name(answer.status),
         found ? fmt::format("× {:.2f}", answer.factor) : "n/a",
         found && answer.factor_half_width > 0 ? fmt::format("± {:.2f}", answer.factor_half_width) : "n/a"});
  }
  page.table(table);
}

void add_points(Page& page, const KneeResult& r) {
  page.heading("Every load");
  PageTable table;
  table.csv = kKneePointsCsv;
  table.header = {"Load",           "Keeps up",
                  "p50 TTFT (ms)",  "p99 TTFT (ms); beyond saturation a band",
                  "p99 TPOT (ms)",  "Completed (req/s)",
                  "Running",        "Waiting",
                  "KV peak (%)",    "Preemptions a request",
                  "Runs × requests"};
  const auto value = [](const MaybeEstimate& e) { return e ? short_number(e->value) : std::string("n/a"); };
  for (const LoadPoint& p : r.points) {
    std::string p99 = value(p.ttft.p99_ms);
    if (p.ttft.p99_ms && !p.beyond_saturation) {
      p99 += fmt::format(" ± {}", short_number(p.ttft.p99_ms->half_width));
    } else if (p.ttft.p99_ms && p.ttft.p50_ms) {
      p99 = fmt::format("between {} and {}", short_number(p.ttft.p50_ms->value), p99);
    }
    table.rows.push_back({short_number(p.load), p.beyond_saturation ? "no" : "yes", value(p.ttft.p50_ms), p99,
                          value(p.tpot.p99_ms), short_number(p.requests_per_s.value),
                          short_number(p.mean_running), short_number(p.mean_waiting),
                          fmt::format("{:.1f}", 100 * p.peak_kv_usage), short_number(p.preemptions_a_request),
                          fmt::format("{} × {}", p.runs, with_groups(fmt::format("{}", p.requests_a_run)))});
  }
  page.table(table);
}

void add_origin(Page& page, const KneeResult& r) {
  page.heading("Where the numbers come from");
  for (const std::string& line : r.provenance) {
    page.paragraph(line);
  }
  const StepTimeError& e = r.step_time_error;
  page.paragraph(
      fmt::format("Step time: ± {:.1f} % (one standard deviation): model {:.1f} % ({}), drift of the machine "
                  "{:.1f} % ({}).",
                  100 * e.total(), 100 * e.model, e.model_source, 100 * e.drift, e.drift_source));
  page.folded("Configuration", r.configuration);
  page.paragraph(fmt::format("Kneepoint {}: {} simulations, {} requests. No GPU was measured in this search.",
                             r.version, with_groups(fmt::format("{}", r.runs)),
                             with_groups(fmt::format("{}", r.simulated_requests))));
}

}  // namespace

std::string knee_made_by(const KneeResult& result, std::string_view setup) {
  std::string line = fmt::format("{}; {}; {} seeds", setup, result.workload, result.seeds);
  if (!result.slo.empty()) {
    line += fmt::format("; SLO {}", fmt::join(result.slo, " "));
  }
  return line + ".";
}

std::string knee_page(const KneeResult& result, std::string_view setup) {
  const Knee* const headline = result.headline();
  Page page(headline != nullptr ? fmt::format("The knee is at {} ± {}", with_unit(result, headline->load),
                                              short_number(headline->half_width()))
                                : "No knee within the loads tried",
            knee_made_by(result, setup));
  for (const Knee& knee : result.knees) {
    if (!knee.found() && knee.status == KneeStatus::kBelowRange) {
      page.warning(knee.explanation);
    }
  }
  if (!result.precise) {
    page.note(fmt::format("Not every interval is as narrow as asked for: half-width {:.1f} % of the load.",
                          100 * result.precision));
  }
  for (const std::string& notice : result.notices) {
    page.note(notice);
  }
  add_tiles(page, result);
  for (const NamedFigure& named : knee_figures(result)) {
    page.figure(named.figure);
  }
  add_bindings(page, result);
  add_what_ifs(page, result);
  add_points(page, result);
  add_origin(page, result);
  return page.take();
}

std::string knees_csv(const KneeResult& result) {
  std::string text = "kind,status,load,lower,upper,arrivals_half_width,step_time_half_width\n";
  for (const Knee& knee : result.knees) {
    fmt::format_to(std::back_inserter(text), "{},{},", knee_name(knee.kind), knee_status_name(knee.status));
    if (knee.found()) {
      fmt::format_to(std::back_inserter(text), "{},{},{},{},{}\n", knee.load, knee.lower(), knee.upper(),
                     knee.arrivals_half_width, knee.step_time_half_width);
    } else {
      text += ",,,,\n";
    }
  }
  return text;
}

std::string knee_waits_csv(const KneeResult& result) {
  std::string text = "load,cause,share,ms_a_request\n";
  for (const LoadPoint& p : result.points) {
    for (const WaitShare& wait : p.waits) {
      fmt::format_to(std::back_inserter(text), "{},{},{},{}\n", p.load, wait.cause, wait.share,
                     wait.ms_a_request);
    }
  }
  return text;
}

}  // namespace kneepoint::sim
