// The adaptive sweep that finds the knees.
//
//  1  All requests of one seed at once: how fast the server empties its queue says
//     where capacity is, within a few percent, for the price of one run.
//  2  A few loads around it, each seed at each: the curve. The range grows until
//     the server no longer keeps up, and shrinks until it does.
//  3  For each seed by itself, each on the random numbers it had before:
//       saturation  what gets done just beyond; where a server gets less done in
//                   overload than before it, bisection by the trend test
//       SLO         the root of the margin over the logarithm of load, between the
//                   last load that meets it and the first that does not (regula
//                   falsi with the Illinois rule; bisection where a run was stopped)
//     and for all seeds the loads next to the elbow.
//  4  A knee whose interval is wider than asked for is read again from longer runs
//     near it, four times as long at most, until it is narrow enough. (That decides by
//     looking, so such intervals hold a little less often than 95 times in 100.)
//
// Beyond saturation no SLO is met: there a latency is no more than the length of
// the run. In a closed loop the queue is bounded, latencies settle, loads are whole.
//
// Half-widths of the step-time part follow without further runs. Were every step s
// times as long, a run at load x / s would be the run at x in slow motion, so
// saturation and elbow move to x / s, and the SLO's knee to where the run at x meets
// limits s times as tight (sim/slo.h).
//
// Sources  Illinois rule: M. Dowell, P. Jarratt, BIT 11, 1971. Common random
//          numbers: A. Law, Simulation Modeling and Analysis, ch. 11.
#pragma once

#include <optional>
#include <vector>

#include "sim/knee.h"
#include "sim/knee_lab.h"
#include "sim/slo.h"

namespace kneepoint::sim {

struct SearchOptions {
  Slo slo;
  double precision = 0.05;       ///< Half-width over load to stop at; SLO and saturation.
  std::int64_t requests = 4000;  ///< A run, to begin with; in a closed loop `requests_a_slot` says.
  std::int64_t max_requests = 40000;
  std::int64_t requests_a_slot = 10;  ///< Closed loop: a run has so many requests for each in flight.
  std::optional<double> min_load, max_load;
  std::optional<double> guess;  ///< Of capacity; nothing: by a run.
};

/// One seed's answer.
struct SeedKnee {
  KneeStatus status = KneeStatus::kNone;
  double load = 0;
  double step_time_sensitivity = 0;  ///< As Knee's.
};

struct SearchResult {
  std::vector<LoadPoint> points;    ///< By load.
  std::vector<Knee> knees;          ///< SLO if asked for, elbow, saturation.
  std::vector<Knee> first_knees;    ///< The same before any longer runs: what changes are paired with.
  std::int64_t requests_a_run = 0;  ///< Of those; at the highest load.
  std::size_t warm_up_at_knees = 0;
  double lag_at_rest = 1;           ///< Of the client (sim/saturation.h).
  bool precise = false;
};

[[nodiscard]] SearchResult search_knees(KneeLab& lab, const SearchOptions& options);

/// What runs that follow a knee take over from the search that found it.
struct FollowBasis {
  std::int64_t requests = 0;
  std::size_t warm_up = 0;
  double lag_at_rest = 1;
};

/// The SLO's or the saturation knee alone, of each seed of the lab, expected near
/// `near` of that seed: a handful of runs each.
[[nodiscard]] std::vector<SeedKnee> follow_knee(KneeLab& lab, const SearchOptions& options, KneeKind kind,
                                                const std::vector<double>& near, const FollowBasis& basis);

}  // namespace kneepoint::sim
