#include "sim/study_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <vector>

#include "sim/command_line.h"
#include "sim/output_files.h"
#include "sim/study_merge.h"
#include "sim/study_points.h"
#include "sim/study_run.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string file;
  std::string out;
  std::string shard = "1/1";
  std::string merge;
  std::string verify;
  int threads = 0;
  bool list = false;
};

constexpr int kIncomplete = 1;

void declare(CLI::App& app, Options& options) {
  app.add_option("file", options.file, "the study, as sim/study.proto says");
  app.add_option("--out", options.out, "folder of results (default: the file's name with -results)");
  app.add_option("--shard", options.shard, "do the i-th of n parts only, as a task of a job array: i/n");
  app.add_option("--threads", options.threads, "default: one per core; changes no result")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--list", options.list, "print the points, run none");
  app.add_option("--merge", options.merge, "DIR: put the parts of all shards together; needs no file");
  app.add_option("--verify", options.verify,
                 "DIR: check every record (exit 1 if points are missing); needs no file");
  app.footer(
      "Killed at any point, the same command goes on where it stopped.\n"
      "Example: simulate study chunks.textproto --out chunks\n"
      "         mpirun -n 64 simulate study chunks.textproto --out chunks\n"
      "         sbatch --array=1-20 --wrap 'simulate study chunks.textproto --out chunks --shard "
      "$SLURM_ARRAY_TASK_ID/20'\n"
      "         simulate study --merge chunks");
}

void check(const CLI::App& app, const Options& options) {
  const std::size_t modes = (options.file.empty() ? 0U : 1U) + (options.merge.empty() ? 0U : 1U) +
                            (options.verify.empty() ? 0U : 1U);
  if (modes != 1) {
    throw UsageError("study: give one of a study file, --merge DIR and --verify DIR; --help says more");
  }
  if (options.file.empty()) {
    for (const char* name : {"--out", "--shard", "--threads", "--list"}) {
      if (app.count(name) > 0) {
        throw UsageError(fmt::format("study: {} goes with a study file; leave it out", name));
      }
    }
  }
}

void list_points(const StudyPoints& study) {
  std::string text;
  for (std::int64_t i = 0; i < study.size(); ++i) {
    text += fmt::format("{} {}\n", i, study.settings_json(study.point(i)));
  }
  write_stdout(text);
}

fs::path folder_of(const Options& options) {
  return options.out.empty() ? fs::path(fs::path(options.file).stem().string() + "-results")
                             : fs::path(options.out);
}

int verify(const std::string& folder) {
  const StudyVerdict verdict = verify_study(folder);
  write_stdout(fmt::format("{}: {} of {} points in {} files, every checksum holds{}; {}\n", folder,
                           verdict.found, verdict.points, verdict.files,
                           verdict.torn > 0 ? fmt::format(", {} cut short by a kill", verdict.torn) : "",
                           verdict.merged                    ? "merged"
                           : verdict.found == verdict.points ? "not merged yet: simulate study --merge"
                                                             : "run the study again to go on"));
  return verdict.found == verdict.points ? 0 : kIncomplete;
}

int merge(const std::string& folder) {
  const std::int64_t points = merge_study(folder);
  write_stdout(fmt::format("{}: {} points in results.jsonl and results.csv\n", folder, points));
  return 0;
}

// All ranks.
int run(const Options& options, Cluster& cluster) {
  const fs::path folder = folder_of(options);
  Shard shard;
  std::unique_ptr<StudyPoints> study;
  agree(cluster, [&] {
    shard = parse_shard(options.shard);
    study = std::make_unique<StudyPoints>(options.file);
  });
  const StudyProgress done = run_study_points(*study, folder, shard, options.threads, cluster);
  if (cluster.rank() != 0) {
    return 0;
  }
  if (shard.count > 1) {
    write_stdout(
        fmt::format("{}: shard {}/{}, {} points done; when all shards are: simulate study --merge {}\n",
                    folder.string(), shard.index, shard.count, done.in_shard, folder.string()));
    return 0;
  }
  return merge(folder.string());
}

}  // namespace

int run_study(std::span<const std::string> arguments, std::unique_ptr<Cluster> (*make)()) {
  Options options;
  CLI::App app("Runs every point of a study (grids, lists, seeds over any option) on all cores.",
               "simulate study");
  declare(app, options);
  if (!parse_arguments(app, "study", arguments)) {
    return 0;
  }
  check(app, options);
  if (!options.verify.empty()) {
    return verify(options.verify);
  }
  if (!options.merge.empty()) {
    return merge(options.merge);
  }
  if (options.list) {
    list_points(StudyPoints(options.file));
    return 0;
  }
  const std::unique_ptr<Cluster> cluster = make();
  try {
    return run(options, *cluster);
  } catch (const OtherRankFailed&) {
    return 2;
  }
}

}  // namespace kneepoint::sim
