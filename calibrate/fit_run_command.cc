// calibrate fit-run: corrects a time model by what clients of a real server measured.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/fit_run.h"
#include "calibrate/fit_steps.h"
#include "calibrate/log_replay.h"
#include "calibrate/logged_config.h"
#include "calibrate/robust_linear.h"
#include "calibrate/subcommands.h"
#include "sim/options.h"

namespace kneepoint::calibrate {

namespace {

struct FitRunArguments {
  std::vector<std::string> runs;
  std::string out, server, model, gpu;
  double fit_share = 1;
  int folds = 4;
};

// Requests by send time, as a mask of those in [from, to) of all.
RequestMask share_mask(const Run& run, double from, double to) {
  const std::size_t n = run.client->requests.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return run.client->requests[a].start_s < run.client->requests[b].start_s;
  });
  RequestMask mask(n, false);
  const auto place = [&](double share) { return static_cast<std::size_t>(std::llround(share * static_cast<double>(n))); };
  for (std::size_t i = place(from); i < place(to); ++i) mask[order[i]] = true;
  return mask;
}

std::vector<RequestMask> masks(const std::vector<Run>& runs, double from, double to) {
  std::vector<RequestMask> all;
  for (const Run& run : runs) all.push_back(share_mask(run, from, to));
  return all;
}

void flip(std::vector<RequestMask>& all, const std::vector<RequestMask>& within) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (std::size_t i = 0; i < all[r].size(); ++i) all[r][i] = within[r][i] && !all[r][i];
  }
}

std::vector<Run> read_runs(const FitRunArguments& arguments) {
  std::vector<Run> runs;
  for (const std::string& text : arguments.runs) {
    Run run = read_run(parse_run_argument(text));
    if (!run.client) {
      throw CalibrateError(fmt::format("{}: has no client=; `calibrate fit-steps` fits a log alone", run.files.name));
    }
    if (!run.has_log() && !run.config) {
      if (arguments.model.empty() && arguments.gpu.empty()) {
        throw CalibrateError(fmt::format(
            "{}: nothing says how its server was set: add log=, config=, or give --model and --gpu", run.files.name));
      }
      sim::pb::RunConfig asked;
      if (!arguments.model.empty()) asked.set_model(arguments.model);
      if (!arguments.gpu.empty()) asked.set_gpu(arguments.gpu);
      run.config = sim::resolve(asked);
    }
    for (const std::string& note : run.notes) fmt::print("note: {}\n", note);
    runs.push_back(std::move(run));
  }
  return runs;
}

// Where the fit starts: the step logs, a server file, or a GPU and a model.
hw::MeasuredServer starting_server(const FitRunArguments& arguments, const std::vector<Run>& runs) {
  std::vector<RunSamples> samples;
  hw::MeasuredServer identity;
  for (const Run& run : runs) {
    const bool steps = run.has_log() && !only_server(run.log, run.files.name).engines.empty();
    if (!steps) continue;
    const LogReplay replay = replay_log(run);
    if (!replay.agrees()) {
      throw CalibrateError(fmt::format("{}: only {} of {} steps are as predicted; see `calibrate check-steps`",
                                       run.files.name, replay.steps.size(), replay.logged_steps));
    }
    samples.push_back(samples_of(run, replay, replayable_config(run)));
    const LoggedConfig config = logged_config(only_server(run.log, run.files.name));
    if (!identity.model.empty() && (identity.model != config.model || identity.release != config.release)) {
      throw CalibrateError(fmt::format("{}: its log is of {} on {}, the runs before are of {} on {}; fit them apart",
                                       run.files.name, config.model, config.release, identity.model,
                                       identity.release));
    }
    identity.model = config.model;
    identity.architecture = config.architecture;
    identity.release = config.release;
    identity.machine = config.device;
  }
  if (!arguments.server.empty()) {
    if (!samples.empty()) throw CalibrateError("--server and step logs both say how long steps take; give one");
    fmt::print("starts from {}\n", arguments.server);
    return hw::load_server(arguments.server);
  }
  if (!samples.empty()) {
    hw::MeasuredServer server = fit_step_model(samples);
    server.model = identity.model;
    server.architecture = identity.architecture;
    server.release = identity.release;
    server.machine = identity.machine;
    fmt::print("starts from the step logs of {} runs\n", samples.size());
    return server;
  }
  if (!runs.front().config) {
    throw CalibrateError(fmt::format("{}: has no logged steps; give --server, or config= with a model and a GPU",
                                     runs.front().files.name));
  }
  double scatter = 0;
  const hw::MeasuredServer server = server_like_gpu(runs.front(), scatter);
  fmt::print("starts from {} on {}; its step times in the measured form, to {:.1f} %\n", server.model, server.machine,
             scatter * 100);
  return server;
}

void print_errors(const char* title, const std::vector<ErrorRow>& before, const std::vector<ErrorRow>& after) {
  fmt::print("{}\n  {:<14} {:>12} {:>12} {:>9} {:>12} {:>9}\n", title, "metric", "measured", "before", "error", "after",
             "error");
  for (std::size_t i = 0; i < before.size(); ++i) {
    fmt::print("  {:<14} {:>12.3f} {:>12.3f} {:>+8.1f}% {:>12.3f} {:>+8.1f}%\n", before[i].metric, before[i].measured,
               before[i].predicted, before[i].error() * 100, after[i].predicted, after[i].error() * 100);
  }
}

void print_corrections(const RunFit& fit) {
  fmt::print("{} rounds\n  {:<14} {:>22}\n", fit.rounds, "correction", "value");
  for (std::size_t k = 0; k < fit.corrections.size(); ++k) {
    const FittedCorrection& correction = fit.corrections[k];
    const CorrectionRow& row = corrections()[k];
    const double unit = row.is_factor ? 1 : 1e-3;
    fmt::print("  {:<14} {:>9.4f} +- {:<7.4f} {:<2} {}{}{}\n", correction.name, correction.value / unit,
               correction.standard_error / unit, row.is_factor ? "x" : "ms", row.what,
               correction.identified ? "" : "; not identified", correction.at_bound ? "; at its bound" : "");
  }
  for (Eigen::Index i = 0; i < kNumCorrections; ++i) {
    for (Eigen::Index j = i + 1; j < kNumCorrections; ++j) {
      if (std::abs(fit.correlation(i, j)) < 0.3) continue;
      fmt::print("  correlation of {} and {}: {:+.2f}\n", fit.corrections[static_cast<std::size_t>(i)].name,
                 fit.corrections[static_cast<std::size_t>(j)].name, fit.correlation(i, j));
    }
  }
  for (const std::string& what : fit.not_identified) fmt::print("  cannot be told: {}\n", what);
}

// Each fold in turn is predicted by a fit to the others. The folds are stretches
// of time, since neighbours know each other.
void print_cross_validation(const FitRunArguments& arguments, const std::vector<Run>& runs,
                            const hw::MeasuredServer& base, const RunFit& all) {
  std::vector<std::vector<double>> errors;
  std::vector<std::string> names;
  const std::vector<RequestMask> within = masks(runs, 0, arguments.fit_share);
  for (int fold = 0; fold < arguments.folds; ++fold) {
    const double width = arguments.fit_share / arguments.folds;
    const std::vector<RequestMask> held_out = masks(runs, fold * width, (fold + 1) * width);
    std::vector<RequestMask> others = held_out;
    flip(others, within);
    const RunFit fit = fit_corrections(runs, others, base, &all.theta);
    const std::vector<ErrorRow> rows = errors_of(runs, held_out, fit.server, fit.kv_blocks_factor);
    errors.resize(rows.size());
    names.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      errors[i].push_back(std::abs(rows[i].error()));
      names.push_back(rows[i].metric);
    }
  }
  fmt::print("cross-validated: each of {} stretches predicted by a fit to the others, |error| median (worst)\n",
             arguments.folds);
  for (std::size_t i = 0; i < names.size(); ++i) {
    fmt::print("  {:<14} {:.1f}% ({:.1f}%)\n", names[i], quantile(errors[i], 0.5) * 100, quantile(errors[i], 1) * 100);
  }
}

}  // namespace

int run_fit_run(const Arguments& arguments) {
  CLI::App app(
      "corrects a time model by what clients of a real server measured; for example\n"
      "  calibrate fit-run --run client=requests.jsonl,config=run.textproto --fit-share 0.5 --out my.textproto",
      "calibrate fit-run");
  FitRunArguments given;
  app.add_option("--run", given.runs, "client=FILE[,log=FILE|,config=FILE][,trace=FILE][,cache=FILE]; repeatable")
      ->required();
  app.add_option("--out", given.out, "server file to write, for `simulate --server` and `validate --server`")
      ->required();
  app.add_option("--server", given.server, "measured server to start from");
  app.add_option("--model", given.model, "model to start from, for runs without log= and config=");
  app.add_option("--gpu", given.gpu, "GPU to start from, likewise");
  app.add_option("--fit-share", given.fit_share, "fit the first share of each run's requests; the rest is predicted")
      ->check(CLI::Range(0.05, 1.0));
  app.add_option("--folds", given.folds, "stretches of the cross-validation; 0: none")->check(CLI::Range(0, 20));
  if (const auto status = parse_arguments(app, arguments)) return *status;
  const std::vector<Run> runs = read_runs(given);
  const hw::MeasuredServer base = starting_server(given, runs);
  const std::vector<RequestMask> fitted = masks(runs, 0, given.fit_share);
  RunFit fit = fit_corrections(runs, fitted, base);
  print_corrections(fit);
  print_errors("requests that were fitted", errors_of(runs, fitted, base, 1),
               errors_of(runs, fitted, fit.server, fit.kv_blocks_factor));
  if (given.fit_share < 1) {
    const std::vector<RequestMask> rest = masks(runs, given.fit_share, 1);
    print_errors("requests that were not fitted", errors_of(runs, rest, base, 1),
                 errors_of(runs, rest, fit.server, fit.kv_blocks_factor));
  }
  if (given.folds > 1) print_cross_validation(given, runs, base, fit);
  if (runs.front().config) {
    const double blocks = static_cast<double>(runs.front().config->engine.num_blocks) * fit.kv_blocks_factor;
    fmt::print("for `simulate --server`: --num-gpu-blocks-override {} --max-model-len {}\n", std::llround(blocks),
               runs.front().config->engine.max_model_len);
  }
  fit.server.source = fmt::format("{}; {}", fit.server.base_s.source, base.source);
  fit.server.not_identified.insert(fit.server.not_identified.end(), fit.not_identified.begin(),
                                   fit.not_identified.end());
  std::ofstream file(given.out);
  hw::write_server(fit.server, file);
  if (!file.flush()) throw CalibrateError(fmt::format("{}: cannot be written", given.out));
  fmt::print("wrote {}\n", given.out);
  return 0;
}

}  // namespace kneepoint::calibrate
