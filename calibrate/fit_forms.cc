#include "calibrate/fit_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>

#include "calibrate/calibrate_error.h"
#include "calibrate/error_summary.h"
#include "calibrate/fit_least_squares.h"
#include "calibrate/ops_claims.h"
#include "hw/forms_attention.h"
#include "hw/forms_collective.h"
#include "hw/forms_elementwise.h"
#include "hw/forms_gemm.h"
#include "hw/forms_moe.h"
#include "hw/operator_graph.h"
#include "hw/roof.h"

namespace kneepoint::calibrate {

namespace {

using hw::FamilyRates;
using hw::FittedRange;
using hw::ParameterSpec;
using hw::Rate;
using Rows = std::vector<const OperatorRow*>;

// Parameters that are not fitted but tried: tile sizes of kernels.
struct Choice {
  std::string_view parameter;
  std::vector<double> values;
};

template <class Params>
struct Form {
  std::span<const ParameterSpec<Params>> table;
  std::function<double(const OperatorRow&, const Params&)> us;
  std::vector<Choice> choices;
  std::map<std::string_view, double> assumed;  // Parameters that rows cannot tell.
};

constexpr double kRobustScale = 0.06;

template <class Params>
Params params_from(const Form<Params>& form, const Eigen::VectorXd& values) {
  Params params;
  for (std::size_t i = 0; i < form.table.size(); ++i) {
    params.*(form.table[i].member) = values[static_cast<Eigen::Index>(i)];
  }
  return params;
}

template <class Params>
FitProblem problem_of(const Form<Params>& form, const Rows& rows) {
  const auto n = static_cast<Eigen::Index>(form.table.size());
  FitProblem problem;
  problem.lower.resize(n);
  problem.upper.resize(n);
  problem.scale = kRobustScale;
  for (Eigen::Index i = 0; i < n; ++i) {
    const ParameterSpec<Params>& spec = form.table[static_cast<std::size_t>(i)];
    problem.lower[i] = spec.lower;
    problem.upper[i] = spec.upper;
    const auto assumed = form.assumed.find(spec.name);
    if (assumed != form.assumed.end()) problem.lower[i] = problem.upper[i] = assumed->second;
  }
  problem.measured.resize(static_cast<Eigen::Index>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) problem.measured[static_cast<Eigen::Index>(i)] = rows[i]->us;
  problem.predict = [&form, &rows](const Eigen::VectorXd& values, Eigen::VectorXd& predicted) {
    const Params params = params_from(form, values);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      predicted[static_cast<Eigen::Index>(i)] = form.us(*rows[i], params);
    }
  };
  return problem;
}

template <class Params>
Eigen::Index index_of(const Form<Params>& form, std::string_view name) {
  const auto found = std::ranges::find(form.table, name, &ParameterSpec<Params>::name);
  return found - form.table.begin();
}

// Tries every combination of the choices with one quick fit each and leaves the
// best one fixed in `problem`.
template <class Params>
void choose(const Form<Params>& form, FitProblem& problem, Eigen::VectorXd& start) {
  std::vector<std::size_t> at(form.choices.size(), 0);
  double best_cost = HUGE_VAL;
  FitProblem best = problem;
  Eigen::VectorXd best_start = start;
  const auto next = [&] {
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (++at[i] < form.choices[i].values.size()) return true;
      at[i] = 0;
    }
    return false;
  };
  do {
    FitProblem tried = problem;
    Eigen::VectorXd from = start;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const Eigen::Index parameter = index_of(form, form.choices[i].parameter);
      from[parameter] = tried.lower[parameter] = tried.upper[parameter] = form.choices[i].values[at[i]];
    }
    const FitResult fit = fit_from(tried, from);
    if (fit.cost < best_cost) {
      best_cost = fit.cost;
      best = tried;
      best_start = fit.parameters;
    }
  } while (next());
  problem = best;
  start = best_start;
}

std::string_view source_of(bool chosen, bool assumed, const Rate& rate) {
  if (chosen) return "chosen: least cost of those tried";
  if (assumed) return "assumed: the rows cannot tell it";
  constexpr double kNear = 1e-5;
  if (rate.value <= rate.lower * (1 + kNear) || rate.value >= rate.upper * (1 - kNear)) {
    return "fitted, at its bound";
  }
  return rate.standard_error > 0 ? "fitted" : "where the fit began or left it: hardly a row depends on it";
}

std::vector<FittedRange> ranges_of(const Rows& rows);

template <class Params>
FamilyRates fit_family(std::string_view name, const Form<Params>& form, const Rows& rows,
                       const FitOptions& options) {
  FitProblem problem = problem_of(form, rows);
  const auto n = static_cast<Eigen::Index>(form.table.size());
  Eigen::VectorXd start(n);
  for (Eigen::Index i = 0; i < n; ++i) start[i] = form.table[static_cast<std::size_t>(i)].start;
  choose(form, problem, start);
  const FitResult fit = fit_robust(problem, start, options.num_starts);

  FamilyRates family;
  family.name = name;
  family.rows = static_cast<std::int64_t>(rows.size());
  family.ranges = ranges_of(rows);
  std::vector<double> errors;
  const Params params = params_from(form, fit.parameters);
  for (const OperatorRow* row : rows) errors.push_back(form.us(*row, params) / row->us - 1);
  const ErrorSummary summary = summarise(errors);
  family.median_error = summary.median;
  family.p90_error = summary.p90;
  for (Eigen::Index i = 0; i < n; ++i) {
    const ParameterSpec<Params>& spec = form.table[static_cast<std::size_t>(i)];
    const bool chosen = std::ranges::find(form.choices, spec.name, &Choice::parameter) != form.choices.end();
    const bool assumed = form.assumed.contains(spec.name);
    Rate rate{std::string(spec.name), fit.parameters[i],     std::string(spec.unit), spec.lower, spec.upper,
              fit.standard_error[i],  std::string()};
    rate.source = source_of(chosen, assumed, rate);
    family.rates.push_back(std::move(rate));
    for (Eigen::Index j = 0; j < i; ++j)
      family.correlations.push_back(std::clamp(fit.correlation(i, j), -1.0, 1.0));
  }
  return family;
}

// Ranges: what each quantity spans, under the names that FittedTimes asks for.

struct Spans {
  std::vector<FittedRange> ranges;
  void add(std::string_view quantity, std::int64_t value) {
    const auto number = static_cast<double>(value);
    for (FittedRange& range : ranges) {
      if (range.quantity != quantity) continue;
      range.min = std::min(range.min, number);
      range.max = std::max(range.max, number);
      return;
    }
    ranges.push_back({.quantity = std::string(quantity), .min = number, .max = number, .because = ""});
  }
  void operator()(const hw::GemmShape& s) {
    add("m", s.m);
    add("n", s.n);
    add("k", s.k);
  }
  void operator()(const hw::DecodeAttentionShape& s) {
    add("sequences", s.count);
    add("context", s.context_max);
    add("query heads", s.num_heads);
    add("KV heads", s.num_kv_heads);
    add("query heads a KV head", s.num_heads / s.num_kv_heads);
  }
  void operator()(const hw::PrefillAttentionShape& s) {
    add("sequences", s.batch);
    add("tokens", s.num_tokens);
    add("query heads", s.num_heads);
    add("KV heads", s.num_kv_heads);
  }
  void operator()(const hw::MoeShape& s) {
    add("tokens", s.num_tokens);
    add("hidden size", s.hidden_size);
    add("intermediate size", s.intermediate_size);
    add("top_k", s.top_k);
    add("experts", s.num_experts);
    add("MoE TP", s.moe_tp);
    add("MoE EP", s.moe_ep);
  }
  void operator()(const hw::CollectiveShape& s) { add("message bytes", s.message_bytes); }
  void operator()(const hw::ElementwiseShape& s) { add("bytes", s.bytes); }
};

// Outputs of a product are tiles that do not know of each other: past the waves that
// fill the GPU, twice the outputs are twice the waves and twice the weights to read.
// Every LM head is out there.
void claim_more(FittedRange& range) {
  constexpr double kFilled = 32768;     // 256 tiles of 128 outputs, on 142 SMs at most, one token.
  constexpr double kClaimed = 262144;   // The largest vocabularies.
  if (range.quantity != "n" || range.max < kFilled || range.max >= kClaimed) return;
  range.claimed_max = kClaimed;
  range.because = "tiles of outputs are independent: beyond a filled GPU time is linear in n";
}

std::vector<FittedRange> ranges_of(const Rows& rows) {
  Spans spans;
  for (const OperatorRow* row : rows) std::visit(spans, row->shape);
  // A new token's context, a small chunk, a short message cost a launch and no
  // less: the forms reach down to one by themselves.
  for (FittedRange& range : spans.ranges) {
    const bool from_one = range.quantity == "tokens" || range.quantity == "context" ||
                          range.quantity == "message bytes" || range.quantity == "query heads a KV head";
    if (from_one) range.min = 1;
    claim_more(range);
  }
  return spans.ranges;
}

// The families.

Form<hw::GemmBf16Params> gemm_bf16_form(const hw::Roof& roof) {
  return {hw::gemm_bf16_parameters(),
          [&roof](const OperatorRow& row, const hw::GemmBf16Params& params) {
            return hw::gemm_bf16_us(std::get<hw::GemmShape>(row.shape), 2, params, roof, row.cache);
          },
          {},
          {}};
}

Form<hw::GemmFp8Params> gemm_fp8_form(const hw::Roof& roof) {
  return {hw::gemm_fp8_parameters(),
          [&roof](const OperatorRow& row, const hw::GemmFp8Params& params) {
            return hw::gemm_fp8_us(std::get<hw::GemmShape>(row.shape), params, roof, row.cache);
          },
          {{"tile_n64", {64, 128}}, {"tile_m128", {64, 128}}, {"tile_n128", {128}}},
          {{"quant_launch", 1.5}}};
}

Form<hw::DecodeAttentionParams> decode_form(const hw::Roof& roof) {
  return {hw::decode_attention_parameters(),
          [&roof](const OperatorRow& row, const hw::DecodeAttentionParams& params) {
            return hw::decode_attention_us(std::get<hw::DecodeAttentionShape>(row.shape), params, roof,
                                           row.cache);
          },
          {},
          {}};
}

Form<hw::PrefillAttentionParams> prefill_form(const hw::Roof& roof) {
  return {hw::prefill_attention_parameters(),
          [&roof](const OperatorRow& row, const hw::PrefillAttentionParams& params) {
            return hw::prefill_attention_us(std::get<hw::PrefillAttentionShape>(row.shape), params, roof,
                                            row.cache);
          },
          {{"block_q", {64, 128}}, {"block_kv", {64, 128}}, {"pack", {0, 1}}},
          {}};
}

Form<hw::MoeParams> moe_form(const hw::Roof& roof) {
  return {hw::moe_parameters(),
          [&roof](const OperatorRow& row, const hw::MoeParams& params) {
            const auto& shape = std::get<hw::MoeShape>(row.shape);
            const double weight_bytes = shape.precision == hw::Precision::kFp8 ? 1 : 2;
            return hw::moe_us(shape, weight_bytes, params, roof, row.cache);
          },
          {{"l2_sharpness", {8, 16}}},
          {}};
}

Form<hw::CollectiveParams> collective_form(double link_bytes_per_us) {
  return {hw::collective_parameters(),
          [link_bytes_per_us](const OperatorRow& row, const hw::CollectiveParams& params) {
            const auto& shape = std::get<hw::CollectiveShape>(row.shape);
            return hw::collective_us(static_cast<double>(shape.message_bytes),
                                     hw::collective_cost(shape).network_bytes, params, link_bytes_per_us);
          },
          {},
          {}};
}

Form<hw::ElementwiseParams> elementwise_form(const hw::Roof& roof) {
  return {hw::elementwise_parameters(),
          [&roof](const OperatorRow& row, const hw::ElementwiseParams& params) {
            const auto bytes = static_cast<double>(std::get<hw::ElementwiseShape>(row.shape).bytes);
            return hw::elementwise_us(bytes, params, roof);
          },
          {},
          {}};
}

// The tables lack small operators by themselves; the assumption is stated where it
// is used, in the rates file.
FamilyRates elementwise_family(const FamilyRates& gemm) {
  const auto bandwidth = std::ranges::find(gemm.rates, "bandwidth", &Rate::name);
  FamilyRates family{.name = "elementwise", .source = "derived, no rows of its own"};
  const auto table = hw::elementwise_parameters();
  family.rates.push_back({std::string(table[0].name), table[0].start, std::string(table[0].unit),
                          table[0].lower, table[0].upper, 0,
                          "assumed: the least that a kernel in a CUDA graph takes"});
  family.rates.push_back({std::string(table[1].name), bandwidth->value, std::string(table[1].unit),
                          table[1].lower, table[1].upper, bandwidth->standard_error, "that of gemm_bf16"});
  family.correlations.push_back(0);
  return family;
}

class RatesFit {
 public:
  RatesFit(const hw::GpuSpec& gpu, const OpsTable& table, const FitOptions& options)
      : roof_(hw::roof_of(gpu)), link_bytes_per_us_(gpu.link_bytes_per_s * 1e-6), options_(options) {
    for (const OperatorRow& row : table) {
      if (row.gpu == gpu.name && claim_of(row).fitted) rows_[row.family].push_back(&row);
    }
  }

  /// Throws CalibrateError if the family has too few rows.
  [[nodiscard]] FamilyRates family(const std::string& name) const {
    if (name.starts_with("gemm_bf16")) return fit(name, gemm_bf16_form(roof_));
    if (name.starts_with("gemm_fp8")) return fit(name, gemm_fp8_form(roof_));
    if (name.starts_with("decode")) return fit(name, decode_form(roof_));
    if (name.starts_with("prefill")) return fit(name, prefill_form(roof_));
    if (name.starts_with("moe")) return fit(name, moe_form(roof_));
    if (name == "elementwise") return fit(name, elementwise_form(roof_));
    return fit(name, collective_form(link_bytes_per_us_));
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, rows] : rows_) names.push_back(name);
    return names;
  }

 private:
  template <class Params>
  [[nodiscard]] FamilyRates fit(const std::string& name, const Form<Params>& form) const {
    const Rows& rows = rows_.at(name);
    if (rows.size() < form.table.size()) {
      throw CalibrateError(
          fmt::format("family {}: {} rows cannot tell {} parameters", name, rows.size(), form.table.size()));
    }
    FamilyRates family = fit_family(name, form, rows, options_);
    const std::string& where = rows.front()->where;
    family.source = where.substr(0, where.find(','));
    return family;
  }

  hw::Roof roof_;
  double link_bytes_per_us_;
  FitOptions options_;
  std::map<std::string, Rows> rows_;  // By family.
};

}  // namespace

hw::Rates fit_rates(const hw::GpuSpec& gpu, const OpsTable& table, const std::string& source,
                    const FitOptions& options) {
  const RatesFit fit(gpu, table, options);
  hw::Rates rates{.label = gpu.name, .gpu = gpu.name, .source = source};
  for (const std::string& name : fit.names()) {
    try {
      rates.families.push_back(fit.family(name));
    } catch (const CalibrateError& error) {
      if (options.left_out == nullptr) throw;
      options.left_out->emplace_back(error.what());
    }
  }
  const FamilyRates* gemm = rates.find("gemm_bf16");
  if (gemm != nullptr && rates.find("elementwise") == nullptr) {
    rates.families.push_back(elementwise_family(*gemm));
  }
  return rates;
}

}  // namespace kneepoint::calibrate
