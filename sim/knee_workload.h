// The same requests at any load.
//
// A workload is asked for n requests of one seed at unit rate: the last one comes
// n seconds after the start, one a second on average. At load x all its times are
// divided by x, so every load of a seed sees the same requests in the same rhythm:
// what differs between two loads is the load (common random numbers). The mean rate
// is exact in every seed, as with `vllm bench serve --request-rate`.
//
// From a trace. One trace is one sample, so seeds are made of blocks of it: runs of
// consecutive records with the gaps between them, drawn with replacement from any
// starting point (moving blocks). A block is long enough to keep a burst whole, a
// sixteenth of the run, and at most a quarter of the trace. What only one block uses
// is renamed with each draw, contents and sessions alike, so that a block drawn
// twice does not hit the prefix cache of its first copy; what the trace shares
// beyond the block, a system prompt, stays shared. Times are stretched all alike,
// think times included.
//
// Arrivals may be drawn instead (gamma intervals; burstiness 1 is Poisson), and
// lengths may come from distributions, without any trace.
//
// Source  H. R. Künsch, "The jackknife and the bootstrap for general stationary
//         observations", Annals of Statistics 17(3), 1989.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/client.h"
#include "traces/trace_record.h"

namespace kneepoint::sim {

class KneeWorkload {
 public:
  virtual ~KneeWorkload() = default;
  /// `n` records at unit rate. Equal arguments, equal records.
  [[nodiscard]] virtual std::vector<traces::TraceRecord> requests(std::uint64_t seed,
                                                                  std::int64_t n) const = 0;
};

/// Blocks of a trace. `burstiness`: draw the arrivals; nothing: the trace's own gaps.
[[nodiscard]] std::unique_ptr<KneeWorkload> blocks_of_trace(std::vector<traces::TraceRecord> trace,
                                                            std::optional<double> burstiness);

/// Lengths as `traces generate --prompt-tokens --output-tokens` writes them, one
/// independent of the other.
struct DrawnLengths {
  std::string prompt_tokens;
  std::string output_tokens;
  double range_ratio = 0;
};
/// Throws TraceError for lengths that cannot be read.
[[nodiscard]] std::unique_ptr<KneeWorkload> drawn_requests(const DrawnLengths& lengths, double burstiness);

/// The first `count` of `records` at `load` requests per second; all at once for an
/// infinite load. `records` must outlive it.
class LoadedWorkload final : public Workload {
 public:
  LoadedWorkload(const std::vector<traces::TraceRecord>& records, std::int64_t count, double load);
  [[nodiscard]] bool next(Send& send) override;

 private:
  const std::vector<traces::TraceRecord>& records_;
  std::size_t count_;
  double load_;
  std::size_t next_ = 0;
};

}  // namespace kneepoint::sim
