// Two systems side by side, run by run with the same seed.
//
// A side is what has been run (a result.json, a folder with one, a folder of such
// folders, a study in which only the seed varies) or a run config, which is then
// run. Results of `vllm bench serve --save-result` do as well: they have the keys.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/compare_tests.h"

namespace kneepoint::sim {

struct CompareOptions {
  std::int64_t num_seeds = 10;  ///< Of run configs; a result brings its own.
  std::uint64_t first_seed = 0;
  int threads = 0;  ///< 0: all cores.
};

/// The runs of one side: the text of each result.json, by seed.
struct CompareSide {
  std::string name;  ///< As the user wrote it.
  bool is_config = false;
  std::map<std::uint64_t, std::string> results;
  std::map<std::string, std::string> configuration;  ///< Field to value, of any of them; may be empty.
  std::string trace_sha256;                          ///< "" if it is not known.
};

/// One figure of both.
struct ComparedMetric {
  std::string key;   ///< As in result.json.
  std::string name;  ///< With its unit: "TTFT p99 (ms)".
  PairedTest test;
};

struct Comparison {
  CompareSide a;
  CompareSide b;
  std::vector<std::uint64_t> seeds;  ///< That both have.
  std::vector<ComparedMetric> metrics;
  std::vector<std::string> notes;  ///< What to bear in mind when reading it.
};

/// Throws UsageError for a side that is neither, TraceError and the like of runs.
/// `run_over` is called after each run, one at a time; `runs_known` before the
/// first with their number.
[[nodiscard]] Comparison compare(const std::string& a, const std::string& b, const CompareOptions& options,
                                 const std::function<void(std::int64_t)>& runs_known = nullptr,
                                 const std::function<void()>& run_over = nullptr);

/// Fields in which the two configurations differ: name, A's value, B's value.
struct ConfigurationDifference {
  std::string field;
  std::string a;
  std::string b;
};
[[nodiscard]] std::vector<ConfigurationDifference> configuration_differences(const Comparison& comparison);

}  // namespace kneepoint::sim
