// Runs experiments for a knee search: one simulation per order, many at once.
//
// A run depends on its order alone, so results are the same on any number of
// threads. Step-time tables, which are costly to fill and not to be shared between
// threads, are made once per thread; what they hold does not depend on who asked.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hw/step_time_model.h"
#include "sim/knee.h"
#include "sim/knee_workload.h"
#include "sim/run_config.h"
#include "sim/run_log.h"

namespace kneepoint::sim {

struct RunOrder {
  double load = 0;  ///< Infinity: all requests at once.
  std::size_t seed = 0;
  std::int64_t requests = 0;
  std::optional<StopRule> stop;
};

class KneeLab {
 public:
  using MakeTimes = std::function<std::unique_ptr<hw::StepTimeModel>()>;
  struct Setup {
    RunConfig config;
    LoadAxis axis = LoadAxis::kRate;
    const KneeWorkload& workload;
    MakeTimes make_times;  ///< Called by several threads.
    std::uint64_t first_seed = 0;
    std::size_t seeds = 5;
    int threads = 0;  ///< 0: all cores.
    bool keep_gaps = false;
    std::function<void()> on_run;  ///< After each run; called by several threads; may be empty.
  };

  explicit KneeLab(Setup setup);
  ~KneeLab();

  /// Makes the requests of all seeds, `n` each; before any run of so many.
  void prepare(std::int64_t n);

  [[nodiscard]] RunLog run(const RunOrder& order);
  /// In the order of `orders`.
  [[nodiscard]] std::vector<RunLog> run_all(std::span<const RunOrder> orders);
  /// Calls `job` for 0 to count - 1, several at once. An exception of one of them is thrown on.
  void for_each(std::size_t count, const std::function<void(std::size_t)>& job);

  [[nodiscard]] const RunConfig& config() const { return setup_.config; }
  [[nodiscard]] LoadAxis axis() const { return setup_.axis; }
  [[nodiscard]] std::size_t seeds() const { return setup_.seeds; }
  /// Of every request's TTFT: the two front-end delays, which no step makes longer.
  [[nodiscard]] std::int64_t front_end_ns() const { return front_end_ns_; }
  [[nodiscard]] const std::string& time_provenance() const { return time_provenance_; }
  [[nodiscard]] std::int64_t runs() const { return runs_; }
  [[nodiscard]] std::int64_t simulated_requests() const { return simulated_requests_; }

 private:
  struct Threads;
  Setup setup_;
  std::unique_ptr<Threads> threads_;
  std::vector<std::vector<traces::TraceRecord>> requests_;  // By seed; all of `prepared_` length.
  std::int64_t prepared_ = 0;
  std::int64_t front_end_ns_ = 0;
  std::string time_provenance_;
  std::atomic<std::int64_t> runs_{0};
  std::atomic<std::int64_t> simulated_requests_{0};
};

}  // namespace kneepoint::sim
