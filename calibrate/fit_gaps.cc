#include "calibrate/fit_gaps.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/robust_linear.h"

namespace kneepoint::calibrate {

namespace {

using Eigen::Index;

constexpr std::size_t kMinGaps = 50;
constexpr std::size_t kFew = 10;  // Samples of the front end; fewer say nothing.

hw::Measured assumed(double value, const std::string& why) {
  return {value, 0, "assumed: " + why};
}

// Gaps and arrivals into an idle server are fitted together, because the latter
// hold a piece of the former: what a prefill adds behind the plan. An idle
// server's turnaround is long over.
//
//     gap          = base * gaps + per_output * outputs + with_prefill * prefills
//     idle arrival =                                      with_prefill            + arrival
//
// Fitted one after the other, the arrival's standard error would leave out that
// of with_prefill.
enum GapColumn : Index { kGapBase, kGapPerOutput, kGapWithPrefill, kArrival, kNumGapColumns };

void fit_time_between_steps(std::span<const RunSamples> runs, double huber, hw::MeasuredServer& server) {
  std::size_t gaps = 0, arrivals = 0;
  for (const RunSamples& run : runs) {
    gaps += run.gaps.size();
    arrivals += run.idle_arrivals.size();
  }
  server.arrival_s = assumed(0, "no client file");
  if (gaps < kMinGaps) {
    server.gap_base_s = server.gap_per_output_s = server.gap_with_prefill_s =
        assumed(0, "no client file, and the log's stamps have 1 s resolution");
    server.not_identified.emplace_back("the time between steps: needs a client file with ttfts and itls");
    return;
  }
  const bool with_arrivals = arrivals >= kFew;
  LinearProblem problem;
  problem.huber = huber;
  problem.relative = false;
  problem.design = Eigen::MatrixXd::Zero(static_cast<Index>(gaps + (with_arrivals ? arrivals : 0)),
                                         with_arrivals ? kNumGapColumns : kArrival);
  problem.measured.resize(problem.design.rows());
  Index row = 0;
  const auto add = [&](double seconds, int group) {
    problem.measured(row++) = seconds;
    problem.group.push_back(group);
  };
  for (const RunSamples& run : runs) {
    for (const GapSample& gap : run.gaps) {
      problem.design(row, kGapBase) = gap.gaps;
      problem.design(row, kGapPerOutput) = gap.outputs_before;
      problem.design(row, kGapWithPrefill) = gap.with_prefill;
      add(gap.seconds, gap.with_prefill > 0 ? 1 : 0);
    }
    for (std::size_t i = 0; with_arrivals && i < run.idle_arrivals.size(); ++i) {
      problem.design(row, kGapWithPrefill) = 1;
      problem.design(row, kArrival) = 1;
      add(run.idle_arrivals[i].seconds, 2);
    }
  }
  const LinearFit fit = fit_linear(problem);
  const auto take = [&](Index column, std::string source) {
    return hw::Measured{fit.coefficients(column), fit.standard_error(column), std::move(source)};
  };
  const std::string source = fitted_on(runs, gaps, "gaps seen by the client");
  server.gap_base_s = take(kGapBase, source);
  server.gap_per_output_s = take(kGapPerOutput, source);
  server.gap_with_prefill_s = take(kGapWithPrefill, source);
  server.correlations.push_back({"gap.base", "gap.per_output", fit.correlation(kGapBase, kGapPerOutput)});
  server.correlations.push_back({"gap.base", "gap.with_prefill", fit.correlation(kGapBase, kGapWithPrefill)});
  if (!with_arrivals) return;
  server.arrival_s = take(kArrival, fitted_on(runs, arrivals, "first tokens from an idle server"));
  server.correlations.push_back(
      {"gap.with_prefill", "front_end.arrival", fit.correlation(kGapWithPrefill, kArrival)});
}

// Median with the standard error of a median.
hw::Measured median_of(const std::vector<double>& values, std::string source) {
  const double spread = (quantile(values, 0.75) - quantile(values, 0.25)) / 1.349;
  return {std::max(quantile(values, 0.5), 0.0),
          1.2533 * spread / std::sqrt(static_cast<double>(values.size())), std::move(source)};
}

// The share of arrivals into a busy server that catch the step they caught.
double share_caught(std::span<const RunSamples> runs, const hw::MeasuredServer& server) {
  double caught = 0, count = 0;
  for (const RunSamples& run : runs) {
    for (const BusyArrival& arrival : run.busy_arrivals) {
      if (!arrival.low_s) continue;
      // The engine looks at its inputs a turnaround after the step before ended.
      const auto turnaround = [&](double outputs) {
        return server.gap_base_s.value + server.gap_per_output_s.value * outputs;
      };
      const double seconds = server.arrival_s.value;
      count += 1;
      caught += seconds > *arrival.low_s + turnaround(arrival.low_outputs) &&
                        seconds <= arrival.high_s + turnaround(arrival.high_outputs)
                    ? 1
                    : 0;
    }
  }
  return count > 0 ? caught / count : 0;
}

// Without arrivals into an idle server, the delay that catches most steps: the
// middle of the best stretch, on a grid of 0.1 ms.
double best_catch_s(std::span<const RunSamples> runs, hw::MeasuredServer server) {
  double best = -1, first = 0, last = 0;
  for (int tenths = 0; tenths <= 500; ++tenths) {
    server.arrival_s.value = tenths * 1e-4;
    const double share = share_caught(runs, server);
    if (share > best + 1e-12) {
      best = share;
      first = server.arrival_s.value;
    }
    if (share > best - 1e-12) last = server.arrival_s.value;
  }
  return (first + last) / 2;
}

void fit_front_end(std::span<const RunSamples> runs, hw::MeasuredServer& server) {
  std::vector<double> delays, turnarounds;
  std::size_t busy = 0;
  for (const RunSamples& run : runs) {
    delays.insert(delays.end(), run.output_delays_s.begin(), run.output_delays_s.end());
    turnarounds.insert(turnarounds.end(), run.turnarounds_s.begin(), run.turnarounds_s.end());
    busy += run.busy_arrivals.size();
  }
  server.output_s = assumed(0, "only way in and way out together can be seen; all of it is in arrival");
  if (server.arrival_s.standard_error > 0) {
    server.arrival_s.source += fmt::format("; {:.0f} % of arrivals into a busy one catch the right step",
                                           share_caught(runs, server) * 100);
  } else if (busy >= kFew) {
    server.arrival_s = {best_catch_s(runs, server), 0.5e-3, fitted_on(runs, busy, "arrivals into a busy server")};
  }
  server.output_per_request_s =
      delays.size() >= kFew
          ? median_of(delays, fitted_on(runs, delays.size(), "tokens that came with others"))
          : assumed(0, "no client file, or no two requests in one step");
  server.turnaround_s =
      turnarounds.size() >= kFew
          ? median_of(turnarounds, fitted_on(runs, turnarounds.size(), "sends after an answer"))
          : assumed(0, "no closed-loop run among these");
  server.not_identified.emplace_back(
      "front_end.arrival against front_end.output: the client sees only their sum");
}

}  // namespace

void fit_gaps(std::span<const RunSamples> runs, double huber, hw::MeasuredServer& server) {
  fit_time_between_steps(runs, huber, server);
  fit_front_end(runs, server);
}

}  // namespace kneepoint::calibrate
