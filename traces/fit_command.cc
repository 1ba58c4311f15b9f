// traces fit: the process and the lengths that describe a trace.
#include <fmt/format.h>

#include "traces/command_line.h"
#include "traces/fit.h"
#include "traces/import.h"
#include "traces/subcommands.h"

namespace kneepoint::traces {
namespace {

void print_fit(const TraceFit& fit) {
  fmt::print("requests        {}\n", fit.num_requests);
  fmt::print("rate            {:.4f} requests/s\n", fit.rate);
  fmt::print("intervals       CV {:.3f}; median {:.3g}, p99 {:.3g}, p99.9 {:.3g} times the mean\n", fit.cv,
             fit.median_over_mean, fit.p99_over_mean, fit.p999_over_mean);
  fmt::print(
      "memory          correlation with the next interval {:.3f}; dispersion of counts {:.2f} (Poisson: 1)\n",
      fit.autocorrelation, fit.dispersion);
  if (fit.zero_intervals > 0) {
    fmt::print("                {} stamps equal to the one before, spread over the tick of their clock\n",
               fit.zero_intervals);
  }
  fmt::print("\n{:<16}{:>10}{:>22}{:>14}\n", "process", "shape", "log-likelihood/req.", "KS distance");
  for (const IntervalFit& row : fit.intervals) {
    fmt::print("{:<16}{:>10}{:>22.4f}{:>14.4f}\n", row.process,
               row.process == "poisson" ? "-" : fmt::format("{:.4g}", row.shape), row.log_likelihood,
               row.ks_distance);
  }
  if (!fit.states.empty())
    fmt::print("The intervals have a memory that no renewal process has: mmpp --states {}\n", fit.states);
  fmt::print("\nprompt tokens   {} (KS distance {:.4f})\n", fit.prompt.text, fit.prompt.ks_distance);
  fmt::print("output tokens   {} (KS distance {:.4f})\n", fit.output.text, fit.output.ks_distance);
  fmt::print("correlation     {:.3f} of their normal scores\n", fit.length_correlation);
  if (fit.prompt.ks_distance > 0.1 || fit.output.ks_distance > 0.1) {
    fmt::print("                not close: --lengths-from this trace draws its own pairs\n");
  }
  fmt::print("\n{}\n", fit.command());
}

}  // namespace

int run_fit(const Arguments& arguments) {
  std::string path;
  CLI::App app("Says which process and lengths describe a trace, ready to paste into `traces generate`.",
               "traces fit");
  app.footer("Example: traces fit conv.pb");
  app.add_option("FILE", path, "Trace to read, of any format known by its looks")->required();
  if (const auto done = parse_arguments(app, arguments)) return *done;
  const auto records = import_trace(path, {});
  print_fit(fit_trace(*records, path));
  return 0;
}

}  // namespace kneepoint::traces
