// Fits corrections (calibrate/corrections.h) to what clients measured: simulate
// the same requests, compare request by request, change the corrections.
//
// Residuals are ln(predicted / measured) of each request's time to first token
// and time per output token, in their own robust standard deviations; the
// objective adds the priors:
//
//     | Q' r / s |^2 / (2 v)   +   theta' theta / 2
//
// One request's latency jumps with the step that it happens to catch, by more
// than any correction moves it; a derivative by request would be such jumps, and
// the fit would trust them. So residuals are looked at through Q, an orthonormal
// basis of what a correction's effect can depend on (a request's lengths, its
// time, its latencies without correction): a dozen averages that are smooth. Q
// holds Huber's weights; v is what autocorrelation costs (requests that ran
// together share their fate, so a thousand of them are not a thousand witnesses).
// Minimised by Gauss-Newton with bounded steps, the Jacobian by wide central differences (15 %).
//
// Source  L. P. Hansen, "Large sample properties of generalized method of
//         moments estimators", Econometrica 50(4), 1982, for the instruments;
//         B. Polyak, A. Juditsky, SIAM J. Control Optim. 30(4), 1992, for the average.
#pragma once

#include <string>
#include <vector>

#include "calibrate/corrections.h"
#include "calibrate/predict_run.h"

namespace kneepoint::calibrate {

/// Which requests of a run count; others are simulated, but not compared.
using RequestMask = std::vector<bool>;

struct FittedCorrection {
  std::string name;
  double value = 0;           ///< A factor, or seconds.
  double standard_error = 0;  ///< Of the same.
  bool identified = false;    ///< The run says clearly more than the prior.
  bool at_bound = false;
};

struct RunFit {
  Eigen::VectorXd theta;
  hw::MeasuredServer server;  ///< Corrected.
  double kv_blocks_factor = 1;
  std::vector<FittedCorrection> corrections;
  Eigen::MatrixXd correlation;  ///< Of the corrections, in corrections()'s order.
  std::vector<std::string> not_identified;
  int rounds = 0;
};

/// Requires as many masks as runs, each as long as its run has requests. Begins at
/// `start`, or without any correction. Throws CalibrateError if there are too few latencies.
[[nodiscard]] RunFit fit_corrections(const std::vector<Run>& runs, const std::vector<RequestMask>& masks,
                                     const hw::MeasuredServer& base, const Eigen::VectorXd* start = nullptr);

/// A summary over the masked requests of all runs.
struct ErrorRow {
  std::string metric;  ///< "mean_ttft_ms".
  double measured = 0;
  double predicted = 0;
  [[nodiscard]] double error() const { return measured > 0 ? predicted / measured - 1 : 0; }
};
[[nodiscard]] std::vector<ErrorRow> errors_of(const std::vector<Run>& runs, const std::vector<RequestMask>& masks,
                                              const hw::MeasuredServer& server, double kv_blocks_factor);

/// A measured server that takes as long as the GPU model of `run`'s own
/// configuration does for the steps of that run: where a fit without any step log
/// starts. `scatter` is the standard deviation of what the simpler form misses.
[[nodiscard]] hw::MeasuredServer server_like_gpu(const Run& run, double& scatter);

}  // namespace kneepoint::calibrate
