#include "hw/step_time_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/random/mersenne_twister.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "hw/fitted_times.h"
#include "hw/operator_graph.h"
#include "hw/rates.h"
#include "hw/roofline_step.h"
#include "hw/server_costs.h"

namespace kneepoint::hw {
namespace {

constexpr int kDraws = 24;
constexpr double kMedianOfNormal = 0.6745;  // Of |z|, z standard normal: any table.

// The family whose rates an operator takes its time from; "" if none fits.
std::string family_of(const Operator& op) {
  const auto typed = [](const char* name, Precision precision) {
    return fmt::format("{}_{}", name, precision == Precision::kFp8 ? "fp8" : "bf16");
  };
  if (const auto* gemm = std::get_if<GemmOperator>(&op.form)) return typed("gemm", gemm->shape.precision);
  if (const auto* decode = std::get_if<DecodeAttentionOperator>(&op.form))
    return typed("decode_attention", decode->pair.decode.kv_precision);
  if (const auto* prefill = std::get_if<PrefillAttentionOperator>(&op.form))
    return typed("prefill_attention", prefill->pair.prefill.kv_precision);
  if (const auto* moe = std::get_if<MoeOperator>(&op.form))
    return typed("moe", moe->shape.precision) + (moe->shape.moe_ep > 1 ? "_ep" : "");
  if (const auto* collective = std::get_if<CollectiveOperator>(&op.form)) {
    constexpr std::array kNames{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"};
    return fmt::format("{}_{}", kNames[static_cast<std::size_t>(collective->shape.op)],
                       collective->shape.num_gpus);
  }
  return "elementwise";
}

bool has_rates(const Deployment& deployment, const std::string& rates_file) {
  const std::vector<std::string>& bundled = rates_names();
  return !rates_file.empty() ||
         std::find(bundled.begin(), bundled.end(), deployment.gpu.name) != bundled.end();
}

// Sum of 12 uniforms less 6: normal enough for a variance, and the same everywhere.
double draw_normal(boost::random::mt19937_64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11U) * 0x1p-53;
  return sum;
}

// Lower triangle of a correlation matrix's root (Cholesky). A matrix that rounding
// has made slightly indefinite loses what is below zero.
std::vector<double> correlation_root(const FamilyRates& family) {
  const std::size_t n = family.rates.size();
  std::vector<double> root(n * n, 0.0);
  const auto correlation = [&](std::size_t i, std::size_t j) {
    const std::size_t at = i * (i - 1) / 2 + j;
    return at < family.correlations.size() ? family.correlations[at] : 0.0;
  };
  for (std::size_t i = 0; i < n; ++i) {
    double diagonal = 1;
    for (std::size_t j = 0; j < i; ++j) {
      double sum = correlation(i, j);
      for (std::size_t k = 0; k < j; ++k) sum -= root[i * n + k] * root[j * n + k];
      root[i * n + j] = root[j * n + j] > 1e-6 ? sum / root[j * n + j] : 0;
      diagonal -= root[i * n + j] * root[i * n + j];
    }
    root[i * n + i] = std::sqrt(std::max(diagonal, 0.0));
  }
  return root;
}

// Rates that the fit's uncertainty allows, within what physics allows.
Rates draw_rates(const Rates& fitted, boost::random::mt19937_64& random) {
  Rates drawn = fitted;
  for (FamilyRates& family : drawn.families) {
    const std::size_t n = family.rates.size();
    const std::vector<double> root = correlation_root(family);
    std::vector<double> z(n);
    for (double& one : z) one = draw_normal(random);
    for (std::size_t i = 0; i < n; ++i) {
      Rate& rate = family.rates[i];
      double shift = 0;
      for (std::size_t k = 0; k <= i; ++k) shift += root[i * n + k] * z[k];
      if (rate.value > 0 && rate.standard_error > 0) {
        const double relative = std::min(rate.standard_error / rate.value, 1.0);
        rate.value = std::clamp(rate.value * std::exp(relative * shift), rate.lower, rate.upper);
      }
    }
  }
  return drawn;
}

double relative_sd(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1)) / mean;
}

// By how much the step's time moves with rates drawn from their distribution.
double rates_sd(const Deployment& deployment, const Rates& fitted, const StepShape& shape) {
  boost::random::mt19937_64 random(1);
  std::vector<double> seconds;
  for (int i = 0; i < kDraws; ++i) {
    const RooflineStep model(deployment,
                             std::make_unique<FittedTimes>(deployment.gpu, draw_rates(fitted, random)),
                             load_server_costs());
    seconds.push_back(model.device_seconds(shape));
  }
  return relative_sd(seconds);
}

}  // namespace

StepTimeSd roofline_step_sd(const Deployment& deployment, const std::string& rates_file,
                            const ExplainedStep& step) {
  OwnedStepShape owned;
  fill_step_shape(deployment, step, owned);
  if (!has_rates(deployment, rates_file)) {
    return {kEstimatedError,
            "estimated: no rates were fitted on this GPU, shares are carried over from others"};
  }
  const Rates rates = load_rates(rates_file.empty() ? deployment.gpu.name : rates_file);
  const std::unique_ptr<RooflineStep> model = make_roofline_step(deployment, rates_file);
  const double device = model->device_seconds(owned.shape);
  std::map<std::string, double> share;  // Of the step, by family.
  const auto [first, last] = vertices(model->graph());
  for (auto vertex = first; vertex != last; ++vertex) {
    const Operator& op = model->graph()[*vertex];
    const double seconds =
        static_cast<double>(op.stage_count) *
        time_of(op, owned.shape, model->operator_times(), deployment.gpu, model->costs().mixed_attention)
            .seconds;
    share[family_of(op)] += seconds / device;
  }
  double misfit = 0;
  std::string largest;
  double most = 0;
  for (const auto& [name, part] : share) {
    const FamilyRates* family = rates.find(name);
    const double error =
        part * (family != nullptr ? family->median_error / kMedianOfNormal : kEstimatedError);
    misfit += error * error;
    if (error > most) {
      most = error;
      largest = name;
    }
  }
  const double drawn = rates_sd(deployment, rates, owned.shape);
  return {std::sqrt(misfit + drawn * drawn),
          fmt::format("rates of {}: standard errors {:.2f} %, misfit of the forms {:.2f} % (most by {}); "
                      "what the server adds "
                      "carries no error yet",
                      rates.gpu, 100 * drawn, 100 * std::sqrt(misfit), largest)};
}

namespace {

// A coefficient of the measured form and what it is multiplied by in a step.
struct Term {
  std::string name;  // As in the file's correlations.
  double factor = 0;
  double standard_error = 0;
};

// The points of the sequence table on both sides of `count` share its time.
void add_sequence_terms(const MeasuredServer& server, double count, std::vector<Term>& terms) {
  double count_before = 0;
  const SequencePoint* before = nullptr;
  const auto add = [&](const SequencePoint* point, double factor) {
    if (point != nullptr)
      terms.push_back(
          {fmt::format("sequences up to {}", point->count), factor, point->time_s.standard_error});
  };
  for (const SequencePoint& point : server.sequences) {
    const auto here = static_cast<double>(point.count);
    if (count <= here) {
      const double part = (count - count_before) / (here - count_before);
      add(before, 1 - part);
      return add(&point, part);
    }
    count_before = here;
    before = &point;
  }
  add(before, 1);
  terms.push_back({"sequence_beyond", count - count_before, server.sequence_beyond_s.standard_error});
}

}  // namespace

StepTimeSd measured_step_sd(const MeasuredServer& server, const MeasuredStepParts& parts) {
  std::vector<Term> terms{{"base", 1, server.base_s.standard_error},
                          {"prefill_token", parts.prefill_tokens, server.prefill_token_s.standard_error},
                          {"attention_pair", parts.attention_pairs, server.attention_pair_s.standard_error},
                          {"context_token", parts.context_sum, server.context_token_s.standard_error}};
  add_sequence_terms(server, parts.sequences, terms);
  double variance = 0;
  for (const Term& term : terms) variance += std::pow(term.factor * term.standard_error, 2);
  for (const NamedCorrelation& correlation : server.correlations) {
    const auto find = [&](const std::string& name) {
      return std::find_if(terms.begin(), terms.end(), [&](const Term& term) { return term.name == name; });
    };
    const auto a = find(correlation.a);
    const auto b = find(correlation.b);
    if (a != terms.end() && b != terms.end()) {
      variance += 2 * correlation.value * a->factor * a->standard_error * b->factor * b->standard_error;
    }
  }
  const double seconds = measured_elapsed_s(server, parts);
  return {seconds > 0 ? std::sqrt(std::max(variance, 0.0)) / seconds : 0,
          "standard errors and correlations of the measured step model"};
}

}  // namespace kneepoint::hw
