// What a workload is like, in one pass and bounded memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "traces/prefix_chain.h"
#include "traces/trace_record.h"

namespace kneepoint::traces {

/// Exact percentiles of whole numbers: one counter per value that occurs.
class LengthCounts {
 public:
  void add(std::int64_t length);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double mean() const;
  /// Population standard deviation.
  [[nodiscard]] double deviation() const;
  /// The smallest value that at least a share p of all do not exceed.
  [[nodiscard]] std::int64_t percentile(double p) const;
  [[nodiscard]] const std::map<std::int64_t, std::uint64_t>& values() const { return counts_; }

 private:
  std::map<std::int64_t, std::uint64_t> counts_;
  std::uint64_t count_ = 0;
};

/// Mean, spread and neighbours' likeness of the intervals between arrivals.
class IntervalStatistics {
 public:
  void add(std::chrono::nanoseconds arrival);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double mean_s() const { return mean_; }
  /// Population standard deviation over mean; 0 for fewer than two intervals.
  [[nodiscard]] double cv() const;
  /// Correlation of each interval with the next.
  [[nodiscard]] double autocorrelation() const;

 private:
  std::uint64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;               // Welford's sum of squared distances from the mean.
  double products_ = 0;              // Sums over neighbours x, y: x y,
  double firsts_ = 0, seconds_ = 0;  // x, and y.
  double last_ = 0;
  bool any_ = false;
  std::chrono::nanoseconds before_{0};
};

/// Requests in equal windows over the whole span.
struct RateWindows {
  double window_s = 1;
  std::vector<std::uint64_t> counts;

  /// `num_windows` windows from 0 to past `last_arrival`.
  RateWindows(std::chrono::nanoseconds last_arrival, std::size_t num_windows);
  void add(std::chrono::nanoseconds arrival);
  [[nodiscard]] double rate(std::size_t i) const { return static_cast<double>(counts[i]) / window_s; }
};

/// Windows whose count lies above mean + 3 sqrt(mean), where a Poisson process
/// would be once in 700; neighbours are joined.
struct Burst {
  std::size_t first = 0;
  std::size_t last = 0;  ///< Included.
  std::uint64_t requests = 0;
};
[[nodiscard]] std::vector<Burst> bursts(const RateWindows& windows);

/// How much of the prompts a prefix cache without limits would hold already,
/// block by block from the start on. 32 bytes of memory per distinct block.
class PrefixReuse {
 public:
  explicit PrefixReuse(std::int64_t block_size) : block_size_(block_size) {}
  void add(const TraceRecord& record);
  [[nodiscard]] std::uint64_t prompt_blocks() const { return prompt_blocks_; }  ///< Full ones.
  [[nodiscard]] std::uint64_t reused_blocks() const { return reused_blocks_; }
  [[nodiscard]] double share() const;
  [[nodiscard]] std::int64_t block_size() const { return block_size_; }

 private:
  std::int64_t block_size_;
  std::uint64_t prompt_blocks_ = 0;
  std::uint64_t reused_blocks_ = 0;
  ChainTable seen_;
  std::vector<ChainKey> keys_;
};

}  // namespace kneepoint::traces
