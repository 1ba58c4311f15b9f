// Which process and which lengths describe a trace.
//
// Intervals: each renewal family at the trace's own mean, its shape by maximum
// likelihood. So a fit is what `traces generate` would draw at --rate, and its
// distance is that of the drawn intervals. Families are ranked by likelihood;
// the Kolmogorov-Smirnov distance says how good the best one is (0.02 is close,
// 0.2 is not).
//
// A renewal process has no memory. Where neighbouring intervals are alike, or the
// counts of windows spread more than the family makes them, a two-state modulated
// Poisson process is fitted to the windows' counts: windows busier than the mean
// and those that are not, their rates, and how long a run of either lasts.
//
// Lengths: lognormal by the moments of the logarithms against uniform, by
// distance; their dependence as the correlation of normal scores, which is what
// generate's copula takes (van der Waerden).
//
// Memory: 24 bytes a request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/record_source.h"

namespace kneepoint::traces {

struct IntervalFit {
  std::string_view process;   ///< A name of arrival_processes().
  double shape = 0;           ///< burstiness of gamma, shape of weibull and pareto.
  double log_likelihood = 0;  ///< Per interval, in units of the mean.
  double ks_distance = 0;
};

struct LengthFit {
  std::string text;  ///< In the form of parse_lengths().
  double ks_distance = 0;
};

struct TraceFit {
  std::uint64_t num_requests = 0;
  double rate = 0;  ///< Intervals over the time between first and last arrival.
  double cv = 0;
  double autocorrelation = 0;
  double dispersion = 0;  ///< Variance over mean of the counts in windows of 20 mean intervals; 1 is Poisson.
  double median_over_mean = 0, p99_over_mean = 0, p999_over_mean = 0;  ///< Of the intervals.
  std::uint64_t zero_intervals = 0;    ///< Equal stamps: spread over the tick of their clock.
  std::vector<IntervalFit> intervals;  ///< Best first.
  std::string states;                  ///< mmpp's --states, if the trace has a memory; else "".
  LengthFit prompt, output;
  double length_correlation = 0;

  /// A `traces generate` line that makes a trace like it.
  [[nodiscard]] std::string command() const;
};

/// Throws TraceError for fewer than 10 requests or no time between them.
[[nodiscard]] TraceFit fit_trace(RecordSource& records, const std::string& name);

}  // namespace kneepoint::traces
