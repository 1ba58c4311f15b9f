#include "sim/compare_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "sim/command_line.h"
#include "sim/compare.h"
#include "sim/compare_report.h"
#include "sim/output_files.h"
#include "sim/progress.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

struct Options {
  std::vector<std::string> sides;
  CompareOptions compare;
  std::string out;
  std::string format = "table";
};

void declare(CLI::App& app, Options& options) {
  app.add_option(
      "SIDES", options.sides,
      "two of: a result folder or result.json, a folder of result folders of several seeds, a study in "
      "which only the seed varies, a run config (.textproto), which is run");
  app.add_option("--seeds", options.compare.num_seeds, "runs of each run config (default 10)")
      ->check(CLI::Range(std::int64_t{1}, kMostPairs));
  app.add_option("--first-seed", options.compare.first_seed,
                 "the seeds are this one and the next (default 0)");
  app.add_option("--threads", options.compare.threads, "default: one per core; changes no result")
      ->check(CLI::Range(1, 4096));
  app.add_option("--out", options.out, "folder for compare.json, compare.csv and checksums.sha256");
  app.add_option("--format", options.format, "table (default), json, csv")
      ->check(CLI::IsMember({"table", "json", "csv"}));
  app.footer(
      "Example: simulate compare before.textproto after.textproto --seeds 10\n"
      "         simulate compare results/before results/after");
}

}  // namespace

int run_compare(std::span<const std::string> arguments) {
  Options options;
  CLI::App app("Two results or configurations side by side, run by run with the same seed.",
               "simulate compare");
  declare(app, options);
  if (!parse_arguments(app, "compare", arguments)) {
    return 0;
  }
  if (options.sides.size() != 2) {
    throw UsageError(
        fmt::format("compare: {} sides given; two are needed, as in: simulate compare before after",
                    options.sides.size()));
  }
  const bool all_run = std::ranges::all_of(
      options.sides, [](const std::string& side) { return side.ends_with(".textproto"); });
  if (app.count("--seeds") + app.count("--first-seed") > 0 && !all_run) {
    throw UsageError("compare: --seeds and --first-seed are for two run configs; results have their seeds");
  }
  OutputFiles files(options.out);
  std::optional<Progress> progress;
  const Comparison comparison = compare(
      options.sides[0], options.sides[1], options.compare,
      [&](std::int64_t runs) { progress.emplace(static_cast<std::uint64_t>(runs), "runs"); },
      [&] { progress->one_over(); });
  progress.reset();
  if (files.has_folder()) {
    files.create("compare.json").write(compare_json(comparison));
    files.create("compare.csv").write(compare_csv(comparison));
    files.commit();
  }
  write_stdout(options.format == "json"  ? compare_json(comparison)
               : options.format == "csv" ? compare_csv(comparison)
                                         : compare_table(comparison));
  return 0;
}

}  // namespace kneepoint::sim
