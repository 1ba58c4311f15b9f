// calibrate fit-steps: a measured server from the step logs of real runs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/fit_steps.h"
#include "calibrate/log_replay.h"
#include "calibrate/logged_config.h"
#include "calibrate/run_input.h"
#include "calibrate/subcommands.h"
#include "traces/atomic_file.h"

namespace kneepoint::calibrate {

namespace {

// A run whose steps take so much more or less time than the others' fit says is
// of another machine, whatever its log says.
constexpr double kOtherMachine = 0.5;

// All runs are of one model on one device and release; configurations may differ.
void check_same_server(const Run& run, const LoggedConfig& config, const hw::MeasuredServer& first) {
  const auto differs = [&](const char* what, const std::string& is, const std::string& was) {
    if (is != was) {
      throw CalibrateError(
          fmt::format("{}: its log is of {} '{}', the runs before are of '{}'; fit them apart",
                      run.files.name, what, is, was));
    }
  };
  differs("model", config.model, first.model);
  differs("architecture", config.architecture, first.architecture);
  differs("release", config.release, first.release);
  differs("device", config.device, first.machine);
}

void print_measured(const char* name, const hw::Measured& measured, double unit, const char* unit_name) {
  fmt::print("  {:<22} {:>11.5g} {} ", name, measured.value / unit, unit_name);
  if (measured.standard_error > 0) {
    fmt::print("+- {:.3g}\n", measured.standard_error / unit);
  } else {
    fmt::print("({})\n", measured.source);
  }
}

void print_fit(const hw::MeasuredServer& server) {
  print_measured("base", server.base_s, 1e-3, "ms");
  print_measured("prefill_token", server.prefill_token_s, 1e-6, "us");
  print_measured("attention_pair", server.attention_pair_s, 1e-9, "ns");
  for (const hw::SequencePoint& point : server.sequences) {
    print_measured(fmt::format("{} sequences", point.count).c_str(), point.time_s, 1e-3, "ms");
  }
  print_measured("sequence_beyond", server.sequence_beyond_s, 1e-6, "us");
  print_measured("context_token", server.context_token_s, 1e-9, "ns");
  print_measured("gap.base", server.gap_base_s, 1e-3, "ms");
  print_measured("gap.per_output", server.gap_per_output_s, 1e-6, "us");
  print_measured("gap.with_prefill", server.gap_with_prefill_s, 1e-3, "ms");
  print_measured("arrival", server.arrival_s, 1e-3, "ms");
  print_measured("output_per_request", server.output_per_request_s, 1e-6, "us");
  print_measured("turnaround", server.turnaround_s, 1e-3, "ms");
  for (const hw::ResidualSummary& residual : server.residuals) {
    fmt::print(
        "{} {}: residual mean {:+.1f} %, sd {:.1f} %, p5 {:+.1f} %, p95 {:+.1f} %, p99 {:+.1f} %, skew "
        "{:.1f}, "
        "R2 {:.3f}, autocorrelation",
        residual.count, residual.of, residual.mean * 100, residual.sd * 100, residual.p5 * 100,
        residual.p95 * 100, residual.p99 * 100, residual.skew, residual.r_squared);
    for (const auto& [lag, value] : residual.autocorrelation) fmt::print(" {:.2f} at {}", value, lag);
    fmt::print("\n");
  }
  fmt::print("machine's speed: sd {:.1f} % from second to second, {:.1f} % from run to run\n",
             server.speed_sd_per_second * 100, server.speed_sd_per_run * 100);
  for (const std::string& what : server.not_identified) fmt::print("cannot be told: {}\n", what);
}

// Replays one run and takes its samples; fills in or checks whose runs these are.
RunSamples samples_of_file(const std::string& argument, hw::MeasuredServer& server) {
  const Run run = read_run(parse_run_argument(argument));
  for (const std::string& what : run.cannot) fmt::print("{}: cannot be known: {}\n", run.files.name, what);
  const LoggedConfig config = logged_config(only_server(run.log, run.files.name));
  if (server.source.empty()) {
    server.model = config.model;
    server.architecture = config.architecture;
    server.release = config.release;
    server.machine = config.device;
  } else {
    check_same_server(run, config, server);
  }
  const LogReplay replay = replay_log(run);
  if (!replay.agrees()) {
    throw CalibrateError(
        fmt::format("{}: only {} of {} steps are as predicted, so what the others are made of is not "
                    "known; see `calibrate check-steps`",
                    run.files.name, replay.steps.size(), replay.logged_steps));
  }
  fmt::print("{}: {} of {} steps as predicted\n", run.files.name, replay.steps.size(), replay.logged_steps);
  server.source +=
      fmt::format("{}{} ({} steps)", server.source.empty() ? "" : ", ", run.files.name, replay.steps.size());
  return samples_of(run, replay, replayable_config(run));
}

void refuse_other_machines(const std::vector<RunSamples>& samples) {
  for (std::size_t i = 0; i < samples.size() && samples.size() > 1; ++i) {
    const double slower = slower_than_others(samples, i);
    if (std::abs(std::log1p(slower)) > std::log1p(kOtherMachine)) {
      throw CalibrateError(
          fmt::format("{}: its steps take {:.2f} times what a fit to the other runs predicts: of another "
                      "machine, or logged in other units? Fit it apart",
                      samples[i].name, 1 + slower));
    }
  }
}

}  // namespace

int run_fit_steps(const Arguments& arguments) {
  CLI::App app("a measured server (hw/server.proto) from the step logs of real runs", "calibrate fit-steps");
  std::vector<std::string> runs;
  std::string out;
  std::string machine;
  app.add_option("--run", runs, "log=FILE[,log=FILE][,client=FILE][,trace=FILE][,cache=FILE]; repeatable")
      ->required();
  app.add_option("--out", out, "server file to write, for `simulate --server`")->required();
  app.add_option("--machine", machine, "name of the machine, for the server file; a log tells only its kind");
  if (const auto status = parse_arguments(app, arguments)) return *status;
  hw::MeasuredServer identity;
  std::vector<RunSamples> samples;
  for (const std::string& argument : runs) samples.push_back(samples_of_file(argument, identity));
  refuse_other_machines(samples);
  hw::MeasuredServer server = fit_step_model(samples);
  server.model = identity.model;
  server.architecture = identity.architecture;
  server.release = identity.release;
  server.machine = machine.empty() ? identity.machine : machine;
  server.source = "fitted on " + identity.source;
  print_fit(server);
  std::ostringstream text;
  hw::write_server(server, text);
  traces::AtomicFile file(out);
  file.write(text.str());
  file.commit();
  fmt::print("wrote {}\n", out);
  return 0;
}

}  // namespace kneepoint::calibrate
