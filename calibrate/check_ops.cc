// calibrate check-ops: how well rates predict a folder of measured operators.
#include <fmt/format.h>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/ops_accuracy.h"
#include "hw/gpu_spec.h"
#include "hw/rates.h"

namespace kneepoint::calibrate {

namespace {

void print_line(const OpsAccuracy& line) {
  constexpr double kPercent = 100;
  const ErrorSummary& e = line.errors;
  fmt::print("{:<6} {:<22} {:>6} {:>8.1f} {:>8.1f} {:>8.1f} {:>+8.1f}{}\n", line.gpu, line.family, e.count,
             kPercent * e.median, kPercent * e.p90, kPercent * e.worst, kPercent * e.bias,
             line.reason.empty() ? "" : "  " + line.reason);
}

void print_head(std::string_view title) {
  fmt::print("{}\n{:<6} {:<22} {:>6} {:>8} {:>8} {:>8} {:>8}\n", title, "gpu", "family", "rows", "median",
             "p90", "worst", "bias");
}

}  // namespace

int run_check_ops(const Arguments& arguments) {
  CLI::App app("Predicts measured operators and prints the errors by GPU and family", "calibrate check-ops");
  std::vector<std::string> paths;
  std::string gpu_name;
  std::string rates_name;
  app.add_option("paths", paths, "folders or files of measured operators, GPU_KIND.csv")->required();
  app.add_option("--gpu", gpu_name, "only this GPU; default: all in the tables");
  app.add_option("--rates", rates_name, "rates file in place of the bundled one; needs --gpu");
  if (const auto done = parse_arguments(app, arguments)) return *done;
  if (!rates_name.empty() && gpu_name.empty()) {
    throw CalibrateError("--rates: one file is of one GPU; name it with --gpu");
  }

  const OpsTable table = read_ops(paths, gpu_name);
  std::vector<OpsAccuracy> lines;
  for (const std::string& name : gpus_of(table)) {
    OpsTable rows;
    for (const OperatorRow& row : table) {
      if (row.gpu == name) rows.push_back(row);
    }
    const hw::FittedTimes times(hw::load_gpu(name), hw::load_rates(rates_name.empty() ? name : rates_name));
    for (OpsAccuracy& line : ops_accuracy(rows, times)) lines.push_back(std::move(line));
  }
  print_head("claimed; |predicted / measured - 1| and its signed median, in %");
  for (const OpsAccuracy& line : lines) {
    if (line.reason.empty()) print_line(line);
  }
  print_head("\nnot claimed, and why");
  for (const OpsAccuracy& line : lines) {
    if (!line.reason.empty()) print_line(line);
  }
  return 0;
}

}  // namespace kneepoint::calibrate
