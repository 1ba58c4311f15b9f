// What a server promises, and by how much a run keeps it.
//
//     ttft:p99:500     99 of 100 requests get their first token within 500 ms
//     tpot:mean:50     the mean time per output token is at most 50 ms
//     goodput:0.95     95 of 100 requests are good: within each limit of --goodput
//
// METRIC is ttft, tpot, itl or e2el as `vllm bench serve` defines them, STAT is
// mean, median or a percentile p0 to p100. A request that was turned away or given
// up on met nothing: it counts as endless. One that this server could not run at
// any load (prompt too long, larger than the KV cache) counts nowhere.
//
// The margin of a run is the logarithm of measured over allowed, of the limit that
// is worst off: 0 exactly at the SLO, negative where it is met.
//
// If every step took `slowdown` times as long and the load were so much lower, all
// would happen in the same order, each time of the server stretched by that factor,
// the two front-end delays not: so the margin of a slower server is read off the
// run of this one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/run_config.h"
#include "sim/run_log.h"

namespace kneepoint::sim {

enum class SloMetric : std::uint8_t { kTtft, kTpot, kItl, kE2el };

struct SloLimit {
  SloMetric metric = SloMetric::kTtft;
  bool mean = false;
  double percentile = 99;
  double limit_ms = 0;
};

struct Slo {
  std::vector<SloLimit> limits;
  std::optional<double> good_share;  ///< Of requests within `good`.
  GoodputLimits good;
  std::vector<std::string> texts;  ///< As written.

  [[nodiscard]] bool any() const { return !limits.empty() || good_share.has_value(); }
  [[nodiscard]] bool needs_gaps() const;
  /// The tightest rule by which a run of `requests` can be stopped; nothing without a TTFT percentile or
  /// mean.
  [[nodiscard]] std::optional<StopRule> stop_rule(std::int64_t requests) const;
};

/// Adds `text` to `slo`. Throws UsageError, saying how it is written.
void add_slo(const std::string& text, Slo& slo);

/// What of a run counts.
struct LogView {
  const RunLog& log;
  std::size_t warm_up = 0;  ///< Requests cut.
  double slowdown = 1;
  std::int64_t front_end_ns = 0;
};

/// Sorted milliseconds of a metric; a request that was turned away is infinity.
[[nodiscard]] std::vector<double> sorted_ms(const LogView& view, SloMetric metric);
[[nodiscard]] double mean_of(const std::vector<double>& values);
/// As np.percentile. Before  sorted, not empty.
[[nodiscard]] double percentile_of(const std::vector<double>& sorted, double percentile);

/// Share of requests within all limits; 1 without requests.
[[nodiscard]] double good_share(const LogView& view, const GoodputLimits& limits);

/// Nothing for a run that was stopped, and one in which nothing counts. Before  slo.any().
[[nodiscard]] std::optional<double> slo_margin(const LogView& view, const Slo& slo);

}  // namespace kneepoint::sim
