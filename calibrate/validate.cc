// calibrate validate: predicts runs that were not fitted, and says how wrong.
#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/normal_distribution.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/logged_config.h"
#include "calibrate/predict_run.h"
#include "calibrate/robust_linear.h"
#include "calibrate/run_input.h"
#include "calibrate/subcommands.h"
#include "calibrate/validate_report.h"
#include "hw/measured_step.h"

namespace kneepoint::calibrate {

namespace {

constexpr int kDraws = 20;  // Servers drawn for the band.

// The fitted coefficients of the step, as the file's correlations name them.
std::vector<std::pair<std::string, hw::Measured*>> step_coefficients(hw::MeasuredServer& server) {
  std::vector<std::pair<std::string, hw::Measured*>> found{{"base", &server.base_s},
                                                           {"prefill_token", &server.prefill_token_s},
                                                           {"attention_pair", &server.attention_pair_s},
                                                           {"context_token", &server.context_token_s},
                                                           {"sequence_beyond", &server.sequence_beyond_s}};
  for (hw::SequencePoint& point : server.sequences) {
    found.emplace_back(fmt::format("sequences up to {}", point.count), &point.time_s);
  }
  return found;
}

// A server that the fit's uncertainty allows: coefficients drawn with their
// errors and correlations, and a speed of the machine for this run.
hw::MeasuredServer draw_server(const hw::MeasuredServer& fitted, boost::random::mt19937_64& random) {
  boost::random::normal_distribution<double> normal;
  hw::MeasuredServer drawn = fitted;
  const auto coefficients = step_coefficients(drawn);
  const auto n = static_cast<Eigen::Index>(coefficients.size());
  Eigen::MatrixXd covariance = Eigen::MatrixXd::Zero(n, n);
  std::map<std::string, Eigen::Index> place;
  for (Eigen::Index i = 0; i < n; ++i) {
    const auto& [name, measured] = coefficients[static_cast<std::size_t>(i)];
    place[name] = i;
    covariance(i, i) = measured->standard_error * measured->standard_error;
  }
  for (const hw::NamedCorrelation& c : fitted.correlations) {
    if (!place.contains(c.a) || !place.contains(c.b)) continue;
    const Eigen::Index i = place[c.a], j = place[c.b];
    covariance(i, j) = covariance(j, i) = c.value * std::sqrt(covariance(i, i) * covariance(j, j));
  }
  // Small correlations are not in the file, so the matrix may be slightly indefinite.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(covariance);
  Eigen::VectorXd z(n);
  for (Eigen::Index i = 0; i < n; ++i)
    z(i) = normal(random) * std::sqrt(std::max(eigen.eigenvalues()(i), 0.0));
  const Eigen::VectorXd shift = eigen.eigenvectors() * z;
  const double speed = std::exp(fitted.speed_sd_per_run * normal(random));
  for (Eigen::Index i = 0; i < n; ++i) {
    hw::Measured& measured = *coefficients[static_cast<std::size_t>(i)].second;
    measured.value = std::max(measured.value + shift(i), 0.0) * speed;
  }
  double before = 0;
  for (hw::SequencePoint& point : drawn.sequences)
    before = point.time_s.value = std::max(point.time_s.value, before);
  for (hw::Measured* gap :
       {&drawn.gap_base_s, &drawn.gap_per_output_s, &drawn.gap_with_prefill_s, &drawn.arrival_s}) {
    gap->value = std::max(gap->value + gap->standard_error * normal(random), 0.0);
  }
  return drawn;
}

void check_same_server(const Run& run, const hw::MeasuredServer& server) {
  if (!run.has_log()) return;  // Nothing says what it was; the report names the server file's model.
  const LoggedServer& logged = only_server(run.log, run.files.name);
  const std::string release = logged_config(logged).release;
  if (logged.model != server.model) {
    throw CalibrateError(fmt::format("{}: its log is of model '{}', the server file of '{}'", run.files.name,
                                     logged.model, server.model));
  }
  if (release != server.release) {
    throw CalibrateError(fmt::format("{}: its log is of release '{}', the server file of '{}'",
                                     run.files.name, release, server.release));
  }
}

ValidatedRun validate_run(const RunFiles& files, const hw::MeasuredServer& server) {
  const Run run = read_run(files);
  if (!run.client)
    throw CalibrateError(fmt::format("{}: has no client=; nothing measured to compare with", files.name));
  check_same_server(run, server);
  ValidatedRun validated;
  validated.name = files.name;
  validated.measured = measured_requests(*run.client);
  RunPrediction prediction = predict_run(run, server);
  validated.predicted = std::move(prediction.requests);
  const std::vector<RunMetric> measured = measured_metrics(*run.client);
  const std::vector<RunMetric>& predicted = prediction.metrics;
  std::map<std::string, std::vector<double>> drawn;
  boost::random::mt19937_64 random(20240607);  // Any fixed seed: same inputs, same band.
  for (int i = 0; i < kDraws; ++i) {
    const hw::MeasuredServer drawn_server = draw_server(server, random);
    const Unrest unrest{server.speed_sd_per_second, static_cast<std::uint64_t>(i) + 1};
    for (const RunMetric& metric : predict_run(run, drawn_server, unrest).metrics) {
      drawn[metric.name].push_back(metric.value);
    }
  }
  // What the client did not record (a list of requests has no inter-token latencies) is not compared.
  for (const RunMetric& metric : measured) {
    const auto same = std::find_if(predicted.begin(), predicted.end(),
                                   [&](const RunMetric& other) { return other.name == metric.name; });
    if (same == predicted.end()) continue;
    const std::vector<double>& draws = drawn[metric.name];
    validated.metrics.push_back(
        {metric.name, metric.value, same->value, quantile(draws, 0.05), quantile(draws, 0.95)});
  }
  return validated;
}

// Median over the runs that have it of a metric's |error|.
double median_error(const std::vector<ValidatedRun>& runs, const std::string& metric) {
  std::vector<double> errors;
  for (const ValidatedRun& run : runs) {
    for (const ValidatedMetric& other : run.metrics) {
      if (other.name == metric) errors.push_back(std::abs(other.error()));
    }
  }
  return quantile(std::move(errors), 0.5);
}

void print_table(const std::vector<ValidatedRun>& runs) {
  for (const ValidatedRun& run : runs) {
    fmt::print("{}\n  {:<24} {:>12} {:>12} {:>8}   {}\n", run.name, "metric", "measured", "predicted",
               "error", "band of the fit");
    for (const ValidatedMetric& metric : run.metrics) {
      fmt::print("  {:<24} {:>12.3f} {:>12.3f} {:>+7.1f}%   {:.3f} to {:.3f}\n", metric.name, metric.measured,
                 metric.predicted, metric.error() * 100, metric.low, metric.high);
    }
  }
  fmt::print("median of |error| over {} runs\n", runs.size());
  for (const ValidatedMetric& metric : runs.front().metrics) {
    fmt::print("  {:<24} {:>6.1f}%\n", metric.name, median_error(runs, metric.name) * 100);
  }
}

void print_json(const std::vector<ValidatedRun>& runs) {
  nlohmann::ordered_json all;
  for (const ValidatedRun& run : runs) {
    nlohmann::ordered_json metrics;
    for (const ValidatedMetric& metric : run.metrics) {
      metrics[metric.name] = {{"measured", metric.measured},
                              {"predicted", metric.predicted},
                              {"error", metric.error()},
                              {"band", {metric.low, metric.high}}};
    }
    all["runs"].push_back({{"name", run.name}, {"metrics", metrics}});
  }
  for (const ValidatedMetric& metric : runs.front().metrics) {
    all["median_abs_error"][metric.name] = median_error(runs, metric.name);
  }
  fmt::print("{}\n", all.dump(2));
}

}  // namespace

int run_validate(const Arguments& arguments) {
  CLI::App app("predicts runs that were not fitted and compares with what their clients measured",
               "calibrate validate");
  std::string server_file;
  std::vector<std::string> runs;
  std::string out;
  std::string format = "table";
  app.add_option("--server", server_file, "measured server, from fit-steps or fit-run")->required();
  app.add_option("--run", runs, "log=FILE[,log=FILE],client=FILE[,trace=FILE][,cache=FILE]; repeatable")
      ->required();
  app.add_option("--out", out, "folder for the requests' times and a gnuplot script that draws them");
  app.add_option("--format", format, "table or json")->check(CLI::IsMember({"table", "json"}));
  if (const auto status = parse_arguments(app, arguments)) return *status;
  const hw::MeasuredServer server = hw::load_server(server_file);
  std::vector<ValidatedRun> validated;
  for (const std::string& run : runs) validated.push_back(validate_run(parse_run_argument(run), server));
  if (!out.empty()) {
    for (const ValidatedRun& run : validated) write_pictures(run, out);
  }
  format == "json" ? print_json(validated) : print_table(validated);
  return 0;
}

}  // namespace kneepoint::calibrate
