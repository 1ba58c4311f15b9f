// The workload of a run: the requests of a trace, at the trace's own times or at
// new ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sim/client.h"
#include "sim/run_config.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {

/// A trace as a workload; counts what it gives.
class TraceWorkload final : public Workload {
 public:
  /// Throws TraceError for a damaged file, ConfigError under --strict for a
  /// prompt that the server would refuse.
  explicit TraceWorkload(const RunConfig& config);

  [[nodiscard]] bool next(Send& send) override;

  [[nodiscard]] const traces::TraceInfo& info() const { return reader_.info(); }
  /// SHA-256 of the whole file; reads what the run has left unread.
  [[nodiscard]] std::string sha256();

 private:
  traces::TraceReader reader_;
  std::string file_name_;
  std::int64_t max_model_len_;
  bool strict_;
  std::uint64_t given_ = 0;
};

/// Another workload's requests in their order at the times that `vllm bench
/// serve --request-rate R --burstiness B` draws (spec.md 7.2): gamma intervals,
/// summed from before the first request on, and scaled so that the last arrival
/// is at num_requests / R. An infinite rate: all at 0.
///
/// Constant memory: the sum to scale by comes from drawing the same stream twice.
class RatedWorkload final : public Workload {
 public:
  RatedWorkload(std::unique_ptr<Workload> inner, std::uint64_t num_requests, double rate, double burstiness,
                std::uint64_t seed);
  ~RatedWorkload() override;

  [[nodiscard]] bool next(Send& send) override;

 private:
  struct Intervals;
  std::unique_ptr<Workload> inner_;
  std::unique_ptr<Intervals> intervals_;  // Null for an infinite rate.
  double scale_ = 1;
  double elapsed_s_ = 0;
};

}  // namespace kneepoint::sim
