#include "sim/study_run.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/scheduler_config.h"
#include "hw/spec_error.h"
#include "sim/measured_run.h"
#include "sim/on_cores.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/progress.h"
#include "sim/result_json.h"
#include "sim/study_store.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;

// The same for all points, or said by the header already.
constexpr const char* kNotInRecords[] = {"date",         "endpoint_type", "backend",           "label",
                                         "tokenizer_id", "rtfx",          "kneepoint_version", "inputs",
                                         "provenance",   "configuration"};

Json result_of(const RunConfig& config, const MeasuredRun& measured) {
  Json json = Json::parse(result_json(as_result(config, measured)));
  for (const char* key : kNotInRecords) {
    json.erase(key);
  }
  return json;
}

void run_point(const pb::RunConfig& asked, Json& record) {
  const RunConfig config = resolve(asked);
  const MeasuredRun measured = measure(config);
  const RunSummary& summary = measured.run.summary;
  if (summary.never_fit > 0) {
    record["status"] = "never_fits";
    record["reason"] =
        fmt::format("{} requests need more KV blocks than there are; vLLM would hang from {:.3f} s on",
                    summary.never_fit, to_seconds(summary.hangs_from));
  } else if (summary.storm) {
    record["status"] = "storm";
    record["reason"] =
        fmt::format("preemptions without end; cut with {} requests unfinished", summary.unfinished);
  }
  record["result"] = result_of(config, measured);
}

std::int64_t whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

std::string part_name(Shard shard, const Cluster& cluster) {
  std::string name = fmt::format("part-{}-of-{}", shard.index, shard.count);
  if (cluster.size() > 1) {
    name += fmt::format(".rank-{}-of-{}", cluster.rank(), cluster.size());
  }
  return name;
}

// The points of `shard` that the folder lacks.
std::vector<std::int64_t> points_to_do(const StudyHeader& header, const std::filesystem::path& folder,
                                       Shard shard, StudyProgress& progress) {
  const StudyScan scan(folder);
  if (scan.header() && scan.header()->line != header.line) {
    throw UsageError(
        fmt::format("{}: has results of another study, or of this one with other inputs or another version; "
                    "give another --out",
                    folder.string()));
  }
  std::vector<std::int64_t> to_do;
  for (std::int64_t i = shard.index - 1; i < header.points; i += shard.count) {
    ++progress.in_shard;
    if (scan.header() && scan.has(i)) {
      ++progress.done_before;
    } else {
      to_do.push_back(i);
    }
  }
  return to_do;
}

// One of several at the same time.
void work_on_points(const StudyPoints& study, Cluster& cluster, StudyPart& part, std::mutex& one_writer,
                    std::atomic<bool>& stop) {
  bool finished = false;
  while (!stop) {
    const std::optional<std::int64_t> point = cluster.next(finished);
    if (!point) {
      return;
    }
    try {
      const std::string record = study_record(study, *point);
      const std::lock_guard<std::mutex> lock(one_writer);
      part.append(record);
    } catch (...) {
      stop = true;
      throw;
    }
    finished = true;
  }
}

}  // namespace

void agree(Cluster& cluster, const std::function<void()>& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  const int first = cluster.first_failed(failure != nullptr);
  if (first == cluster.rank()) {
    std::rethrow_exception(failure);
  }
  if (first >= 0) {
    throw OtherRankFailed();
  }
}

Shard parse_shard(const std::string& text) {
  const std::size_t slash = text.find('/');
  Shard shard;
  shard.index = slash == std::string::npos ? -1 : whole_number(std::string_view(text).substr(0, slash));
  shard.count = slash == std::string::npos ? -1 : whole_number(std::string_view(text).substr(slash + 1));
  if (shard.index < 1 || shard.count < shard.index || shard.count > 1'000'000) {
    throw UsageError(fmt::format("study: --shard '{}': give i/n with i from 1 to n, as in 1/3", text));
  }
  return shard;
}

std::string study_record(const StudyPoints& study, std::int64_t index) {
  const pb::RunConfig asked = study.point(index);
  Json record;
  record["point"] = index;
  record["settings"] = Json::parse(study.settings_json(asked));
  record["status"] = "ok";
  record["reason"] = nullptr;
  record["result"] = nullptr;
  const auto cannot_run = [&](const std::exception& error) {
    record["status"] = "cannot_run";
    record["reason"] = error.what();
  };
  try {
    run_point(asked, record);
  } catch (const UsageError& error) {
    cannot_run(error);
  } catch (const hw::SpecError& error) {
    cannot_run(error);
  } catch (const engine::ConfigError& error) {
    cannot_run(error);
  }
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StudyProgress run_study_points(const StudyPoints& study, const std::filesystem::path& folder, Shard shard,
                               int threads, Cluster& cluster) {
  const StudyHeader header = make_header(study);
  StudyProgress progress;
  std::vector<std::int64_t> to_do;
  std::optional<StudyPart> part;
  agree(cluster, [&] {
    make_study_folder(folder);
    to_do = points_to_do(header, folder, shard, progress);
    part.emplace(folder, part_name(shard, cluster), header);
  });
  if (cluster.rank() == 0 && progress.done_before > 0) {
    fmt::print(stderr, "simulate: {} of {} points are there already\n", progress.done_before,
               progress.in_shard);
  }
  Progress bar(to_do.size(), "points");
  cluster.begin(std::move(to_do), [&] { bar.one_over(); });
  std::mutex one_writer;
  std::atomic<bool> stop = false;
  try {
    run_workers(threads, [&] { work_on_points(study, cluster, *part, one_writer, stop); });
  } catch (const std::exception& error) {
    if (cluster.size() > 1) {  // The others are in the middle of their work; nobody waits to hear of it.
      fmt::print(stderr, "simulate: {}\n", error.what());
      cluster.abort();
    }
    throw;
  }
  part.reset();  // On the disk.
  cluster.end();
  return progress;
}

}  // namespace kneepoint::sim
