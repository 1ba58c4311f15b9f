// calibrate fit-ops: rates of a GPU from measured operators.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <set>
#include <utility>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/fit_forms.h"
#include "calibrate/ops_claims.h"
#include "calibrate/ops_table.h"
#include "hw/gpu_spec.h"
#include "hw/rates.h"
#include "sim/progress.h"

namespace kneepoint::calibrate {

namespace {

constexpr double kPercent = 100;

// Of all GPUs, without those that are not fitted.
std::size_t num_families(const OpsTable& table) {
  std::set<std::pair<std::string, std::string>> families;
  for (const OperatorRow& row : table) {
    if (claim_of(row).fitted) families.emplace(row.gpu, row.family);
  }
  return families.size();
}
constexpr double kStrongCorrelation = 0.95;

void print_family(const hw::FamilyRates& family) {
  fmt::print("\n{}: {} rows, |error| {:.1f} % median, {:.1f} % p90\n", family.name, family.rows,
             kPercent * family.median_error, kPercent * family.p90_error);
  for (const hw::Rate& rate : family.rates) {
    fmt::print("  {:<18} {:>12.6g} {:<6} +- {:<10.3g} within {:g} to {:g}; {}\n", rate.name, rate.value,
               rate.unit, rate.standard_error, rate.lower, rate.upper, rate.source);
  }
  std::size_t at = 0;
  for (std::size_t i = 1; i < family.rates.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j, ++at) {
      const double correlation = family.correlations[at];
      if (std::abs(correlation) < kStrongCorrelation) continue;
      fmt::print("  {} and {} are hardly told apart: correlation {:+.2f}\n", family.rates[i].name,
                 family.rates[j].name, correlation);
    }
  }
}

}  // namespace

int run_fit_ops(const Arguments& arguments) {
  CLI::App app("Fits the operator forms to measured operators and writes a rates file", "calibrate fit-ops");
  std::vector<std::string> paths;
  std::string gpu_name;
  std::string out_path;
  std::string source = "NVIDIA aiconfigurator tables (Apache-2.0), vLLM 0.24 kernels, CUDA graph replay";
  FitOptions options;
  app.footer("Example\n  calibrate fit-ops measured/ --gpu h100 --out h100.textproto");
  app.add_option("paths", paths, "folders or files of measured operators, GPU_KIND.csv")->required();
  app.add_option("--gpu", gpu_name, "GPU to fit, as in its data sheet under hw/gpus")->required();
  app.add_option("--out", out_path, "rates file to write");
  app.add_option("--source", source, "where the measurements come from, for the file")->capture_default_str();
  app.add_option("--starts", options.num_starts, "starting points of each fit")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  if (const auto done = parse_arguments(app, arguments)) return *done;

  const hw::GpuSpec gpu = hw::load_gpu(gpu_name);
  const OpsTable table = read_ops(paths, gpu.name);
  sim::Progress progress(num_families(table), "families fitted");
  options.on_family = [&progress] { progress.one_more(); };
  const hw::Rates rates = fit_rates(gpu, table, source, options);
  progress.clear();
  fmt::print("{}: {} measured operators\n", gpu.name, table.size());
  for (const hw::FamilyRates& family : rates.families) print_family(family);
  if (out_path.empty()) return 0;
  std::ofstream out(out_path);
  hw::write_rates(out, rates);
  out.flush();
  if (!out) throw CalibrateError(fmt::format("{}: cannot be written", out_path));
  return 0;
}

namespace {

// Another compiler's mathematics may end a fit elsewhere in the same flat valley.
bool same_rate(const hw::Rate& fitted, const hw::Rate& kept) {
  constexpr double kRelative = 1e-2;
  const double allowed = std::max(kRelative * std::abs(kept.value), kept.standard_error / 2);
  return fitted.unit == kept.unit && std::abs(fitted.value - kept.value) <= allowed;
}

// Prints each difference; their number.
int print_differences(const hw::Rates& fitted, const hw::Rates& kept) {
  int count = 0;
  for (const hw::FamilyRates& family : fitted.families) {
    const hw::FamilyRates& other = kept.family(family.name);
    for (std::size_t i = 0; i < family.rates.size(); ++i) {
      const hw::Rate& rate = family.rates[i];
      const bool there = i < other.rates.size() && other.rates[i].name == rate.name;
      if (there && same_rate(rate, other.rates[i])) continue;
      ++count;
      fmt::print("{}: {} {}: refitted {:.6g}, bundled {}\n", kept.gpu, family.name, rate.name, rate.value,
                 there ? fmt::format("{:.6g}", other.rates[i].value) : "none");
    }
  }
  return count;
}

}  // namespace

int run_check_rates(const Arguments& arguments) {
  CLI::App app("Refits the bundled rates and compares; exit status 1 if they differ",
               "calibrate check-rates");
  app.footer("Example\n  calibrate check-rates measured/");
  std::vector<std::string> paths;
  app.add_option("paths", paths, "folders or files of measured operators, GPU_KIND.csv")->required();
  if (const auto done = parse_arguments(app, arguments)) return *done;

  const OpsTable table = read_ops(paths, "");
  sim::Progress progress(num_families(table), "families fitted");
  FitOptions options;
  options.on_family = [&progress] { progress.one_more(); };
  int differences = 0;
  for (const std::string& name : hw::rates_names()) {
    const hw::Rates kept = hw::load_rates(name);
    const hw::Rates fitted = fit_rates(hw::load_gpu(name), table, kept.source, options);
    progress.clear();
    const int found = print_differences(fitted, kept);
    fmt::print("{}: {} families refitted, {} rates differ\n", name, fitted.families.size(), found);
    differences += found;
  }
  return differences == 0 ? 0 : 1;
}

}  // namespace kneepoint::calibrate
