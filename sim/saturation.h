// Does the server keep up, and if not, how much does it get done?
//
// Open loop. In a run that keeps up the queue comes back to where it was; beyond
// capacity it grows for as long as requests come. Let Q_i be the queue as request i
// finds it, cut the run after its warm-up into 20 blocks and let d_j be how much Q
// grew in block j. At capacity exactly Q is a random walk, which wanders off
// without any drift: a regression of Q on time would call half of these walks a
// trend (C. Granger, P. Newbold, J. Econometrics 2(2), 1974). Differences take the
// walk away: a one-sided t-test asks whether the mean of the d_j is above 0, and by
// more than chance shows in one run of a hundred. Bursts make the d_j large, not
// one-sided. The growth must matter, too: a hundredth of the arrivals at least, as
// a server that falls behind by less serves 99 of 100 in time. All seeds at one load
// are tested as one, their d_j averaged: five see what one cannot.
//
// Turns of a session wait for the answer before them, so the queue cannot grow
// without end; then it is the client that falls behind. If it takes a tenth longer to
// send its requests than at low load, the server does not keep up (outlasts()).
//
// What a server gets done that does not keep up is its capacity: completions per
// second over the second half of the arrivals, when it is as full as it gets.
//
// Closed loop. The queue cannot grow beyond the clients. The server keeps up if
// requests in flight run: by Little's law the share of them that wait is the mean
// time in the queue over the mean time in the server. Up to a step's length nobody
// could be served earlier, so a step is taken off; more than 5 % is a queue.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "sim/run_log.h"

namespace kneepoint::sim {

/// Student's t with 19 degrees of freedom exceeds this once in a hundred (any table).
inline constexpr double kTrendCriticalT = 2.539;

struct TrendTest {
  bool keeps_up = true;
  double t = 0;                 ///< Of the drift; closed loop: share of requests in flight that wait.
  double throughput_share = 1;  ///< Completions over arrivals, from the warm-up to the last arrival.
  double lag = 1;               ///< Time the client took to send all over the time it meant to; open loop.
};

/// Of runs at one load, each with so many requests; the second and third of one alone.
[[nodiscard]] TrendTest test_together(std::span<const RunLog> logs, std::size_t warm_up, bool closed);
[[nodiscard]] TrendTest test_open_loop(const RunLog& log, std::size_t warm_up);
[[nodiscard]] TrendTest test_closed_loop(const RunLog& log, std::size_t warm_up);

/// Whether the client has fallen behind, `at_rest` being its lag at low load.
[[nodiscard]] bool outlasts(const TrendTest& test, double at_rest);

/// Completions per second while requests came, second half; nothing if there were fewer than two.
[[nodiscard]] std::optional<double> completion_rate(const RunLog& log);

}  // namespace kneepoint::sim
