// calibrate check-ops: how well rates predict a folder of measured operators.
#include <fmt/format.h>

#include <optional>
#include <sstream>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/ops_accuracy.h"
#include "calibrate/ops_claims.h"
#include "hw/gpu_spec.h"
#include "hw/rates.h"
#include "traces/atomic_file.h"

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

struct Describe {
  std::string operator()(const hw::GemmShape& s) const {
    return fmt::format("m={} n={} k={}", s.m, s.n, s.k);
  }
  std::string operator()(const hw::DecodeAttentionShape& s) const {
    return fmt::format("batch={} context={} heads={} kv_heads={}", s.count, s.context_max, s.num_heads,
                       s.num_kv_heads);
  }
  std::string operator()(const hw::PrefillAttentionShape& s) const {
    return fmt::format("batch={} tokens={} heads={} kv_heads={}", s.batch, s.num_tokens, s.num_heads,
                       s.num_kv_heads);
  }
  std::string operator()(const hw::MoeShape& s) const {
    return fmt::format("tokens={} hidden={} inter={} top_k={} experts={} tp={} ep={} balanced={:d}",
                       s.num_tokens, s.hidden_size, s.intermediate_size, s.top_k, s.num_experts, s.moe_tp,
                       s.moe_ep, s.balanced);
  }
  std::string operator()(const hw::CollectiveShape& s) const {
    return fmt::format("gpus={} bytes={}", s.num_gpus, s.message_bytes);
  }
  std::string operator()(const hw::ElementwiseShape& s) const { return fmt::format("bytes={}", s.bytes); }
};

void write_row(std::ostream& out, const OperatorRow& row, double predicted) {
  out << fmt::format("{},{},{},{:.6g},{:.6g},{:+.4f},{}\n", row.gpu, row.family,
                     std::visit(Describe{}, row.shape), row.us, predicted, predicted / row.us - 1,
                     claim_of(row).reason.empty() ? "claimed" : "not claimed");
}

}  // namespace

int run_check_ops(const Arguments& arguments) {
  CLI::App app("Predicts measured operators and prints the errors by GPU and family", "calibrate check-ops");
  app.footer("Example\n  calibrate check-ops measured/ --gpu h100 --rows rows.csv");
  std::vector<std::string> paths;
  std::string gpu_name;
  std::string rates_name;
  app.add_option("paths", paths, "folders or files of measured operators, GPU_KIND.csv")->required();
  app.add_option("--gpu", gpu_name, "only this GPU; default: all in the tables");
  app.add_option("--rates", rates_name, "rates file in place of the bundled one; needs --gpu");
  std::string rows_path;
  app.add_option("--rows", rows_path, "CSV file to write, every row with its prediction");
  if (const auto done = parse_arguments(app, arguments)) return *done;
  if (!rates_name.empty() && gpu_name.empty()) {
    throw CalibrateError("--rates: one file is of one GPU; name it with --gpu");
  }

  const OpsTable table = read_ops(paths, gpu_name);
  std::optional<traces::AtomicFile> rows_file;  // First: a path that cannot be written is told before the work.
  if (!rows_path.empty()) rows_file.emplace(rows_path);
  std::ostringstream rows_out;
  rows_out << "gpu,family,shape,measured_us,predicted_us,error,claim\n";
  std::vector<OpsAccuracy> lines;
  for (const std::string& name : gpus_of(table)) {
    OpsTable rows;
    for (const OperatorRow& row : table) {
      if (row.gpu == name) rows.push_back(row);
    }
    const hw::FittedTimes times(hw::load_gpu(name), hw::load_rates(rates_name.empty() ? name : rates_name));
    if (!rows_path.empty()) {
      for (const OperatorRow& row : rows) write_row(rows_out, row, predicted_us(times, row));
    }
    for (OpsAccuracy& line : ops_accuracy(rows, times)) lines.push_back(std::move(line));
  }
  if (rows_file) {
    rows_file->write(rows_out.str());
    rows_file->commit();
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
