#include "sim/knee_workload.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "sim/sim_time.h"
#include "traces/lengths.h"
#include "traces/random_stream.h"

namespace kneepoint::sim {
namespace {

using traces::RandomStream;
using traces::TraceRecord;

constexpr std::int64_t kBlocksOfRun = 16;
constexpr std::int64_t kLeastBlocksOfTrace = 4;
constexpr double kNsPerSecond = 1e9;

std::chrono::nanoseconds to_ns(double seconds) {
  return std::chrono::nanoseconds(std::llround(seconds * kNsPerSecond));
}

// Sets arrivals from gaps, the i-th lying before the i-th request, so that the
// last comes after as many seconds as there are requests.
void set_arrivals(std::vector<TraceRecord>& records, const std::vector<double>& gaps) {
  double sum = 0;
  for (const double gap : gaps) {
    sum += gap;
  }
  const double scale = sum > 0 ? static_cast<double>(records.size()) / sum : 0;
  double at = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    at += gaps[i];
    records[i].arrival = to_ns(at * scale);
  }
}

std::vector<double> drawn_gaps(std::uint64_t seed, std::int64_t n, double burstiness) {
  RandomStream stream(seed, "knee arrivals");
  std::vector<double> gaps(static_cast<std::size_t>(n));
  for (double& gap : gaps) {
    gap = stream.gamma(burstiness);
  }
  return gaps;
}

class BlocksOfTrace final : public KneeWorkload {
 public:
  BlocksOfTrace(std::vector<TraceRecord> trace, std::optional<double> burstiness)
      : trace_(std::move(trace)), burstiness_(burstiness) {
    BOOST_ASSERT(!trace_.empty());
    const double span = to_seconds(trace_.back().arrival - trace_.front().arrival);
    mean_gap_ = trace_.size() > 1 && span > 0 ? span / static_cast<double>(trace_.size() - 1) : 1;
    for (std::size_t i = 0; i < trace_.size(); ++i) {
      note_use(contents_, trace_[i].output_content, i);
      note_use(sessions_, trace_[i].session, i);
      for (const traces::PromptSegment& segment : trace_[i].prompt) {
        note_use(contents_, segment.content, i);
      }
    }
  }

  [[nodiscard]] std::vector<TraceRecord> requests(std::uint64_t seed, std::int64_t n) const override;

 private:
  struct Uses {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  using UsesById = std::unordered_map<std::uint64_t, Uses>;
  struct Block {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint64_t draw = 0;
  };

  static void note_use(UsesById& uses, std::uint64_t id, std::size_t at) {
    if (id != 0) {
      uses.try_emplace(id, Uses{at, at}).first->second.last = at;
    }
  }
  // The name of `id` in this draw of its block: its own if others share it.
  static std::uint64_t renamed(const UsesById& uses, std::uint64_t id, const Block& block) {
    if (id == 0) {
      return 0;
    }
    const Uses& use = uses.at(id);
    const bool ours = block.begin <= use.first && use.last < block.end;
    return ours ? traces::stream_seed(id + block.draw * 0x9e3779b97f4a7c15U, "block") | 1U : id;
  }
  void add(const Block& block, std::size_t i, std::vector<TraceRecord>& records) const;

  std::vector<TraceRecord> trace_;
  std::optional<double> burstiness_;
  double mean_gap_ = 1;
  UsesById contents_;
  UsesById sessions_;
};

void BlocksOfTrace::add(const Block& block, std::size_t i, std::vector<TraceRecord>& records) const {
  TraceRecord record = trace_[i];
  for (traces::PromptSegment& segment : record.prompt) {
    segment.content = renamed(contents_, segment.content, block);
  }
  record.output_content = renamed(contents_, record.output_content, block);
  record.session = renamed(sessions_, record.session, block);
  record.think_time = to_ns(to_seconds(record.think_time) / mean_gap_);
  records.push_back(std::move(record));
}

std::vector<TraceRecord> BlocksOfTrace::requests(std::uint64_t seed, std::int64_t n) const {
  const auto size = static_cast<std::int64_t>(trace_.size());
  const std::int64_t length =
      std::clamp(n / kBlocksOfRun, std::int64_t{1}, std::max(size / kLeastBlocksOfTrace, std::int64_t{1}));
  RandomStream stream(seed, "knee blocks");
  std::vector<TraceRecord> records;
  std::vector<double> gaps;
  records.reserve(static_cast<std::size_t>(n));
  for (std::uint64_t draw = 1; std::ssize(records) < n; ++draw) {
    const auto begin = static_cast<std::size_t>(stream.integer(0, size - length));
    const Block block{begin, begin + static_cast<std::size_t>(length), draw};
    for (std::size_t i = block.begin; i < block.end && std::ssize(records) < n; ++i) {
      add(block, i, records);
      gaps.push_back(i > 0 ? to_seconds(trace_[i].arrival - trace_[i - 1].arrival) : mean_gap_);
    }
  }
  set_arrivals(records, burstiness_ ? drawn_gaps(seed, n, *burstiness_) : gaps);
  return records;
}

class DrawnRequests final : public KneeWorkload {
 public:
  DrawnRequests(const DrawnLengths& lengths, double burstiness)
      : prompt_(traces::parse_lengths(lengths.prompt_tokens, lengths.range_ratio)),
        output_(traces::parse_lengths(lengths.output_tokens, lengths.range_ratio)),
        burstiness_(burstiness) {}

  [[nodiscard]] std::vector<TraceRecord> requests(std::uint64_t seed, std::int64_t n) const override {
    RandomStream prompts(seed, "prompt-lengths");
    RandomStream outputs(seed, "output-lengths");
    std::vector<TraceRecord> records(static_cast<std::size_t>(n));
    for (TraceRecord& record : records) {
      record.prompt_tokens = prompt_->quantile(prompts.uniform());
      record.output_tokens = output_->quantile(outputs.uniform());
    }
    set_arrivals(records, drawn_gaps(seed, n, burstiness_));
    return records;
  }

 private:
  std::unique_ptr<traces::LengthModel> prompt_;
  std::unique_ptr<traces::LengthModel> output_;
  double burstiness_;
};

}  // namespace

std::unique_ptr<KneeWorkload> blocks_of_trace(std::vector<TraceRecord> trace,
                                              std::optional<double> burstiness) {
  return std::make_unique<BlocksOfTrace>(std::move(trace), burstiness);
}

std::unique_ptr<KneeWorkload> drawn_requests(const DrawnLengths& lengths, double burstiness) {
  return std::make_unique<DrawnRequests>(lengths, burstiness);
}

LoadedWorkload::LoadedWorkload(const std::vector<TraceRecord>& records, std::int64_t count, double load)
    : records_(records), count_(static_cast<std::size_t>(count)), load_(load) {
  BOOST_ASSERT(count_ <= records_.size() && load > 0);
}

bool LoadedWorkload::next(Send& send) {
  if (next_ == count_) {
    return false;
  }
  send.index = next_;
  send.record = records_[next_++];
  const auto scaled = [this](std::chrono::nanoseconds time) {
    return std::isinf(load_) ? SimDuration{0} : to_sim_duration(to_seconds(time) / load_);
  };
  send.arrival = SimTime(scaled(send.record.arrival));
  send.record.arrival = send.arrival.time_since_epoch();
  send.record.think_time = scaled(send.record.think_time);
  return true;
}

}  // namespace kneepoint::sim
