#include "calibrate/fit_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "calibrate/calibrate_error.h"
#include "calibrate/fit_steps.h"
#include "calibrate/robust_linear.h"

namespace kneepoint::calibrate {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr int kRounds = 8;
constexpr int kAveraged = 4;          // The last of them.
constexpr double kLongestStep = 1.5;  // Of any theta in one round.
constexpr double kHuber = 2;
constexpr double kLeastScale = 2e-3;   // A simulation is not true to more than that.
constexpr double kLeastTime_s = 1e-6;
constexpr double kNotCompleted = 2.3;  // ln 10, for a request that ours does not complete.
constexpr int kMaxLag = 100;
constexpr double kPriorTold = 0.7;     // Standard error in prior standard deviations: above, the run told little.

std::vector<double> tpots_and_ttfts(const RequestTimes& request) {
  const double rest = static_cast<double>(std::max<std::int64_t>(request.output_tokens - 1, 1));
  return {std::max(request.ttft_s, kLeastTime_s),
          request.output_tokens > 1 ? std::max((request.latency_s - request.ttft_s) / rest, kLeastTime_s) : 0.0};
}

Run with_blocks(const Run& run, double factor) {
  Run changed = run;
  if (changed.config) {
    const double blocks = static_cast<double>(changed.config->engine.num_blocks) * factor;
    changed.config->engine.num_blocks = std::max<std::int64_t>(std::llround(blocks), 2);
  }
  return changed;
}

std::map<std::size_t, RequestTimes> predicted_by_index(const Run& run, const hw::MeasuredServer& server) {
  std::map<std::size_t, RequestTimes> found;
  for (RequestTimes& request : predict_run(run, server).requests) found[request.index] = std::move(request);
  return found;
}

// Residuals in the order of runs and requests, TTFTs first, then TPOTs; `group` 0 and 1.
class Comparison {
 public:
  Comparison(const std::vector<Run>& runs, const std::vector<RequestMask>& masks, const hw::MeasuredServer& base)
      : runs_(runs), masks_(masks), base_(base) {
    constexpr double kNearlyAll = 0.8;
    for (const Run& run : runs_) {
      if (!run.config) continue;
      const sim::RunSummary summary = predict_run(run, base_).summary;
      blocks_matter_ = blocks_matter_ || static_cast<double>(summary.peak_used_blocks) >
                                             kNearlyAll * static_cast<double>(summary.num_blocks);
    }
    for (int kind = 0; kind < 2; ++kind) {
      for (std::size_t r = 0; r < runs_.size(); ++r) {
        for (std::size_t i = 0; i < masks_[r].size(); ++i) {
          if (masks_[r][i] && (kind == 0 || runs_[r].client->requests[i].output_tokens > 1)) group_.push_back(kind);
        }
      }
    }
  }

  [[nodiscard]] VectorXd residuals(const VectorXd& theta) const {
    const hw::MeasuredServer server = corrected(base_, theta);
    std::vector<double> kinds[2];
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const auto predicted =
          predicted_by_index(with_blocks(runs_[r], correction_of(kKvBlocks, theta(kKvBlocks))), server);
      const std::vector<RequestTimes> measured = measured_requests(*runs_[r].client);
      for (std::size_t i = 0; i < measured.size(); ++i) {
        if (!masks_[r][i]) continue;
        const std::vector<double> is = tpots_and_ttfts(measured[i]);
        const auto found = predicted.find(i);
        for (std::size_t kind = 0; kind < 2; ++kind) {
          if (kind == 1 && measured[i].output_tokens <= 1) continue;
          kinds[kind].push_back(found == predicted.end()
                                    ? kNotCompleted
                                    : std::log(tpots_and_ttfts(found->second)[kind] / is[kind]));
        }
      }
    }
    kinds[0].insert(kinds[0].end(), kinds[1].begin(), kinds[1].end());
    return Eigen::Map<const VectorXd>(kinds[0].data(), static_cast<Index>(kinds[0].size()));
  }

  [[nodiscard]] const std::vector<int>& group() const { return group_; }

  /// What a correction's effect on a request can depend on: its lengths, when it
  /// came, its latencies without correction. Rows as the residuals', a block of
  /// columns for each group.
  [[nodiscard]] MatrixXd instruments() const {
    constexpr Index kEach = 7;
    MatrixXd x = MatrixXd::Zero(static_cast<Index>(group_.size()), 2 * kEach);
    Index row = 0;
    for (std::size_t kind = 0; kind < 2; ++kind) {
      for (std::size_t r = 0; r < runs_.size(); ++r) {
        const auto plain = predicted_by_index(runs_[r], base_);
        for (std::size_t i = 0; i < masks_[r].size(); ++i) {
          const ClientRequest& request = runs_[r].client->requests[i];
          if (!masks_[r][i] || (kind == 1 && request.output_tokens <= 1)) continue;
          const double when = request.start_s / std::max(runs_[r].client->duration_s, kLeastTime_s);
          const auto found = plain.find(i);
          const std::vector<double> latency =
              found == plain.end() ? std::vector<double>{1, 1} : tpots_and_ttfts(found->second);
          x.row(row++).segment(static_cast<Index>(kind) * kEach, kEach) << 1,
              std::log(static_cast<double>(request.prompt_tokens)),
              std::log(static_cast<double>(request.output_tokens)), when, when * when, std::log(latency[0]),
              std::log(std::max(latency[1], kLeastTime_s));
        }
      }
    }
    return x;
  }

  /// Whether some run without a logged number of blocks came near using them all.
  [[nodiscard]] bool blocks_matter() const { return blocks_matter_; }

 private:
  const std::vector<Run>& runs_;
  const std::vector<RequestMask>& masks_;
  const hw::MeasuredServer& base_;
  std::vector<int> group_;
  bool blocks_matter_ = false;
};

// Scale and variance factor of each group.
struct Noise {
  std::array<double, 2> scale{1, 1};
  std::array<double, 2> inflation{1, 1};
};

Noise noise_of(const VectorXd& residuals, const std::vector<int>& group) {
  Noise noise;
  for (std::size_t g = 0; g < 2; ++g) {
    std::vector<double> of_group, sizes;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (group[i] == static_cast<int>(g)) of_group.push_back(residuals(static_cast<Index>(i)));
    }
    const double middle = quantile(of_group, 0.5);  // What all share is to be explained, and no noise.
    for (double& value : of_group) sizes.push_back(std::abs(value -= middle));
    noise.scale[g] = std::max(quantile(std::move(sizes), 0.5) * 1.4826, kLeastScale);
    for (double& value : of_group) value = std::clamp(value / noise.scale[g], -kHuber, kHuber);
    for (int lag = 1; lag <= kMaxLag; ++lag) {
      const double rho = autocorrelation(of_group, lag);
      if (rho <= 0) break;
      noise.inflation[g] += 2 * rho;
    }
  }
  return noise;
}

// Root of each residual's weight.
VectorXd root_weights_of(const VectorXd& residuals, const std::vector<int>& group, const Noise& noise) {
  VectorXd roots(residuals.size());
  for (Index i = 0; i < roots.size(); ++i) {
    const auto g = static_cast<std::size_t>(group[static_cast<std::size_t>(i)]);
    const double r = std::abs(residuals(i)) / noise.scale[g];
    roots(i) = std::sqrt((r <= kHuber ? 1 : kHuber / r) / noise.inflation[g]) / noise.scale[g];
  }
  return roots;
}

// An orthonormal basis of the weighted instruments, as rows to multiply residuals with.
MatrixXd projection_of(const MatrixXd& instruments, const VectorXd& roots) {
  const Eigen::ColPivHouseholderQR<MatrixXd> qr(roots.asDiagonal() * instruments);
  const MatrixXd q = qr.householderQ() * MatrixXd::Identity(instruments.rows(), qr.rank());
  return q.transpose() * roots.asDiagonal();
}

MatrixXd jacobian(const Comparison& comparison, const VectorXd& theta, Index rows) {
  MatrixXd j = MatrixXd::Zero(rows, kNumCorrections);
  for (Index k = 0; k < kNumCorrections; ++k) {
    if (k == kKvBlocks && !comparison.blocks_matter()) continue;
    const CorrectionRow& row = corrections()[static_cast<std::size_t>(k)];
    const double h = row.is_factor ? 0.15 / row.prior_sd : 0.8;
    VectorXd up = theta, down = theta;
    up(k) += h;
    down(k) -= h;
    j.col(k) = (comparison.residuals(up) - comparison.residuals(down)) / (2 * h);
  }
  return j;
}

void say_what_is_unknown(RunFit& fit, const VectorXd& error_theta) {
  for (Index k = 0; k < kNumCorrections; ++k) {
    FittedCorrection& correction = fit.corrections[static_cast<std::size_t>(k)];
    correction.identified = error_theta(k) < kPriorTold;
    if (!correction.identified) {
      fit.not_identified.push_back(
          fmt::format("{}: the runs say little more than the prior (standard error {:.0f} % of the prior's)",
                      correction.name, error_theta(k) * 100));
    }
    for (Index other = k + 1; other < kNumCorrections; ++other) {
      const double rho = fit.correlation(k, other);
      if (std::abs(rho) >= 0.9) {
        fit.not_identified.push_back(fmt::format("{} against {}: correlation {:.2f}", correction.name,
                                                 corrections()[static_cast<std::size_t>(other)].name, rho));
      }
    }
  }
}

// Fills in values, errors and words from the minimum and the curvature there.
RunFit result_at(const VectorXd& theta, const MatrixXd& curvature, const hw::MeasuredServer& base,
                 const std::string& source) {
  RunFit fit;
  fit.theta = theta;
  fit.server = corrected(base, theta);
  fit.kv_blocks_factor = correction_of(kKvBlocks, theta(kKvBlocks));
  const MatrixXd covariance = curvature.ldlt().solve(MatrixXd::Identity(kNumCorrections, kNumCorrections));
  const VectorXd error_theta = covariance.diagonal().cwiseMax(0.0).cwiseSqrt();
  fit.correlation = MatrixXd::Identity(kNumCorrections, kNumCorrections);
  for (Index k = 0; k < kNumCorrections; ++k) {
    const CorrectionRow& row = corrections()[static_cast<std::size_t>(k)];
    FittedCorrection correction;
    correction.name = std::string(row.name);
    correction.value = correction_of(k, theta(k));
    correction.standard_error = correction_slope(k, theta(k)) * error_theta(k);
    correction.at_bound = correction.value <= row.low || correction.value >= row.high;
    fit.corrections.push_back(correction);
    for (Index other = 0; other < kNumCorrections; ++other) {
      fit.correlation(k, other) =
          covariance(k, other) / std::max(error_theta(k) * error_theta(other), 1e-300);
    }
  }
  set_errors(theta, covariance, source, fit.server);
  say_what_is_unknown(fit, error_theta);
  return fit;
}

std::string source_of(const std::vector<Run>& runs, const std::vector<RequestMask>& masks) {
  std::string text = "fitted on";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    text += fmt::format("{} {} requests of {}", r == 0 ? "" : ",",
                        std::count(masks[r].begin(), masks[r].end(), true), runs[r].files.name);
  }
  return text;
}

}  // namespace

RunFit fit_corrections(const std::vector<Run>& runs, const std::vector<RequestMask>& masks,
                       const hw::MeasuredServer& base, const VectorXd* start) {
  const Comparison comparison(runs, masks, base);
  const std::vector<int>& group = comparison.group();
  constexpr std::size_t kFew = 20;
  if (group.size() < kFew) {
    throw CalibrateError(fmt::format("{} latencies are too few to fit {} corrections; at least {} are needed",
                                     group.size(), static_cast<int>(kNumCorrections), kFew));
  }
  const MatrixXd instruments = comparison.instruments();
  VectorXd theta = start != nullptr ? *start : VectorXd::Zero(kNumCorrections);
  VectorXd residuals = comparison.residuals(theta);
  MatrixXd curvature = MatrixXd::Identity(kNumCorrections, kNumCorrections);
  // The objective itself jumps with theta, so a search along it would stop at the
  // first lucky jump. Full steps are taken instead, and what they end in, round
  // after round, is averaged.
  VectorXd mean_theta = VectorXd::Zero(kNumCorrections);
  MatrixXd mean_curvature = MatrixXd::Zero(kNumCorrections, kNumCorrections);
  for (int round = 0; round < kRounds; ++round) {
    const VectorXd roots = root_weights_of(residuals, group, noise_of(residuals, group));
    const MatrixXd projection = projection_of(instruments, roots);
    const MatrixXd j = projection * jacobian(comparison, theta, residuals.size());
    curvature = j.transpose() * j + MatrixXd::Identity(kNumCorrections, kNumCorrections);
    const VectorXd gradient = j.transpose() * (projection * residuals) + theta;
    VectorXd step = -curvature.ldlt().solve(gradient);
    step *= std::min(1.0, kLongestStep / std::max(step.cwiseAbs().maxCoeff(), 1e-12));
    theta += step;
    residuals = comparison.residuals(theta);
    if (round >= kRounds - kAveraged) {
      mean_theta += theta / kAveraged;
      mean_curvature += curvature / kAveraged;
    }
  }
  theta = mean_theta;
  // Ours jumps as the server's did: an average over rounds has that once more, a share of it.
  curvature = mean_curvature / (1 + 1.0 / kAveraged);
  RunFit fit = result_at(theta, curvature, base, source_of(runs, masks));
  fit.rounds = kRounds;
  return fit;
}

std::vector<ErrorRow> errors_of(const std::vector<Run>& runs, const std::vector<RequestMask>& masks,
                                const hw::MeasuredServer& server, double kv_blocks_factor) {
  std::vector<double> values[2][2];  // [measured, predicted][ttft, tpot]
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto predicted = predicted_by_index(with_blocks(runs[r], kv_blocks_factor), server);
    for (const RequestTimes& measured : measured_requests(*runs[r].client)) {
      const auto found = predicted.find(measured.index);
      if (!masks[r][measured.index] || found == predicted.end()) continue;
      const std::vector<double> pair[2] = {tpots_and_ttfts(measured), tpots_and_ttfts(found->second)};
      for (std::size_t side = 0; side < 2; ++side) {
        values[side][0].push_back(pair[side][0] * 1e3);
        if (measured.output_tokens > 1) values[side][1].push_back(pair[side][1] * 1e3);
      }
    }
  }
  const auto mean = [](const std::vector<double>& all) {
    double sum = 0;
    for (const double value : all) sum += value;
    return all.empty() ? 0.0 : sum / static_cast<double>(all.size());
  };
  return {{"mean_ttft_ms", mean(values[0][0]), mean(values[1][0])},
          {"p99_ttft_ms", quantile(values[0][0], 0.99), quantile(values[1][0], 0.99)},
          {"mean_tpot_ms", mean(values[0][1]), mean(values[1][1])},
          {"p99_tpot_ms", quantile(values[0][1], 0.99), quantile(values[1][1], 0.99)}};
}

namespace {

// Passes a model's times on and keeps what the steps were made of.
class RecordingTimes final : public hw::StepTimeModel {
 public:
  RecordingTimes(const hw::StepTimeModel& inner, RunSamples& samples) : inner_(inner), samples_(samples) {}

  [[nodiscard]] hw::StepTime step_time(const hw::StepShape& shape) const override {
    const hw::StepTime time = inner_.step_time(shape);
    StepSample sample;
    sample.sequences = static_cast<double>(shape.decodes.count);
    sample.context_sum = static_cast<double>(shape.decodes.context_sum);
    std::int64_t prefill = 0;
    for (const hw::Chunk& chunk : shape.chunks) {
      const double n = static_cast<double>(chunk.num_tokens);
      prefill += chunk.num_tokens;
      sample.attention_pairs += n * static_cast<double>(chunk.num_computed_tokens) + n * (n + 1) / 2;
      samples_.max_chunk_context =
          std::max(samples_.max_chunk_context, chunk.num_computed_tokens + chunk.num_tokens);
    }
    sample.prefill_tokens = static_cast<double>(prefill);
    sample.elapsed_s = static_cast<double>((time.device + time.pipeline).count()) * 1e-9;
    samples_.steps.push_back(sample);
    samples_.max_prefill_tokens = std::max(samples_.max_prefill_tokens, prefill);
    samples_.max_sequences = std::max(samples_.max_sequences, shape.decodes.count);
    samples_.max_context_sum = std::max(samples_.max_context_sum, shape.decodes.context_sum);
    host_s_ += static_cast<double>(time.host.count()) * 1e-9;
    return time;
  }
  [[nodiscard]] hw::FrontEndTimes front_end() const override { return inner_.front_end(); }
  [[nodiscard]] std::chrono::nanoseconds turnaround(std::int64_t num_outputs) const override {
    return inner_.turnaround(num_outputs);
  }
  [[nodiscard]] std::span<const std::int64_t> attention_windows() const override {
    return inner_.attention_windows();
  }
  [[nodiscard]] std::vector<hw::Extrapolation> extrapolations(const hw::StepShape& shape) const override {
    return inner_.extrapolations(shape);
  }
  [[nodiscard]] std::string provenance() const override { return inner_.provenance(); }

  [[nodiscard]] double mean_host_s() const {
    return samples_.steps.empty() ? 0 : host_s_ / static_cast<double>(samples_.steps.size());
  }

 private:
  const hw::StepTimeModel& inner_;
  RunSamples& samples_;
  mutable double host_s_ = 0;
};

double seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-9;
}

}  // namespace

hw::MeasuredServer server_like_gpu(const Run& run, double& scatter) {
  const sim::RunConfig& config = *run.config;
  const std::unique_ptr<hw::StepTimeModel> model = hw::make_step_time_model(config.deployment, config.rates_file);
  const hw::GraphSizes graphs(config.deployment);
  RunSamples samples;
  samples.name = run.files.name;
  const RecordingTimes times(*model, samples);
  static_cast<void>(predict_run(run, times, &graphs, 0));
  hw::MeasuredServer server = fit_step_model(std::span(&samples, 1));
  double squares = 0;
  for (const StepSample& sample : samples.steps) {
    squares += std::pow(sample.elapsed_s / predicted_elapsed_s(server, sample) - 1, 2);
  }
  scatter = std::sqrt(squares / static_cast<double>(samples.steps.size()));
  const std::string source = model->provenance();
  const double fixed = seconds(model->turnaround(0));
  const double each = (seconds(model->turnaround(100)) - fixed) / 100;
  // A synchronous server's host time lies between two steps; an asynchronous one hides it.
  const double host = config.engine.async_scheduling ? 0 : times.mean_host_s();
  server.gap_base_s = {fixed + host, 0, source};
  server.gap_per_output_s = {each, 0, source};
  server.gap_with_prefill_s = {0, 0, source};
  server.arrival_s = {seconds(model->front_end().arrival), 0, source};
  server.output_s = {seconds(model->front_end().output), 0, source};
  server.output_per_request_s = {seconds(model->front_end().output_per_request), 0, source};
  server.turnaround_s = {0, 0, "assumed: the client sends at once"};
  server.model = config.model_name;
  server.machine = config.gpu_name;
  server.source = source;
  server.not_identified.clear();
  server.residuals.clear();
  server.speed_sd_per_second = server.speed_sd_per_run = 0;
  return server;
}

}  // namespace kneepoint::calibrate
