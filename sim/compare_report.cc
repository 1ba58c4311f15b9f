#include "sim/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "sim/options.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSignificance = 0.05;

// Six digits that mean something: what stands behind depends on the C library.
double six_digits(double value) {
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

// Four digits, more only where the number has more before its point.
std::string figure(double value) {
  const double size = std::abs(value);
  return size >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string signed_figure(double value) {
  return fmt::format("{}{}", value > 0 ? "+" : "", figure(value));
}

std::string p_text(const std::optional<double>& p) {
  return !p ? "n/a" : *p < 0.0001 ? "< 0.0001" : fmt::format("{:.4f}", *p);
}

std::string percent(const PairedTest& test) {
  if (test.mean_a == 0) {
    return "";
  }
  const double share = test.difference / std::abs(test.mean_a);
  return std::abs(share) < 10 ? fmt::format("{:+.1f} %", 100 * share) : fmt::format("x {:.4g}", 1 + share);
}

const char* verdict(const PairedTest& test) {
  if (!test.p_t) {
    return test.difference == 0 ? "equal" : "not tested";
  }
  return *test.p_t >= kSignificance ? "none shown" : test.difference > 0 ? "B higher" : "B lower";
}

// A folder's place says nothing about the system.
std::string base_name(const std::string& path) {
  const std::filesystem::path p(path);
  return (p.has_filename() ? p.filename() : p.parent_path().filename()).string();
}

void append_metric(std::string& text, const ComparedMetric& metric) {
  const PairedTest& t = metric.test;
  const std::string interval =
      t.low ? fmt::format("{} to {}", signed_figure(*t.low), signed_figure(*t.high)) : std::string("n/a");
  fmt::format_to(std::back_inserter(text), "{:<24}{:>11}{:>11}{:>11}{:>10}{:>27}{:>10}{:>10}  {}\n",
                 metric.name, figure(t.mean_a), figure(t.mean_b), signed_figure(t.difference), percent(t),
                 interval, p_text(t.p_t), p_text(t.p_wilcoxon), verdict(t));
}

Json or_null(const std::optional<double>& value) {
  return value ? Json(six_digits(*value)) : Json(nullptr);
}

}  // namespace

std::string compare_table(const Comparison& comparison) {
  std::string text =
      fmt::format("A  {}\nB  {}\n{} pair{} of runs with the same seed\n", comparison.a.name,
                  comparison.b.name, comparison.seeds.size(), comparison.seeds.size() == 1 ? "" : "s");
  const std::vector<ConfigurationDifference> differences = configuration_differences(comparison);
  if (!differences.empty()) {
    text += fmt::format("\n{:<34}{:<26}{}\n", "what differs", "A", "B");
    for (const ConfigurationDifference& d : differences) {
      text += fmt::format("{:<34}{:<26}{}\n", d.field, d.a, d.b);
    }
  }
  text += fmt::format("\n{:<24}{:>11}{:>11}{:>11}{:>10}{:>27}{:>10}{:>10}  {}\n", "mean over seeds", "A", "B",
                      "B - A", "", "95 % interval", "p, t", "p, ranks", "difference");
  for (const ComparedMetric& metric : comparison.metrics) {
    append_metric(text, metric);
  }
  const bool any_test =
      std::ranges::any_of(comparison.metrics, [](const ComparedMetric& m) { return m.test.p_t.has_value(); });
  text += any_test ? "\npaired t-test and Wilcoxon's signed ranks (exact), two-sided; a difference is shown "
                     "where p, t is below 0.05\n"
                   : "\n";
  for (const std::string& note : comparison.notes) {
    text += note + "\n";
  }
  return text;
}

std::string compare_json(const Comparison& comparison) {
  Json json;
  json["a"] = base_name(comparison.a.name);
  json["b"] = base_name(comparison.b.name);
  json["kneepoint_version"] = kVersion;
  json["seeds"] = comparison.seeds;
  json["configuration_differences"] = Json::array();
  for (const ConfigurationDifference& d : configuration_differences(comparison)) {
    json["configuration_differences"].push_back({{"field", d.field}, {"a", d.a}, {"b", d.b}});
  }
  json["metrics"] = Json::array();
  for (const ComparedMetric& metric : comparison.metrics) {
    const PairedTest& t = metric.test;
    json["metrics"].push_back({{"key", metric.key},
                               {"name", metric.name},
                               {"mean_a", t.mean_a},
                               {"mean_b", t.mean_b},
                               {"difference", t.difference},
                               {"difference_low_95", or_null(t.low)},
                               {"difference_high_95", or_null(t.high)},
                               {"p_paired_t", or_null(t.p_t)},
                               {"p_signed_ranks", or_null(t.p_wilcoxon)},
                               {"verdict", verdict(t)}});
  }
  json["notes"] = comparison.notes;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string compare_csv(const Comparison& comparison) {
  std::string text =
      "metric,pairs,mean_a,mean_b,difference,difference_low_95,difference_high_95,p_paired_t,p_signed_"
      "ranks\n";
  const auto optional = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.6g}", *value) : std::string();
  };
  for (const ComparedMetric& metric : comparison.metrics) {
    const PairedTest& t = metric.test;
    text += fmt::format("{},{},{},{},{},{},{},{},{}\n", metric.key, t.pairs, t.mean_a, t.mean_b, t.difference,
                        optional(t.low), optional(t.high), optional(t.p_t), optional(t.p_wilcoxon));
  }
  return text;
}

}  // namespace kneepoint::sim
