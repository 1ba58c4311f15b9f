// The whole question: where the knees are, how sure, what binds there, what would
// move them, how many servers that means.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/knee.h"
#include "sim/knee_search.h"
#include "sim/knee_workload.h"
#include "sim/run_config.h"

namespace kneepoint::sim {

/// Something to change, to see where the knee goes.
struct Change {
  std::string name;  ///< "2x KV blocks (57,225)".
  RunConfig config;
  const KneeWorkload* workload = nullptr;  ///< Null: the same. Must outlive the search.
  bool smooths_arrivals = false;           ///< Bursts bind if the knee moves far by this.
};

struct KneeQuestion {
  RunConfig config;
  LoadAxis axis = LoadAxis::kRate;
  const KneeWorkload* workload = nullptr;  ///< Must outlive the search.
  SearchOptions search;
  std::size_t seeds = 5;
  int threads = 0;                     ///< 0: all cores.
  std::optional<double> step_time_sd;  ///< Nothing: from the measured server's fit, else 0.
  std::vector<Change> changes;
  KneeLab::MakeTimes make_times;         ///< Empty: as `config` says.
  std::optional<ServersNeeded> traffic;  ///< Rates of the trace itself; the numbers are filled in.
};

/// Deterministic; the same on any number of threads. `on_run` is called after each simulation, by several
/// threads; it may be empty. What was asked (version, workload, ...) is the caller's to fill in.
[[nodiscard]] KneeResult find_knees(const KneeQuestion& question, const std::function<void()>& on_run = {});

/// Mean rate and the highest over a window, of a trace's own arrivals.
[[nodiscard]] ServersNeeded traffic_of(const std::vector<traces::TraceRecord>& trace);

}  // namespace kneepoint::sim
