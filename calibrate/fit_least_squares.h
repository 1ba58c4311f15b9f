// Bounded, robust least squares on the logarithm of predicted over measured.
//
// A table of operator times spans four decades, and an error of 10 % is as bad
// at 5 us as at 5 ms: the residual of a row is r = log(predicted / measured).
// Some rows are simply odd (a kernel chosen badly), so a large residual counts
// about linearly and not squared ("soft L1"):
//
//     cost = sum over rows of  s^2 2 (sqrt(1 + (r / s)^2) - 1)
//
// Every parameter is positive and runs in its own logarithm, between bounds. The
// method is Levenberg-Marquardt on the reweighted rows; a parameter whose step
// would leave its bounds stays there for the iteration. Derivatives are finite
// differences: the forms take minima over kernels, are only piecewise smooth,
// and have a dozen parameters.
//
// The same start gives the same result to the last bit: no random numbers here.
//
// Source  K. Levenberg 1944, D. Marquardt 1963; soft L1 as in P. Charbonnier et al. 1997.
#pragma once

#include <Eigen/Dense>
#include <functional>
#include <vector>

namespace kneepoint::calibrate {

struct FitProblem {
  /// Predicted value of each row for parameters (not their logarithms); all > 0.
  std::function<void(const Eigen::VectorXd& parameters, Eigen::VectorXd& predicted)> predict;
  Eigen::VectorXd measured;
  Eigen::VectorXd lower;
  Eigen::VectorXd upper;  ///< Equal to lower: the parameter stands still.
  double scale = 0.06;    ///< s above: residuals beyond it count less.
};

struct FitResult {
  Eigen::VectorXd parameters;
  double cost = 0;
  Eigen::VectorXd standard_error;  ///< Of the parameter itself; 0 where it stands still or at a bound.
  Eigen::MatrixXd correlation;     ///< Of the logarithms; unit diagonal.
  int iterations = 0;
};

/// The best fit from `start` alone.
[[nodiscard]] FitResult fit_from(const FitProblem& problem, const Eigen::VectorXd& start,
                                 int max_iterations = 60);

/// The best of several starts: `start` itself, and points where each parameter
/// is moved up or down by a fixed pattern. Errors and correlations are filled in.
[[nodiscard]] FitResult fit_robust(const FitProblem& problem, const Eigen::VectorXd& start, int num_starts);

}  // namespace kneepoint::calibrate
