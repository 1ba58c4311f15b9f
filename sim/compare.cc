#include "sim/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "sim/compare_sides.h"
#include "sim/measured_run.h"
#include "sim/on_cores.h"
#include "sim/options.h"
#include "sim/result_json.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;

struct Figure {
  const char* key;
  const char* name;
};
constexpr std::array kFigures{
    Figure{"mean_ttft_ms", "TTFT mean (ms)"},
    Figure{"p50_ttft_ms", "TTFT p50 (ms)"},
    Figure{"p95_ttft_ms", "TTFT p95 (ms)"},
    Figure{"p99_ttft_ms", "TTFT p99 (ms)"},
    Figure{"mean_tpot_ms", "TPOT mean (ms)"},
    Figure{"p99_tpot_ms", "TPOT p99 (ms)"},
    Figure{"p99_itl_ms", "ITL p99 (ms)"},
    Figure{"mean_e2el_ms", "E2EL mean (ms)"},
    Figure{"p99_e2el_ms", "E2EL p99 (ms)"},
    Figure{"mean_queue_ms", "queue mean (ms)"},
    Figure{"request_throughput", "requests (1/s)"},
    Figure{"request_goodput", "good requests (1/s)"},
    Figure{"output_throughput", "output tokens (1/s)"},
    Figure{"error_rate", "error rate (share)"},
    Figure{"preemptions", "preemptions"},
    Figure{"mean_running", "requests running, mean"},
    Figure{"mean_waiting", "requests waiting, mean"},
    Figure{"device_busy_s", "GPU busy (s)"},
};

// Say nothing of the system.
const std::set<std::string> kNotCompared{"sim_seed", "requests_csv", "save_detailed", "strict"};

// A run config of a side, without what is of one run's output.
pb::RunConfig config_of(const CompareSide& side) {
  pb::RunConfig asked = read_run_config(side.name);
  for (const auto clear : {&pb::RunConfig::clear_out, &pb::RunConfig::clear_step_log,
                           &pb::RunConfig::clear_format, &pb::RunConfig::clear_save_detailed}) {
    (asked.*clear)();
  }
  if (asked.trace().empty()) {
    throw UsageError(fmt::format("compare: {}: has no trace", side.name));
  }
  return asked;
}

std::string run_with_seed(pb::RunConfig asked, std::uint64_t seed) {
  asked.set_sim_seed(seed);
  RunConfig config = resolve(asked);
  config.resolved_text = as_text(as_proto(config, asked));
  return result_json(as_result(config, measure(config)));
}

std::vector<std::uint64_t> seeds_to_run(const CompareSide& other, const CompareOptions& options) {
  std::vector<std::uint64_t> seeds;
  if (!other.is_config) {
    for (const auto& [seed, result] : other.results) {
      seeds.push_back(seed);
    }
    return seeds;
  }
  for (std::int64_t i = 0; i < options.num_seeds; ++i) {
    seeds.push_back(options.first_seed + static_cast<std::uint64_t>(i));
  }
  return seeds;
}

// Runs the sides that are configurations, both with the same seeds.
void run_configs(Comparison& comparison, const CompareOptions& options,
                 const std::function<void(std::int64_t)>& runs_known, const std::function<void()>& run_over) {
  struct Job {
    CompareSide* side;
    std::uint64_t seed;
    std::string result;
    std::size_t config;
  };
  std::vector<Job> jobs;
  std::vector<pb::RunConfig> configs;
  for (const auto& [side, other] :
       {std::pair{&comparison.a, &comparison.b}, {&comparison.b, &comparison.a}}) {
    if (!side->is_config) {
      continue;
    }
    configs.push_back(config_of(*side));
    static_cast<void>(resolve(configs.back()));  // Wrong input is found before anything runs.
    for (const std::uint64_t seed : seeds_to_run(*other, options)) {
      jobs.push_back({side, seed, "", configs.size() - 1});
    }
  }
  if (runs_known) {
    runs_known(static_cast<std::int64_t>(jobs.size()));
  }
  std::mutex one_at_a_time;
  for_each_on_cores(static_cast<std::int64_t>(jobs.size()), options.threads, [&](std::int64_t i) {
    Job& job = jobs[static_cast<std::size_t>(i)];
    job.result = run_with_seed(configs[job.config], job.seed);
    if (run_over) {
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      run_over();
    }
  });
  for (Job& job : jobs) {
    add_result(*job.side, job.side->name, job.result);
  }
}

std::optional<double> figure_of(const Json& result, const char* key) {
  return result.contains(key) && result[key].is_number() ? std::optional(result[key].get<double>())
                                                         : std::nullopt;
}

// The figures that all runs of both sides have.
std::vector<ComparedMetric> test_all(const Comparison& comparison) {
  std::vector<std::pair<Json, Json>> pairs;
  for (const std::uint64_t seed : comparison.seeds) {
    pairs.emplace_back(Json::parse(comparison.a.results.at(seed)),
                       Json::parse(comparison.b.results.at(seed)));
  }
  std::vector<ComparedMetric> metrics;
  for (const Figure& figure : kFigures) {
    std::vector<double> a;
    std::vector<double> b;
    for (const auto& [of_a, of_b] : pairs) {
      const std::optional<double> x = figure_of(of_a, figure.key);
      const std::optional<double> y = figure_of(of_b, figure.key);
      if (x && y) {
        a.push_back(*x);
        b.push_back(*y);
      }
    }
    if (a.size() == pairs.size()) {
      metrics.push_back({figure.key, figure.name, paired_test(a, b)});
    }
  }
  return metrics;
}

void note_overload(const char* which, const CompareSide& side, Comparison& c) {
  std::size_t overloaded = 0;
  for (const std::uint64_t seed : c.seeds) {
    const Json result = Json::parse(side.results.at(seed));
    overloaded += result.value("overloaded", false) ? 1 : 0;
  }
  if (overloaded > 0) {
    c.notes.push_back(
        fmt::format("{} was overloaded in {} of {} runs: its latencies grow with the length of the trace",
                    which, overloaded, c.seeds.size()));
  }
}

void add_notes(Comparison& c) {
  note_overload("A", c.a, c);
  note_overload("B", c.b, c);
  if (!c.a.trace_sha256.empty() && !c.b.trace_sha256.empty() && c.a.trace_sha256 != c.b.trace_sha256) {
    c.notes.emplace_back("A and B ran different traces: what differs may be the traces' doing");
  }
  const std::size_t unpaired = c.a.results.size() + c.b.results.size() - 2 * c.seeds.size();
  if (unpaired > 0) {
    c.notes.push_back(fmt::format("{} results have no partner of the same seed and are left out", unpaired));
  }
  const bool nothing_varies =
      std::ranges::all_of(c.metrics, [](const ComparedMetric& m) { return !m.test.p_t; });
  if (c.seeds.size() == 1) {
    c.notes.emplace_back(
        "one seed: no significance can be given; run both with several (--sim-seed, or compare two "
        "run configs with --seeds 10)");
  } else if (nothing_varies &&
             std::ranges::all_of(c.metrics, [](const ComparedMetric& m) { return m.test.difference == 0; })) {
    c.notes.emplace_back("A and B are equal in every run");
  } else if (nothing_varies) {
    c.notes.emplace_back(
        "the seeds change nothing here, so there is no chance to test against: a trace that keeps its "
        "own times is the same every time (--request-rate draws new ones)");
  } else {
    if (c.seeds.size() < 6) {
      c.notes.push_back(fmt::format("{} seeds: the signed-rank p cannot be below {:.3g}", c.seeds.size(),
                                    2 / static_cast<double>(std::int64_t{1} << c.seeds.size())));
    }
    c.notes.emplace_back(
        fmt::format("each p is for its own line; of {} lines without any difference one in twenty "
                    "shows one by chance",
                    c.metrics.size()));
  }
}

}  // namespace

Comparison compare(const std::string& a, const std::string& b, const CompareOptions& options,
                   const std::function<void(std::int64_t)>& runs_known,
                   const std::function<void()>& run_over) {
  Comparison comparison;
  comparison.a = read_side(a);
  comparison.b = read_side(b);
  run_configs(comparison, options, runs_known, run_over);
  for (const auto& [seed, result] : comparison.a.results) {
    if (comparison.b.results.contains(seed)) {
      comparison.seeds.push_back(seed);
    }
  }
  if (comparison.seeds.empty()) {
    throw UsageError(fmt::format("compare: {} and {} have no seed in common; run both with the same", a, b));
  }
  if (comparison.seeds.size() > static_cast<std::size_t>(kMostPairs)) {
    throw UsageError(
        fmt::format("compare: {} pairs; at most {} can be compared", comparison.seeds.size(), kMostPairs));
  }
  comparison.metrics = test_all(comparison);
  add_notes(comparison);
  return comparison;
}

std::vector<ConfigurationDifference> configuration_differences(const Comparison& comparison) {
  const auto& a = comparison.a.configuration;
  const auto& b = comparison.b.configuration;
  if (a.empty() || b.empty()) {
    return {};
  }
  std::set<std::string> fields;
  for (const auto& [field, value] : a) {
    fields.insert(field);
  }
  for (const auto& [field, value] : b) {
    fields.insert(field);
  }
  const auto value_in = [](const std::map<std::string, std::string>& of, const std::string& field) {
    const auto found = of.find(field);
    return found == of.end() ? std::string("-") : found->second;
  };
  std::vector<ConfigurationDifference> differences;
  for (const std::string& field : fields) {
    const ConfigurationDifference d{field, value_in(a, field), value_in(b, field)};
    if (!kNotCompared.contains(field) && d.a != d.b) {
      differences.push_back(d);
    }
  }
  return differences;
}

}  // namespace kneepoint::sim
