// calibrate fit-ops: rates of a GPU from measured operators.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/fit_forms.h"
#include "calibrate/measurement_file.h"
#include "calibrate/ops_accuracy.h"
#include "calibrate/ops_claims.h"
#include "calibrate/ops_table.h"
#include "hw/gpu_spec.h"
#include "hw/rates.h"
#include "sim/progress.h"
#include "traces/atomic_file.h"

namespace kneepoint::calibrate {

namespace {

constexpr double kPercent = 100;
constexpr double kStrongCorrelation = 0.95;

// Of all GPUs, without those that are not fitted.
std::size_t num_families(const OpsTable& table) {
  std::set<std::pair<std::string, std::string>> families;
  for (const OperatorRow& row : table) {
    if (claim_of(row).fitted) families.emplace(row.gpu, row.family);
  }
  return families.size();
}

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

namespace {

constexpr std::string_view kWrittenBy = "# Written by `calibrate fit-ops`";

bool is_measurement(const std::string& path) {
  return path.ends_with(".textproto");
}

void print_figures(const GpuMeasurement& measurement) {
  for (const MeasuredFigure& figure : measurement.figures) {
    constexpr double kMib = 1048576;
    const std::string size =
        figure.bytes > 0 ? fmt::format(", {:g} MiB", static_cast<double>(figure.bytes) / kMib) : "";
    fmt::print("  {:<24} {:>10.4g} {}\n", figure.what + size, figure.value, figure.unit);
  }
}

// Rows that were measured for comparison only.
void print_not_fitted(const OpsTable& rows, const hw::FittedTimes& times) {
  for (const OpsAccuracy& line : ops_accuracy(rows, times)) {
    if (line.reason.empty()) continue;
    fmt::print("\n{}: {} rows not fitted; predicted {:+.0f} % in the middle: {}\n", line.family,
               line.errors.count, kPercent * line.errors.bias, line.reason);
  }
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) fmt::print("warning: {}\n", warning);
}

// Replaces what fit-ops has written before; anything else is somebody's own.
void write_new(const std::string& path, const std::string& text) {
  std::ifstream old(path);
  std::string first;
  if (old && (!std::getline(old, first) || !first.starts_with(kWrittenBy))) {
    throw CalibrateError(
        fmt::format("{}: is there and was not written by fit-ops; name another with --out", path));
  }
  old.close();
  std::ofstream out(path);
  out << text;
  out.flush();
  if (!out) throw CalibrateError(fmt::format("{}: cannot be written", path));
  fmt::print("written: {}\n", path);
}

std::string rates_text(const hw::Rates& rates) {
  std::ostringstream text;
  hw::write_rates(text, rates);
  return text.str();
}

// "runs/my-gpu.measurement.textproto" -> "runs/my-gpu"; "runs/my-gpu.textproto" too.
std::string stem_of(std::string path) {
  for (const std::string_view end : {".textproto", ".measurement"}) {
    if (path.ends_with(end)) path.resize(path.size() - end.size());
  }
  return path;
}

std::string file_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// As `simulate` will read it.
hw::GpuSpec described_gpu(const MeasuredGpu& gpu, const std::string& name) {
  return hw::parse_gpu(gpu_description(gpu, name, name + ".rates.textproto"), name + ".textproto");
}

// What a fit of these rows cannot do without (hw/fitted_times.h).
void check_families(const hw::Rates& rates, const std::vector<std::string>& left_out) {
  for (const char* name : {"gemm_bf16", "decode_attention_bf16", "prefill_attention_bf16", "elementwise"}) {
    if (rates.find(name) != nullptr) continue;
    throw CalibrateError(
        fmt::format("too few shapes to describe this GPU: {}; measure again with a larger "
                    "--budget-seconds",
                    left_out.empty() ? name : fmt::format("{}", fmt::join(left_out, "; "))));
  }
}

void warn_about_errors(const hw::Rates& rates, std::vector<std::string>& warnings) {
  constexpr double kWide = 0.15;
  constexpr std::int64_t kRowsOfAParameter = 3;
  for (const hw::FamilyRates& family : rates.families) {
    const auto parameters = static_cast<std::int64_t>(family.rates.size());
    if (family.rows < kRowsOfAParameter * parameters) {
      warnings.push_back(fmt::format("too few shapes: {} rows for the {} rates of {}", family.rows,
                                     parameters, family.name));
    }
    if (family.median_error > kWide) {
      warnings.push_back(fmt::format("{}: the form misses half of its rows by more than {:.0f} %",
                                     family.name, kPercent * family.median_error));
    }
  }
}

int fit_measurement(const std::string& path, const std::string& gpu_name, const std::string& out_path,
                    FitOptions options) {
  const std::string stem = stem_of(out_path.empty() ? path : out_path);
  const std::string name = gpu_name.empty() ? file_name(stem) : "";
  const hw::GpuSpec known = gpu_name.empty() ? hw::GpuSpec{} : hw::load_gpu(gpu_name);
  const GpuMeasurement measurement = read_measurement(path, gpu_name.empty() ? name : known.name);
  const hw::GpuSpec gpu = gpu_name.empty() ? described_gpu(measurement.gpu, name) : known;
  std::vector<std::string> left_out;
  options.left_out = &left_out;
  const hw::Rates rates = fit_rates(gpu, measurement.rows, measurement.gpu.about, options);
  check_families(rates, left_out);
  std::vector<std::string> warnings = measurement.warnings;
  for (const std::string& family : left_out) warnings.push_back("too few shapes: " + family);
  warn_about_errors(rates, warnings);
  fmt::print("{} ({}): {} measured operators\n", measurement.gpu.about, gpu.name, measurement.rows.size());
  print_figures(measurement);
  for (const hw::FamilyRates& family : rates.families) print_family(family);
  print_not_fitted(measurement.rows, hw::FittedTimes(gpu, rates));
  fmt::print("\n");
  print_warnings(warnings);
  if (!gpu_name.empty()) {  // The data sheet is there; what is new are the rates.
    if (!out_path.empty()) write_new(out_path, rates_text(rates));
    return 0;
  }
  write_new(stem + ".rates.textproto", rates_text(rates));
  write_new(stem + ".textproto",
            gpu_description(measurement.gpu, name, file_name(stem) + ".rates.textproto"));
  fmt::print("next: simulate --gpu {}.textproto\n", stem);
  return 0;
}

int fit_tables(const std::vector<std::string>& paths, const std::string& gpu_name,
               const std::string& out_path, const std::string& source, FitOptions options) {
  if (gpu_name.empty())
    throw CalibrateError("--gpu: is needed for tables; name the GPU as its data sheet does");
  const hw::GpuSpec gpu = hw::load_gpu(gpu_name);
  const OpsTable table = read_ops(paths, gpu.name);
  sim::Progress progress(num_families(table), "families fitted");
  options.on_family = [&progress] { progress.one_over(); };
  const hw::Rates rates = fit_rates(gpu, table, source, options);
  progress.clear();
  fmt::print("{}: {} measured operators\n", gpu.name, table.size());
  for (const hw::FamilyRates& family : rates.families) print_family(family);
  if (out_path.empty()) return 0;
  std::ostringstream text;
  hw::write_rates(text, rates);
  traces::AtomicFile out(out_path);
  out.write(text.str());
  out.commit();
  return 0;
}

}  // namespace

int run_fit_ops(const Arguments& arguments) {
  CLI::App app(
      "Fits the operator forms to a measurement of gpu_microbench, or to tables of measured operators.\n"
      "A measurement becomes a GPU description with its rates beside it, for simulate --gpu:\n"
      "  calibrate fit-ops my-gpu.measurement.textproto",
      "calibrate fit-ops");
  std::vector<std::string> paths;
  std::string gpu_name;
  std::string out_path;
  std::string source = "NVIDIA aiconfigurator tables (Apache-2.0), vLLM 0.24 kernels, CUDA graph replay";
  FitOptions options;
  app.footer("Example\n  calibrate fit-ops measured/ --gpu h100 --out h100.textproto");
  app.add_option("paths", paths, "a measurement (.textproto), or folders or files of tables, GPU_KIND.csv")
      ->required();
  app.add_option(
      "--gpu", gpu_name,
      "data sheet to fit against: a name under hw/gpus or a file; needed for tables, else the driver's "
      "figures are taken");
  app.add_option(
      "--out", out_path,
      "what to write: of a measurement my-gpu.textproto (default: beside it), with --gpu or tables the "
      "rates file");
  app.add_option("--source", source, "where tables come from, for the file")->capture_default_str();
  app.add_option("--starts", options.num_starts, "starting points of each fit")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  if (const auto done = parse_arguments(app, arguments)) return *done;
  if (std::ranges::none_of(paths, &is_measurement))
    return fit_tables(paths, gpu_name, out_path, source, options);
  if (paths.size() > 1) throw CalibrateError("one measurement at a time: each is of one GPU");
  return fit_measurement(paths.front(), gpu_name, out_path, options);
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
  options.on_family = [&progress] { progress.one_over(); };
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
