// calibrate check-steps: whether we model a server's decisions, before anyone
// believes a number.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "calibrate/command_line.h"
#include "calibrate/log_replay.h"
#include "calibrate/run_input.h"
#include "calibrate/subcommands.h"

namespace kneepoint::calibrate {

namespace {

void print_mismatch(const Run& run, const StepMismatch& mismatch) {
  fmt::print("{}: step {} (iteration {}, log line {}) differs\n", run.files.name, mismatch.index,
             mismatch.logged.iteration, mismatch.logged.line);
  fmt::print("  log   {}\n", describe(mismatch.logged));
  fmt::print("  ours  {}\n", mismatch.ours ? describe(*mismatch.ours) : "nothing to run");
  fmt::print("  rule  {}\n", mismatch.rule);
}

bool check_run(const RunFiles& files) {
  const Run run = read_run(files);
  for (const std::string& what : run.cannot) fmt::print("{}: cannot be known: {}\n", files.name, what);
  const LogReplay replay = replay_log(run);
  if (!replay.inferred.empty()) {
    std::int64_t blocks = 0;
    for (const InferredHit& hit : replay.inferred) blocks += hit.blocks;
    fmt::print("{}: {} prefix hits ({} blocks) inferred to be on blocks of an earlier run:", files.name,
               replay.inferred.size(), blocks);
    for (const InferredHit& hit : replay.inferred) fmt::print(" request {} ({})", hit.request, hit.blocks);
    fmt::print("\n");
  }
  if (replay.mismatch) {
    print_mismatch(run, *replay.mismatch);
  } else if (replay.unfinished > 0) {
    fmt::print("{}: the log ends while {} requests are unfinished: is it cut?\n", files.name,
               replay.unfinished);
  }
  fmt::print("{}: {} of {} steps as predicted\n", files.name, replay.steps.size(), replay.logged_steps);
  return replay.agrees();
}

}  // namespace

int run_check_steps(const Arguments& arguments) {
  CLI::App app("whether a server's logged steps follow from the rules, step for step",
               "calibrate check-steps");
  std::vector<std::string> runs;
  app.add_option("--run", runs, "log=FILE[,log=FILE][,client=FILE][,trace=FILE][,cache=FILE]; repeatable")
      ->required();
  if (const auto status = parse_arguments(app, arguments)) return *status;
  std::size_t agreed = 0;
  for (const std::string& text : runs) agreed += check_run(parse_run_argument(text)) ? 1 : 0;
  if (runs.size() > 1) fmt::print("{} of {} runs agree on every step\n", agreed, runs.size());
  return agreed == runs.size() ? 0 : 1;
}

}  // namespace kneepoint::calibrate
