#include "sim/time_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/assert.hpp>
#include <iterator>

namespace kneepoint::sim {
namespace {

constexpr int kSubBits = 4;  // 16 bins to a doubling.
constexpr std::uint64_t kSubBins = 1U << kSubBits;

// Values below 16 have a bin each; then 16 bins from each power of two to the next.
std::size_t bin_of(std::int64_t ns) {
  const auto value = static_cast<std::uint64_t>(ns);
  if (value < kSubBins) {
    return value;
  }
  const int shift = static_cast<int>(std::bit_width(value)) - 1 - kSubBits;
  return (static_cast<std::size_t>(shift) + 1) * kSubBins + ((value >> shift) - kSubBins);
}

double middle_of(std::size_t bin) {
  if (bin < kSubBins) {
    return static_cast<double>(bin);
  }
  const std::size_t shift = bin / kSubBins - 1;
  const std::uint64_t low = (kSubBins + bin % kSubBins) << shift;
  return static_cast<double>(low) + static_cast<double>((std::uint64_t{1} << shift) - 1) / 2;
}

}  // namespace

// ---- LogHistogram

void LogHistogram::add(std::int64_t ns) {
  BOOST_ASSERT(ns >= 0);
  const std::size_t bin = bin_of(ns);
  if (bin >= counts_.size()) {
    counts_.resize(bin + 1);
  }
  ++counts_[bin];
  lowest_ = count_ == 0 ? ns : std::min(lowest_, ns);
  highest_ = std::max(highest_, ns);
  sum_ += ns;
  ++count_;
}

void LogHistogram::merge(const LogHistogram& other) {
  if (other.count_ == 0) {
    return;
  }
  counts_.resize(std::max(counts_.size(), other.counts_.size()));
  for (std::size_t i = 0; i < other.counts_.size(); ++i) {
    counts_[i] += other.counts_[i];
  }
  lowest_ = count_ == 0 ? other.lowest_ : std::min(lowest_, other.lowest_);
  highest_ = std::max(highest_, other.highest_);
  sum_ += other.sum_;
  count_ += other.count_;
}

double LogHistogram::mean() const {
  return static_cast<double>(sum_) / static_cast<double>(count_);
}

double LogHistogram::quantile(Quantile q) const {
  BOOST_ASSERT(count_ > 0);
  const std::int64_t rank =
      std::max<std::int64_t>(1, (count_ * q.numerator + q.denominator - 1) / q.denominator);
  std::int64_t seen = 0;
  std::size_t bin = 0;
  while (seen + counts_[bin] < rank) {
    seen += counts_[bin++];
  }
  return std::clamp(middle_of(bin), static_cast<double>(lowest_), static_cast<double>(highest_));
}

// ---- buckets

void TimeSeries::Level::hold(std::int64_t value, std::int64_t ns, bool first) {
  lowest = first ? value : std::min(lowest, value);
  highest = first ? value : std::max(highest, value);
  integral += static_cast<Int128>(value) * ns;
}

void TimeSeries::Level::merge(const Level& later, bool first) {
  lowest = first ? later.lowest : std::min(lowest, later.lowest);
  highest = first ? later.highest : std::max(highest, later.highest);
  integral += later.integral;
}

LevelStats TimeSeries::Level::stats(std::int64_t held_ns) const {
  return {held_ns > 0 ? static_cast<double>(integral) / static_cast<double>(held_ns) : 0.0, lowest, highest};
}

void TimeSeries::LevelBucket::merge(const LevelBucket& later) {
  if (later.held_ns == 0) {
    return;
  }
  const bool first = held_ns == 0;
  used_blocks.merge(later.used_blocks, first);
  waiting.merge(later.waiting, first);
  running.merge(later.running, first);
  held_ns += later.held_ns;
}

void TimeSeries::LatencyBucket::merge(const LatencyBucket& later) {
  sent += later.sent;
  failed += later.failed;
  ttft.merge(later.ttft);
  tpot.merge(later.tpot);
}

// ---- what happens

void TimeSeries::on_send(const RequestRecord& request) {
  ++latencies_.at(request.sent).sent;
}

void TimeSeries::on_request_end(const RequestRecord& request) {
  LatencyBucket& bucket = latencies_.at(request.sent);
  if (!is_completed(request.end)) {
    ++bucket.failed;
    return;
  }
  bucket.ttft.add((request.first_token - request.sent).count());
  if (request.output_tokens > 1) {
    bucket.tpot.add((request.last_token - request.first_token).count() / (request.output_tokens - 1));
  }
}

void TimeSeries::hold(LevelBucket& bucket, SimTime until) {
  const std::int64_t ns = (until - since_).count();
  const bool first = bucket.held_ns == 0;
  bucket.used_blocks.hold(used_blocks_, ns, first);
  bucket.waiting.hold(waiting_, ns, first);
  bucket.running.hold(running_, ns, first);
  bucket.held_ns += ns;
  since_ = until;
}

void TimeSeries::on_load(SimTime now, const engine::EngineLoad& load) {
  while (since_ < now) {
    if (now > current_end_) {
      static_cast<void>(levels_.at(now));  // Widens first, so that a long hold is cut into few pieces.
      current_ = &levels_.at(since_);
      current_end_ = levels_.end_of(since_);
    }
    hold(*current_, std::min(now, current_end_));
  }
  used_blocks_ = load.usable_blocks - load.free_blocks;
  waiting_ = load.num_waiting;
  running_ = load.num_running;
  usable_blocks_ = load.usable_blocks;
}

// ---- what is read

std::vector<LevelRow> TimeSeries::levels() const {
  std::vector<LevelRow> rows;
  for (std::size_t i = 0; i < levels_.used() && levels_[i].held_ns > 0; ++i) {
    const LevelBucket& bucket = levels_[i];
    const SimTime begin = levels_.begin_of(i);
    rows.push_back({begin, begin + SimDuration(bucket.held_ns), bucket.used_blocks.stats(bucket.held_ns),
                    bucket.waiting.stats(bucket.held_ns), bucket.running.stats(bucket.held_ns)});
  }
  return rows;
}

std::vector<LatencyRow> TimeSeries::latencies() const {
  std::vector<LatencyRow> rows;
  for (std::size_t i = 0; i < latencies_.used(); ++i) {
    const LatencyBucket& bucket = latencies_[i];
    rows.push_back({latencies_.begin_of(i), latencies_.begin_of(i + 1), bucket.sent, bucket.failed,
                    &bucket.ttft, &bucket.tpot});
  }
  return rows;
}

std::string levels_csv(const TimeSeries& series) {
  std::string text =
      "start_s,end_s,kv_usage_mean,kv_usage_low,kv_usage_high,waiting_mean,waiting_low,waiting_high,"
      "running_mean,running_low,running_high\n";
  const double usable = static_cast<double>(std::max<std::int64_t>(series.usable_blocks(), 1));
  for (const LevelRow& row : series.levels()) {
    fmt::format_to(std::back_inserter(text), "{:.6f},{:.6f},{:.6f},{:.6f},{:.6f},{:.4f},{},{},{:.4f},{},{}\n",
                   to_seconds(row.begin), to_seconds(row.end), row.used_blocks.mean / usable,
                   static_cast<double>(row.used_blocks.lowest) / usable,
                   static_cast<double>(row.used_blocks.highest) / usable, row.waiting.mean,
                   row.waiting.lowest, row.waiting.highest, row.running.mean, row.running.lowest,
                   row.running.highest);
  }
  return text;
}

namespace {

void append_latency(std::string& text, const LogHistogram& histogram) {
  if (histogram.count() == 0) {
    text += ",,,,";
    return;
  }
  fmt::format_to(std::back_inserter(text), ",{:.4f},{:.4f},{:.4f},{:.4f}", histogram.mean() / 1e6,
                 histogram.quantile({50, 100}) / 1e6, histogram.quantile({99, 100}) / 1e6,
                 static_cast<double>(histogram.highest()) / 1e6);
}

}  // namespace

std::string latencies_csv(const TimeSeries& series) {
  std::string text =
      "start_s,end_s,sent,failed,ttft_mean_ms,ttft_p50_ms,ttft_p99_ms,ttft_max_ms,"
      "tpot_mean_ms,tpot_p50_ms,tpot_p99_ms,tpot_max_ms\n";
  for (const LatencyRow& row : series.latencies()) {
    fmt::format_to(std::back_inserter(text), "{:.6f},{:.6f},{},{}", to_seconds(row.begin),
                   to_seconds(row.end), row.sent, row.failed);
    append_latency(text, *row.ttft);
    append_latency(text, *row.tpot);
    text += '\n';
  }
  return text;
}

}  // namespace kneepoint::sim
