#include "sim/knee_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "hw/closest_name.h"
#include "sim/choices.h"
#include "sim/command_line.h"
#include "sim/find_knees.h"
#include "sim/knee_changes.h"
#include "sim/knee_page.h"
#include "sim/knee_report.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/progress.h"
#include "sim/result_json.h"
#include "sim/run_page.h"
#include "sim/usage_error.h"
#include "sim/vllm_flags.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {
namespace {

constexpr const char* kResultFile = "knee.json";
constexpr const char* kPageFile = "report.html";

struct Options {
  std::string sweep = "rate";
  std::string arrivals;
  double burstiness = 1;
  std::vector<std::string> slo;
  double ttft_slo = 0;
  std::size_t seeds = 5;
  std::int64_t requests = 4000;
  std::int64_t max_requests = 40000;
  std::int64_t requests_a_slot = 10;
  double precision = 0.05;
  double min_load = 0;
  double max_load = 0;
  double step_time_sd = 0;
  int threads = 0;
  bool no_what_if = false;
  DrawnLengths lengths;
};

constexpr std::array kSweeps{Choice<LoadAxis>{"rate", LoadAxis::kRate},
                             Choice<LoadAxis>{"concurrency", LoadAxis::kConcurrency}};
enum class Arrivals : std::uint8_t { kTrace, kPoisson, kGamma };
constexpr std::array kArrivals{Choice<Arrivals>{"trace", Arrivals::kTrace},
                               Choice<Arrivals>{"poisson", Arrivals::kPoisson},
                               Choice<Arrivals>{"gamma", Arrivals::kGamma}};

void add_load_options(CLI::App& app, Options& o) {
  app.add_option("--sweep", o.sweep, "what is turned up: rate (default), or concurrency: a closed loop");
  app.add_option("--arrivals", o.arrivals,
                 "trace: its own gaps, stretched (default with --trace); poisson; gamma with --burstiness");
  app.add_option("--burstiness", o.burstiness, "of gamma arrivals: shape of the gaps, 1 is Poisson")
      ->check(CLI::Range(1e-3, 1e6));
  constexpr const char* kForms = ": N, uniform:LOW:HIGH, lognormal:MEAN:CV or zipf:EXPONENT:MAX";
  app.add_option("--prompt-tokens", o.lengths.prompt_tokens,
                 std::string("without --trace: prompt length") + kForms);
  app.add_option("--output-tokens", o.lengths.output_tokens,
                 std::string("without --trace: answer length") + kForms);
  app.add_option("--random-range-ratio", o.lengths.range_ratio,
                 "R: a length N is drawn from N(1-R) to N(1+R)");
  app.add_option("--min-load", o.min_load, "lowest load to try; default: as low as needed")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-load", o.max_load,
                 "highest load to try; default: until the server no longer keeps up")
      ->check(CLI::PositiveNumber);
}

void add_search_options(CLI::App& app, Options& o) {
  app.add_option(
      "--slo", o.slo,
      "METRIC:STAT:MS, as ttft:p99:500, ttft:mean:200, tpot:p95:50; or goodput:SHARE; can be repeated");
  app.add_option("--ttft-slo", o.ttft_slo, "MS, short for --slo ttft:p99:MS")->check(CLI::PositiveNumber);
  app.add_option("--seeds", o.seeds, "independent samples of the workload (default 5)")
      ->check(CLI::Range(2, 1000));
  app.add_option("--precision", o.precision,
                 "half-width of an interval over its load to stop at (default 0.05)")
      ->check(CLI::Range(1e-4, 1.0));
  app.add_option("--requests", o.requests, "requests a run, to begin with (default 4000)")
      ->check(CLI::Range(100, 100'000'000));
  app.add_option("--max-requests", o.max_requests, "requests a run at most (default 40000)")
      ->check(CLI::Range(100, 100'000'000));
  app.add_option("--requests-per-slot", o.requests_a_slot,
                 "closed loop: requests a run for each in flight (default 10)")
      ->check(CLI::Range(2, 1'000'000));
  app.add_option("--step-time-sd", o.step_time_sd,
                 "slow drift of the machine: relative standard deviation of its speed over a run; "
                 "default from the fit of a measured --server, else 0")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--no-what-if", o.no_what_if, "leave out the what-if answers");
  app.add_option("--threads", o.threads, "cores to use (default all); the result is the same")
      ->check(CLI::Range(1, 4096));
}

// A word that neither this command nor `simulate` knows, with the nearest that one of them does.
void refuse_unknown(const CLI::App& app, const std::vector<std::string>& rest) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    known.push_back(option->get_name());
  }
  for (const Flag& flag : flags()) {
    known.push_back(fmt::format("--{}", flag.name));
    if (flag.value == FlagValue::kNone) known.push_back(fmt::format("--no-{}", flag.name));
  }
  for (const std::string& word : rest) {
    std::string name = word.substr(0, word.find('='));
    name = name.substr(0, name.find('.'));
    std::replace(name.begin(), name.end(), '_', '-');
    if (name.rfind("--", 0) != 0 || name == "--" ||
        std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    const std::string closest = hw::closest_name(name, known);
    throw UsageError(fmt::format("knee: unknown flag {}{}; --help lists all", word,
                                 closest.empty() ? "" : fmt::format(": did you mean {}?", closest)));
  }
}

// Progress on a terminal: how many simulations are over. How many there will be
// depends on what they say, so the time left is a guess from a usual search.
class KneeProgress {
 public:
  explicit KneeProgress(std::uint64_t usual) : progress_(usual, "simulations") {}
  void operator()() {
    const std::lock_guard<std::mutex> lock(mutex_);
    progress_.on_request_end(RequestRecord{});
  }
  void clear() { progress_.clear(); }

 private:
  std::mutex mutex_;
  Progress progress_;
};

std::vector<traces::TraceRecord> read_trace(const RunConfig& config) {
  traces::TraceReader reader(config.trace);
  std::vector<traces::TraceRecord> records;
  for (traces::TraceRecord record; reader.next(record);) {
    if (config.strict && record.prompt_tokens >= config.engine.max_model_len) {
      throw UsageError(fmt::format(
          "{}: record {}: prompt of {} tokens where max_model_len is {}; the server would refuse it",
          config.trace.string(), records.size(), record.prompt_tokens, config.engine.max_model_len));
    }
    records.push_back(record);
  }
  if (records.empty()) {
    throw UsageError(fmt::format("knee: {} has no requests", config.trace.string()));
  }
  return records;
}

SearchOptions search_options(const Options& o, const RunConfig& config, LoadAxis axis) {
  SearchOptions search;
  if (o.ttft_slo > 0) {
    add_slo(fmt::format("ttft:p99:{}", o.ttft_slo), search.slo);
  }
  for (const std::string& text : o.slo) {
    add_slo(text, search.slo);
  }
  search.slo.good = config.report.goodput;
  if (search.slo.good_share && !search.slo.good.any()) {
    throw UsageError("--slo goodput:SHARE needs the limits of a good request: --goodput ttft:500 tpot:50");
  }
  search.precision = o.precision;
  search.requests = o.requests;
  search.max_requests = std::max(o.requests, o.max_requests);
  search.requests_a_slot = o.requests_a_slot;
  if (o.min_load > 0) search.min_load = o.min_load;
  if (o.max_load > 0) search.max_load = o.max_load;
  if (search.min_load && search.max_load && *search.min_load >= *search.max_load) {
    throw UsageError(
        fmt::format("--min-load {:g} is not below --max-load {:g}", *search.min_load, *search.max_load));
  }
  for (const std::optional<double>& load : {search.min_load, search.max_load}) {
    if (axis == LoadAxis::kConcurrency && load && *load != std::floor(*load)) {
      throw UsageError(fmt::format("a load of {:g} requests in flight: a whole number is needed", *load));
    }
  }
  return search;
}

// What is swept must not be set.
void check_client(const pb::RunConfig& asked) {
  const auto refuse = [](const char* flag, const char* instead) {
    throw UsageError(
        fmt::format("knee: --{} is what the sweep turns; leave it out and give {}", flag, instead));
  };
  if (asked.has_request_rate()) refuse("request-rate", "--min-load and --max-load");
  if (asked.has_burstiness()) refuse("burstiness", "--arrivals gamma");
  if (asked.has_max_concurrency()) refuse("max-concurrency", "--sweep concurrency");
}

// Who sends what, and how that is told.
struct Traffic {
  std::unique_ptr<KneeWorkload> workload;
  std::unique_ptr<KneeWorkload> smoothed;  // For the what-if; null if the arrivals are not the trace's.
  std::optional<ServersNeeded> own;
  std::string text;
  std::vector<std::string> notices;
  bool has_sessions = false;
};

std::optional<double> burstiness_of(Arrivals arrivals, const Options& o) {
  switch (arrivals) {
    case Arrivals::kTrace:
      return std::nullopt;
    case Arrivals::kPoisson:
      return 1.0;
    case Arrivals::kGamma:
      return o.burstiness;
  }
  return std::nullopt;
}

Traffic traffic_from_trace(const Options& o, const RunConfig& config, Arrivals arrivals, LoadAxis axis) {
  Traffic traffic;
  std::vector<traces::TraceRecord> records = read_trace(config);
  traffic.own = traffic_of(records);
  if (!(traffic.own->mean_rate > 0)) traffic.own.reset();
  if (std::any_of(records.begin(), records.end(), [](const auto& r) { return r.after_previous; })) {
    traffic.notices.emplace_back("sessions: think times are stretched with the arrivals");
    traffic.notices.emplace_back(
        "sessions: no what-if answers, as their knees differ too much from seed to seed for two of them to "
        "tell");
    traffic.has_sessions = true;
  }
  const std::string name = config.trace.filename().string();
  if (axis == LoadAxis::kConcurrency) {
    traffic.text = fmt::format("Closed loop over {}: blocks of its {} requests, drawn anew for each seed",
                               name, records.size());
  } else if (arrivals == Arrivals::kTrace) {
    traffic.text = fmt::format(
        "{}: blocks of its {} requests with their own gaps, drawn anew for each seed, all times stretched to "
        "the load",
        name, records.size());
    traffic.smoothed = blocks_of_trace(records, 1.0);
  } else {
    traffic.text = fmt::format(
        "{}: blocks of its {} requests, drawn anew for each seed, gamma arrivals of burstiness {:g}", name,
        records.size(), *burstiness_of(arrivals, o));
  }
  traffic.workload = blocks_of_trace(std::move(records), burstiness_of(arrivals, o));
  return traffic;
}

Traffic drawn_traffic(const Options& o, Arrivals arrivals, LoadAxis axis) {
  if (o.lengths.prompt_tokens.empty() || o.lengths.output_tokens.empty()) {
    throw UsageError("knee: give the traffic: --trace FILE.pb, or --prompt-tokens and --output-tokens");
  }
  if (arrivals == Arrivals::kTrace) {
    throw UsageError("knee: --arrivals trace needs --trace FILE.pb");
  }
  Traffic traffic;
  const double burstiness = *burstiness_of(arrivals, o);
  traffic.workload = drawn_requests(o.lengths, burstiness);
  traffic.text = fmt::format(
      "Drawn requests: prompts {}, answers {} tokens{}", o.lengths.prompt_tokens, o.lengths.output_tokens,
      o.lengths.range_ratio > 0 ? fmt::format(" (range ratio {:g})", o.lengths.range_ratio) : "");
  traffic.text += axis == LoadAxis::kConcurrency
                      ? ", closed loop"
                      : fmt::format(", gamma arrivals of burstiness {:g}", burstiness);
  return traffic;
}

Traffic make_traffic(const CLI::App& app, const Options& o, const RunConfig& config, LoadAxis axis) {
  const bool from_trace = !config.trace.empty();
  if (axis == LoadAxis::kConcurrency && !o.arrivals.empty()) {
    throw UsageError("knee: in a closed loop nobody draws arrivals; leave --arrivals out");
  }
  const Arrivals arrivals = o.arrivals.empty() ? (app.count("--burstiness") > 0 ? Arrivals::kGamma
                                                  : from_trace                  ? Arrivals::kTrace
                                                                                : Arrivals::kPoisson)
                                               : choose("--arrivals", o.arrivals, kArrivals);
  if (app.count("--burstiness") > 0 && arrivals != Arrivals::kGamma) {
    throw UsageError("knee: --burstiness shapes --arrivals gamma; give that, or leave it out");
  }
  if (!from_trace) {
    return drawn_traffic(o, arrivals, axis);
  }
  for (const char* option : {"--prompt-tokens", "--output-tokens", "--random-range-ratio"}) {
    if (app.count(option) > 0) {
      throw UsageError(fmt::format("knee: --trace has lengths of its own; leave {} out", option));
    }
  }
  return traffic_from_trace(o, config, arrivals, axis);
}

// report.html, the numbers behind its figures that points.csv does not have, and the figures for a paper.
void write_page(OutputFiles& files, const RunConfig& config, const KneeResult& result) {
  const std::string setup = setup_line(config);
  files.create(kPageFile).write(knee_page(result, setup));
  files.create(kKneesCsv).write(knees_csv(result));
  files.create(kKneeWaitsCsv).write(knee_waits_csv(result));
  if (config.report.plots) {
    const std::string only_scripts =
        write_paper_plots(files, knee_figures(result), knee_made_by(result, setup));
    if (!only_scripts.empty()) {
      fmt::print(stderr, "simulate: {}\n", only_scripts);
    }
  }
}

void write_result(const RunConfig& config, const KneeResult& result) {
  OutputFiles files(config.report.out_dir);
  std::vector<std::string> names{kResultFile, kKneePointsCsv, kPageFile, kKneesCsv, kKneeWaitsCsv};
  for (std::string& name : paper_plot_files(knee_figures(result))) {
    names.push_back(std::move(name));
  }
  files.replaces(std::move(names));
  const std::string json = knee_json(result);
  if (files.has_folder()) {
    files.create(kResultFile).write(json);
    files.create(kKneePointsCsv).write(points_csv(result));
    if (config.report.page) {
      write_page(files, config, result);
    }
  }
  files.commit();
  write_stdout(config.report.format == OutputFormat::kJson ? json : knee_table(result));
}

// How many simulations a search with these options usually takes.
std::uint64_t usual_runs(const KneeQuestion& question) {
  const std::uint64_t seeds = question.seeds;
  return 1 + 12 * seeds + 27 + (question.search.slo.any() ? 5 * seeds : 0) + 9 * question.changes.size();
}

int run(const CLI::App& app, const Options& o, const ParsedFlags& parsed) {
  pb::RunConfig asked;
  if (!parsed.run_config_file.empty()) {
    asked = read_run_config(parsed.run_config_file);
  }
  asked.MergeFrom(parsed.config);
  check_client(asked);
  const LoadAxis axis = choose("--sweep", o.sweep, kSweeps);
  KneeQuestion question;
  question.config = resolve(asked);
  question.axis = axis;
  question.search = search_options(o, question.config, axis);
  question.seeds = o.seeds;
  question.threads = o.threads;
  if (app.count("--step-time-sd") > 0) question.step_time_sd = o.step_time_sd;
  const Traffic traffic = make_traffic(app, o, question.config, axis);
  question.workload = traffic.workload.get();
  question.traffic = traffic.own;
  if (!o.no_what_if && !traffic.has_sessions) {
    question.changes = possible_changes(asked, question.config, traffic.smoothed.get());
  }

  KneeProgress progress(usual_runs(question));
  KneeResult result = find_knees(question, [&progress] { progress(); });
  progress.clear();
  result.version = kVersion;
  result.workload = traffic.text;
  result.configuration = configuration_without_places(as_text(as_proto(question.config, asked)));
  result.provenance.insert(result.provenance.begin(), question.config.provenance.begin(),
                           question.config.provenance.end());
  result.notices.insert(result.notices.end(), traffic.notices.begin(), traffic.notices.end());
  write_result(question.config, result);
  if (!parsed.without_influence.empty()) {
    fmt::print(stderr, "simulate: without influence here: {}\n", fmt::join(parsed.without_influence, " "));
  }
  return 0;
}

}  // namespace

int run_knee(std::span<const std::string> arguments) {
  Options options;
  CLI::App app(
      "Where the latency of a set-up breaks: the load at which the SLO, the curve and the server give way, "
      "each with its interval; "
      "what binds there; what would move it. Besides these, every server flag of `simulate`, and --out, "
      "--format, --goodput.",
      "simulate knee");
  app.allow_extras();
  add_load_options(app, options);
  add_search_options(app, options);
  app.footer(
      "Examples:\n"
      "  simulate knee --trace azure.pb --ttft-slo 500 --model llama-3.1-8b --gpu h100 --out knee\n"
      "  simulate knee --prompt-tokens 1024 --output-tokens lognormal:256:1 --slo ttft:p99:500 --slo "
      "tpot:mean:40\n"
      "  simulate knee --sweep concurrency --prompt-tokens uniform:819:1024 --output-tokens "
      "uniform:6554:8192 "
      "--slo ttft:mean:1000 --model llama-3.1-70b -tp 2 --quantization fp8");
  if (!parse_arguments(app, "knee", arguments)) {
    return 0;
  }
  refuse_unknown(app, app.remaining());
  const ParsedFlags parsed = parse_flags(app.remaining());
  if (parsed.version || parsed.list_schedulers || parsed.print_config) {
    throw UsageError("knee: --version, --list-schedulers and --print-config belong to `simulate` itself");
  }
  return run(app, options, parsed);
}

}  // namespace kneepoint::sim
