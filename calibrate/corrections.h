// The handful of named corrections that a run of a real server can make to a
// time model that was learned elsewhere.
//
//     bandwidth      factor on what a step costs without prefills: base, requests, their context
//     compute        factor on what prefill tokens and their attention add
//     step_cpu       more time between two steps
//     request_cpu    more of it for each token that the step before gave out
//     kv_blocks      factor on the number of KV blocks, where memory was computed and not logged
//     front_end_in   more time from the client's send to the scheduler
//     front_end_out  more time from a step's end to the client
//
// Each is one number with a prior around "no correction" and bounds. Fitted as
// theta, its distance from the prior's middle in the prior's standard deviations:
// a factor is exp(sd * theta), the others are sd * theta seconds.
#pragma once

#include <Eigen/Dense>
#include <span>
#include <string_view>

#include "hw/measured_step.h"

namespace kneepoint::calibrate {

struct CorrectionRow {
  std::string_view name;
  bool is_factor;
  double prior_sd;   ///< Of the factor's logarithm, or in seconds.
  double low, high;  ///< Of the correction itself.
  std::string_view what;
};

[[nodiscard]] std::span<const CorrectionRow> corrections();

enum CorrectionIndex : Eigen::Index {
  kBandwidth,
  kCompute,
  kStepCpu,
  kRequestCpu,
  kKvBlocks,
  kFrontEndIn,
  kFrontEndOut,
  kNumCorrections
};

/// The correction (a factor, or seconds) that theta stands for, within the bounds.
[[nodiscard]] double correction_of(Eigen::Index index, double theta);

/// How much the correction changes with theta.
[[nodiscard]] double correction_slope(Eigen::Index index, double theta);

/// `base` with all corrections but kv_blocks, which is the run's. No time becomes negative.
[[nodiscard]] hw::MeasuredServer corrected(const hw::MeasuredServer& base, const Eigen::VectorXd& theta);

/// Gives `server`, made by corrected(), the errors that `covariance` of theta
/// means, and `source` to every number it changed.
void set_errors(const Eigen::VectorXd& theta, const Eigen::MatrixXd& covariance, const std::string& source,
                hw::MeasuredServer& server);

}  // namespace kneepoint::calibrate
