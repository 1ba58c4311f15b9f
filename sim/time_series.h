// How a run went over its time, in constant memory: KV use, queue and batch size
// as they held, TTFT and TPOT by when requests were sent.
//
// Levels (KV blocks in use, requests waiting and running) change at events and
// hold in between. A bucket of time keeps their mean over time, lowest and
// highest; a value that held for no time, between two events of one instant,
// counts nowhere:
//
//     waiting   2 from 0 to 3 s, then 6; bucket 0 to 4 s:  lowest 2, mean 3, highest 6
//
// Latencies of completed requests are counted by logarithm, 16 to each doubling, so
// a bucket's p50 and p99 are within 3.2 %; count, mean, lowest and highest are
// exact. By the time a request was sent, not by when it ended: the question is
// what a client met that came at that time.
//
// Cost    a few nanoseconds a call; so it can watch each run that writes a report.
// Source  percentiles of a bucket are by nearest rank: the smallest value that at
//         least p % do not exceed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/observer.h"
#include "sim/percentiles.h"
#include "sim/time_buckets.h"

namespace kneepoint::sim {

/// Whole nanoseconds counted by logarithm.
class LogHistogram {
 public:
  void add(std::int64_t ns);
  void merge(const LogHistogram& other);
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Nothing to read if count() is 0. Exact: mean, lowest, highest.
  [[nodiscard]] double mean() const;
  [[nodiscard]] std::int64_t lowest() const { return lowest_; }
  [[nodiscard]] std::int64_t highest() const { return highest_; }
  /// By nearest rank, within 1/32 of the value.
  [[nodiscard]] double quantile(Quantile q) const;

 private:
  std::vector<std::uint32_t> counts_;  // As many as the highest value needs.
  std::int64_t count_ = 0;
  std::int64_t lowest_ = 0;
  std::int64_t highest_ = 0;
  Int128 sum_ = 0;
};

/// What held in a span of time.
struct LevelStats {
  double mean = 0;
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
};

struct LevelRow {
  SimTime begin{};
  SimTime end{};  ///< The last row ends with the run.
  LevelStats used_blocks;
  LevelStats waiting;
  LevelStats running;
};

struct LatencyRow {
  SimTime begin{};
  SimTime end{};
  std::int64_t sent = 0;
  std::int64_t failed = 0;             ///< Of those sent in this span.
  const LogHistogram* ttft = nullptr;  ///< Of completed requests; valid as long as the TimeSeries.
  const LogHistogram* tpot = nullptr;  ///< Of those with more than one token.
};

class TimeSeries final : public RunObserver {
 public:
  static constexpr std::size_t kLevelBuckets = 512;
  static constexpr std::size_t kLatencyBuckets = 128;

  void on_send(const RequestRecord& request) override;
  void on_request_end(const RequestRecord& request) override;
  void on_load(SimTime now, const engine::EngineLoad& load) override;

  /// In the order of time, without gaps, from 0.
  [[nodiscard]] std::vector<LevelRow> levels() const;
  [[nodiscard]] std::vector<LatencyRow> latencies() const;
  [[nodiscard]] std::int64_t usable_blocks() const { return usable_blocks_; }

 private:
  struct Level {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    Int128 integral = 0;  // Of the value over nanoseconds.
    void hold(std::int64_t value, std::int64_t ns, bool first);
    void merge(const Level& later, bool first);
    [[nodiscard]] LevelStats stats(std::int64_t held_ns) const;
  };
  struct LevelBucket {
    std::int64_t held_ns = 0;
    Level used_blocks, waiting, running;
    void merge(const LevelBucket& later);
  };
  void hold(LevelBucket& bucket, SimTime until);
  struct LatencyBucket {
    std::int64_t sent = 0;
    std::int64_t failed = 0;
    LogHistogram ttft, tpot;
    void merge(const LatencyBucket& later);
  };

  TimeBuckets<LevelBucket> levels_{kLevelBuckets};
  TimeBuckets<LatencyBucket> latencies_{kLatencyBuckets};
  LevelBucket* current_ = nullptr;  // Of since_; none before the first time passes.
  SimTime current_end_{};
  SimTime since_{};  // The levels below hold from here on.
  std::int64_t used_blocks_ = 0;
  std::int64_t waiting_ = 0;
  std::int64_t running_ = 0;
  std::int64_t usable_blocks_ = 0;
};

/// load_over_time.csv: start_s,end_s, then mean, lowest and highest of kv_usage (a share), waiting and
/// running.
[[nodiscard]] std::string levels_csv(const TimeSeries& series);
/// latency_over_time.csv: start_s,end_s,sent,failed, then mean, p50, p99 and highest of TTFT and TPOT in ms;
/// empty where nobody completed.
[[nodiscard]] std::string latencies_csv(const TimeSeries& series);

}  // namespace kneepoint::sim
