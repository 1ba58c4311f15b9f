#include "calibrate/fit_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/calibrate_error.h"
#include "calibrate/fit_gaps.h"
#include "calibrate/robust_linear.h"

namespace kneepoint::calibrate {

namespace {

using Eigen::Index;

constexpr std::size_t kMinSteps = 50;

// Columns of the step regression; the ramps of the sequence table follow.
enum Column : Index { kBase, kPrefillToken, kAttentionPair, kContextToken, kBeyond, kFirstRamp };

using Knots = std::vector<double>;

// Batches of few requests are used so differently by vector units and caches
// that a table serves better than a line; more knots follow the data more
// closely and extrapolate worse. fit_elapsed() takes the table that predicts runs
// it was not fitted on best.
const std::array<Knots, 8> kTables{Knots{1},    Knots{2},    Knots{4},          Knots{8},
                                   Knots{1, 4}, Knots{4, 8}, Knots{1, 2, 4, 8}, Knots{1, 2, 3, 4, 6, 8}};

std::string column_name(Index column, const Knots& knots) {
  switch (column) {
    case kBase:
      return "base";
    case kPrefillToken:
      return "prefill_token";
    case kAttentionPair:
      return "attention_pair";
    case kContextToken:
      return "context_token";
    case kBeyond:
      return "sequence_beyond";
    default:
      return fmt::format("sequences up to {:g}", knots[static_cast<std::size_t>(column - kFirstRamp)]);
  }
}

// s(G) as a sum of ramps, one a stretch between knots, so that a non-negative
// coefficient is a stretch that does not fall.
void fill_row(const StepSample& sample, const Knots& knots, Eigen::Ref<Eigen::RowVectorXd> row) {
  row(kBase) = 1;
  row(kPrefillToken) = sample.prefill_tokens;
  row(kAttentionPair) = sample.attention_pairs;
  row(kContextToken) = sample.context_sum;
  double before = 0;
  for (std::size_t i = 0; i < knots.size(); ++i) {
    row(kFirstRamp + static_cast<Index>(i)) =
        std::clamp((sample.sequences - before) / (knots[i] - before), 0.0, 1.0);
    before = knots[i];
  }
  row(kBeyond) = std::max(sample.sequences - before, 0.0);
}

bool decode_only(const StepSample& sample) {
  return sample.prefill_tokens == 0;
}

hw::ResidualSummary summarize(std::string of, const std::vector<double>& residuals,
                              const std::vector<double>& measured, const std::vector<double>& predicted) {
  hw::ResidualSummary summary;
  summary.of = std::move(of);
  summary.count = static_cast<std::int64_t>(residuals.size());
  if (residuals.size() < 3) return summary;
  const double n = static_cast<double>(residuals.size());
  double mean_measured = 0;
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    summary.mean += residuals[i] / n;
    mean_measured += measured[i] / n;
  }
  double second = 0, third = 0, unexplained = 0, total = 0;
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    const double d = residuals[i] - summary.mean;
    second += d * d / n;
    third += d * d * d / n;
    unexplained += (measured[i] - predicted[i]) * (measured[i] - predicted[i]);
    total += (measured[i] - mean_measured) * (measured[i] - mean_measured);
  }
  summary.sd = std::sqrt(second);
  summary.skew = second > 0 ? third / std::pow(second, 1.5) : 0;
  summary.r_squared = total > 0 ? 1 - unexplained / total : 0;
  summary.p5 = quantile(residuals, 0.05);
  summary.p50 = quantile(residuals, 0.50);
  summary.p95 = quantile(residuals, 0.95);
  summary.p99 = quantile(residuals, 0.99);
  for (const int lag : {1, 5, 20, 100})
    summary.autocorrelation.emplace_back(lag, autocorrelation(residuals, lag));
  return summary;
}

// Residuals of one kind of step, and the unrest of the machine: means over a
// second of running and over a run.
void summarize_residuals(std::span<const RunSamples> runs, hw::MeasuredServer& server) {
  for (const bool decodes : {true, false}) {
    std::vector<double> residuals, measured, predicted;
    for (const RunSamples& run : runs) {
      for (const StepSample& sample : run.steps) {
        if (decode_only(sample) != decodes) continue;
        predicted.push_back(predicted_elapsed_s(server, sample));
        measured.push_back(sample.elapsed_s);
        residuals.push_back(sample.elapsed_s / predicted.back() - 1);
      }
    }
    server.residuals.push_back(
        summarize(decodes ? "decode-only steps" : "steps with prefill", residuals, measured, predicted));
  }
  std::vector<double> seconds, whole;
  for (const RunSamples& run : runs) {
    double measured = 0, predicted = 0, run_measured = 0, run_predicted = 0;
    for (const StepSample& sample : run.steps) {
      measured += sample.elapsed_s;
      predicted += predicted_elapsed_s(server, sample);
      if (predicted >= 1) {
        seconds.push_back(measured / predicted - 1);
        run_measured += measured;
        run_predicted += predicted;
        measured = predicted = 0;
      }
    }
    run_measured += measured;
    run_predicted += predicted;
    if (run_predicted > 0) whole.push_back(run_measured / run_predicted - 1);
  }
  const auto sd = [](const std::vector<double>& values) {
    double mean = 0, sum = 0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    for (const double value : values) sum += (value - mean) * (value - mean);
    return values.size() > 1 ? std::sqrt(sum / static_cast<double>(values.size() - 1)) : 0.0;
  };
  server.speed_sd_per_second = sd(seconds);
  server.speed_sd_per_run = sd(whole);
}

LinearProblem elapsed_problem(std::span<const RunSamples> runs, const Knots& knots, const FitOptions& options,
                              const RunSamples* without) {
  LinearProblem problem;
  problem.huber = options.huber;
  std::size_t count = 0;
  for (const RunSamples& run : runs) count += &run == without ? 0 : run.steps.size();
  problem.design.resize(static_cast<Index>(count), kFirstRamp + static_cast<Index>(knots.size()));
  problem.measured.resize(static_cast<Index>(count));
  Index row = 0;
  for (const RunSamples& run : runs) {
    if (&run == without) continue;
    for (const StepSample& sample : run.steps) {
      Eigen::RowVectorXd values(problem.design.cols());
      fill_row(sample, knots, values);
      problem.design.row(row) = values;
      problem.measured(row) = sample.elapsed_s;
      problem.group.push_back(decode_only(sample) ? 0 : 1);
      ++row;
    }
  }
  return problem;
}

// How badly the steps of each run are predicted by a fit to the other runs: mean
// Huber loss of the relative errors, runs weighing alike.
double left_out_loss(std::span<const RunSamples> runs, const Knots& knots, const FitOptions& options) {
  constexpr double kTypical = 0.2;  // Scatter of step times on a shared machine.
  double loss = 0;
  for (const RunSamples& left_out : runs) {
    const LinearFit fit = fit_linear(elapsed_problem(runs, knots, options, &left_out));
    double sum = 0;
    for (const StepSample& sample : left_out.steps) {
      Eigen::RowVectorXd values(fit.coefficients.size());
      fill_row(sample, knots, values);
      const double error = std::abs(sample.elapsed_s / values.dot(fit.coefficients) - 1) / kTypical;
      sum += error <= 1 ? error * error / 2 : error - 0.5;
    }
    loss += sum / static_cast<double>(left_out.steps.size() * runs.size());
  }
  return loss;
}

// The table that predicts left-out runs best; with one run, the smallest. A
// larger table must be better by this share, since it extrapolates worse.
constexpr double kWorthAKnot = 0.005;

const Knots& choose_table(std::span<const RunSamples> runs, const FitOptions& options) {
  const Knots* best = &kTables[0];
  double best_loss = std::numeric_limits<double>::infinity();
  for (const Knots& knots : kTables) {
    if (runs.size() < 2) break;
    const double loss = left_out_loss(runs, knots, options);
    if (loss < best_loss * (1 - kWorthAKnot)) {
      best_loss = loss;
      best = &knots;
    }
  }
  return *best;
}

void fit_elapsed(std::span<const RunSamples> runs, const FitOptions& options, hw::MeasuredServer& server) {
  std::size_t count = 0;
  for (const RunSamples& run : runs) {
    count += run.steps.size();
    server.max_prefill_tokens = std::max(server.max_prefill_tokens, run.max_prefill_tokens);
    server.max_sequences = std::max(server.max_sequences, run.max_sequences);
    server.max_context_sum = std::max(server.max_context_sum, run.max_context_sum);
    server.max_chunk_context = std::max(server.max_chunk_context, run.max_chunk_context);
  }
  if (count < kMinSteps) {
    throw CalibrateError(
        fmt::format("{} steps are too few to fit a step model; at least {} are needed", count, kMinSteps));
  }
  const Knots& knots = choose_table(runs, options);
  const LinearFit fit = fit_linear(elapsed_problem(runs, knots, options, nullptr));
  const std::string source = fitted_on(runs, count, "steps");
  const auto take = [&](Index column) {
    return hw::Measured{fit.coefficients(column), fit.standard_error(column), source};
  };
  server.base_s = take(kBase);
  server.prefill_token_s = take(kPrefillToken);
  server.attention_pair_s = take(kAttentionPair);
  server.context_token_s = take(kContextToken);
  server.sequence_beyond_s = take(kBeyond);
  double time = 0, variance = 0;
  for (std::size_t i = 0; i < knots.size(); ++i) {
    const Index column = kFirstRamp + static_cast<Index>(i);
    time += fit.coefficients(column);
    for (std::size_t j = 0; j <= i; ++j) {  // Variance of the sum of ramps up to here.
      const Index other = kFirstRamp + static_cast<Index>(j);
      variance += fit.correlation(column, other) * fit.standard_error(column) * fit.standard_error(other) *
                  (j == i ? 1 : 2);
    }
    server.sequences.push_back(
        {static_cast<std::int64_t>(knots[i]), {time, std::sqrt(std::max(variance, 0.0)), source}});
  }
  for (Index i = 0; i < fit.coefficients.size(); ++i) {
    for (Index j = i + 1; j < fit.coefficients.size(); ++j) {
      const double rho = fit.correlation(i, j);
      if (std::abs(rho) >= 0.1)
        server.correlations.push_back({column_name(i, knots), column_name(j, knots), rho});
      if (std::abs(rho) >= 0.9) {
        server.not_identified.push_back(
            fmt::format("{} against {}: correlation {:.2f}; only their sum is known in the "
                        "mix of these runs",
                        column_name(i, knots), column_name(j, knots), rho));
      }
    }
    if (fit.coefficients(i) == 0) {
      server.not_identified.push_back(
          fmt::format("{}: the runs show none, or too little to tell it from 0", column_name(i, knots)));
    }
  }
}

}  // namespace

double predicted_elapsed_s(const hw::MeasuredServer& server, const StepSample& sample) {
  hw::MeasuredStepParts parts;
  parts.prefill_tokens = sample.prefill_tokens;
  parts.attention_pairs = sample.attention_pairs;
  parts.sequences = sample.sequences;
  parts.context_sum = sample.context_sum;
  return hw::measured_elapsed_s(server, parts);
}

double slower_than_others(std::span<const RunSamples> runs, std::size_t index, const FitOptions& options) {
  std::vector<RunSamples> others;
  std::size_t count = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i == index) continue;
    others.push_back(runs[i]);
    count += runs[i].steps.size();
  }
  if (count < kMinSteps) return 0;
  hw::MeasuredServer server;
  fit_elapsed(others, options, server);
  double measured = 0, predicted = 0;
  for (const StepSample& sample : runs[index].steps) {
    measured += sample.elapsed_s;
    predicted += predicted_elapsed_s(server, sample);
  }
  return predicted > 0 ? measured / predicted - 1 : 0;
}

hw::MeasuredServer fit_step_model(std::span<const RunSamples> runs, const FitOptions& options) {
  hw::MeasuredServer server;
  fit_elapsed(runs, options, server);
  fit_gaps(runs, options.huber, server);
  summarize_residuals(runs, server);
  // From run to run: what a fit to the others misses. A run's error has its own part and that of the n - 1 others'
  // mean, hence the factor. With two runs the difference is all there is, and stays as summarised.
  if (runs.size() > 2) {
    double squares = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) squares += std::pow(slower_than_others(runs, i, options), 2);
    const double n = static_cast<double>(runs.size());
    server.speed_sd_per_run = std::sqrt(squares / n * (n - 1) / n);
  }
  return server;
}

}  // namespace kneepoint::calibrate
