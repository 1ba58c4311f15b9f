#include "traces/statistics.h"

#include <algorithm>
#include <cmath>

namespace kneepoint::traces {

void LengthCounts::add(std::int64_t length) {
  ++counts_[length];
  ++count_;
}

double LengthCounts::mean() const {
  double sum = 0;
  for (const auto& [length, times] : counts_) sum += static_cast<double>(length) * static_cast<double>(times);
  return count_ == 0 ? 0 : sum / static_cast<double>(count_);
}

double LengthCounts::deviation() const {
  const double middle = mean();
  double sum = 0;
  for (const auto& [length, times] : counts_) {
    const double off = static_cast<double>(length) - middle;
    sum += off * off * static_cast<double>(times);
  }
  return count_ == 0 ? 0 : std::sqrt(sum / static_cast<double>(count_));
}

std::int64_t LengthCounts::percentile(double p) const {
  const double wanted = p * static_cast<double>(count_);
  double below = 0;
  for (const auto& [length, times] : counts_) {
    below += static_cast<double>(times);
    if (below >= wanted) return length;
  }
  return counts_.empty() ? 0 : counts_.rbegin()->first;
}

void IntervalStatistics::add(std::chrono::nanoseconds arrival) {
  if (any_) {
    const double interval = static_cast<double>((arrival - before_).count()) * 1e-9;
    if (count_ > 0) {
      products_ += last_ * interval;
      firsts_ += last_;
      seconds_ += interval;
    }
    ++count_;
    const double off = interval - mean_;
    mean_ += off / static_cast<double>(count_);
    squares_ += off * (interval - mean_);
    last_ = interval;
  }
  any_ = true;
  before_ = arrival;
}

double IntervalStatistics::cv() const {
  if (count_ < 2 || mean_ == 0) return 0;
  return std::sqrt(squares_ / static_cast<double>(count_)) / mean_;
}

double IntervalStatistics::autocorrelation() const {
  if (count_ < 3 || squares_ == 0) return 0;
  const auto pairs = static_cast<double>(count_ - 1);
  const double covariance = products_ / pairs - mean_ * (firsts_ + seconds_) / pairs + mean_ * mean_;
  return covariance / (squares_ / static_cast<double>(count_));
}

RateWindows::RateWindows(std::chrono::nanoseconds last_arrival, std::size_t num_windows)
    : window_s(std::max(
          1e-9, static_cast<double>(last_arrival.count() + 1) * 1e-9 / static_cast<double>(num_windows))),
      counts(num_windows) {}

void RateWindows::add(std::chrono::nanoseconds arrival) {
  const auto i = static_cast<std::size_t>(static_cast<double>(arrival.count()) * 1e-9 / window_s);
  ++counts[std::min(i, counts.size() - 1)];
}

std::vector<Burst> bursts(const RateWindows& windows) {
  double mean = 0;
  for (const std::uint64_t count : windows.counts) mean += static_cast<double>(count);
  mean /= static_cast<double>(windows.counts.size());
  std::vector<Burst> found;
  for (std::size_t i = 0; i < windows.counts.size(); ++i) {
    if (static_cast<double>(windows.counts[i]) <= mean + 3 * std::sqrt(mean)) continue;
    if (found.empty() || found.back().last + 1 != i) found.push_back({i, i, 0});
    found.back().last = i;
    found.back().requests += windows.counts[i];
  }
  return found;
}

void PrefixReuse::add(const TraceRecord& record) {
  prompt_blocks_ += static_cast<std::uint64_t>(record.prompt_tokens / block_size_);
  chain_keys(record, block_size_, false, false, keys_);
  for (const ChainKey& key : keys_) {
    if (!seen_.contains(key)) break;
    ++reused_blocks_;
  }
  if (record.output_content != 0) chain_keys(record, block_size_, false, true, keys_);
  bool fresh = false;
  for (const ChainKey& key : keys_) seen_.number(key, fresh);
}

double PrefixReuse::share() const {
  return prompt_blocks_ == 0 ? 0 : static_cast<double>(reused_blocks_) / static_cast<double>(prompt_blocks_);
}

}  // namespace kneepoint::traces
