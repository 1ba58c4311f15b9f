// calibrate check-serving: simulates measured servers with their own clients and says
// how far off the predictions are.
#include <fmt/format.h>

#include <mutex>

#include "calibrate/calibrate_error.h"
#include "calibrate/command_line.h"
#include "calibrate/predict_serving.h"
#include "calibrate/serving_accuracy.h"
#include "calibrate/serving_rows.h"
#include "hw/spec_error.h"
#include "sim/on_cores.h"
#include "sim/progress.h"
#include "sim/usage_error.h"

namespace kneepoint::calibrate {
namespace {

constexpr const char* kHelp =
    "Simulates measured servers with their own clients and prints measured beside predicted.\n\n"
    "Takes tables with one server a row, told apart by their columns: closed loop (concurrency, silicon_ttft_ms, "
    "silicon_tpot_ms), open loop (rate_rps, ttft_mean, e2e_mean) and KV blocks (num_gpu_blocks); and folders of one run "
    "recorded request by request (meta.json, requests.jsonl). Server and client are set up from the columns; what a row "
    "does not say is its vLLM release's default. calibrate/README.md lists the columns.";

struct Job {
  std::size_t row = 0;
  std::size_t seed = 0;  // From 0.
};

// A row that cannot be set up is set aside with the reason; everything else that
// goes wrong is an error.
void set_aside_what_cannot_start(std::vector<CheckedRow>& rows) {
  for (CheckedRow& checked : rows) {
    if (!checked.row.not_run.empty()) {
      continue;
    }
    try {
      static_cast<void>(run_config_of(checked.row));
    } catch (const sim::UsageError& error) {
      checked.row.not_run = error.what();
    } catch (const hw::SpecError& error) {
      checked.row.not_run = error.what();
    }
  }
}

// Every (row, seed) by itself; where a result goes depends on nothing but its place.
void predict_rows(std::vector<CheckedRow>& rows, std::size_t seeds) {
  std::vector<Job> jobs;
  std::vector<std::vector<ServingPrediction>> predictions(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].row.not_run.empty()) {
      predictions[i].resize(draws_random_numbers(rows[i].row) ? seeds : 1);
      for (std::size_t seed = 0; seed < predictions[i].size(); ++seed) {
        jobs.push_back({i, seed});
      }
    }
  }
  sim::Progress progress(jobs.size(), "simulations");
  std::mutex drawing;
  sim::for_each_on_cores(static_cast<std::int64_t>(jobs.size()), 0, [&](std::int64_t at) {
    const Job& job = jobs[static_cast<std::size_t>(at)];
    predictions[job.row][job.seed] = predict_serving(rows[job.row].row, job.seed + 1);
    const std::lock_guard<std::mutex> lock(drawing);
    progress.one_over();
  });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!predictions[i].empty()) {
      rows[i].predicted = mean_of(predictions[i]);
    }
  }
}

}  // namespace

int run_check_serving(const Arguments& arguments) {
  CLI::App app(kHelp, "calibrate check-serving");
  app.footer("Example\n  calibrate check-serving closed_loop_concurrency.csv my-runs/ --format json");
  std::vector<std::string> paths;
  std::string format = "table";
  std::size_t seeds = 5;
  app.add_option("paths", paths, "tables, recorded runs, or folders of them")->required()->check(CLI::ExistingPath);
  app.add_option("--format", format, "table or json")->check(CLI::IsMember({"table", "json"}))->capture_default_str();
  app.add_option("--seeds", seeds, "runs of each client that draws random numbers; the mean is compared")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  if (const auto done = parse_arguments(app, arguments)) return *done;

  std::vector<CheckedRow> rows;
  for (const std::string& path : paths) {
    for (ServingRow& row : read_serving_rows(path)) {
      rows.push_back({std::move(row), std::nullopt});
    }
  }
  set_aside_what_cannot_start(rows);
  predict_rows(rows, seeds);
  fmt::print("{}", format == "json" ? serving_json(rows, static_cast<int>(seeds))
                                    : serving_table(rows, static_cast<int>(seeds)));
  return 0;
}

}  // namespace kneepoint::calibrate
