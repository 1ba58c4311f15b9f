// Robust linear regression with non-negative coefficients and relative errors.
//
// Times of steps are positive sums of costs, so no coefficient may be negative;
// a step of 300 ms that is 5 ms off is as good as one of 6 ms that is 0.1 ms
// off; and a machine that others use delays some steps for reasons that are not
// the server's. Hence
//
//     minimise  sum over rows of  rho(r / s),   r = (measured - predicted) / predicted,   coefficients >= 0
//
// where rho is Huber's (squared up to `huber` standard deviations, linear
// beyond) and s the residuals' own robust scale in the row's group (decode-only
// steps scatter more than prefills). Solved by reweighted least squares; each
// round is a non-negative least squares problem of a dozen unknowns.
//
// Source  P. J. Huber, "Robust Statistics", 1981, ch. 7; C. Lawson, R. Hanson,
//         "Solving Least Squares Problems", 1974, ch. 23 (NNLS).
#pragma once

#include <Eigen/Dense>
#include <vector>

namespace kneepoint::calibrate {

struct LinearProblem {
  Eigen::MatrixXd design;      ///< One row a sample, one column a coefficient.
  Eigen::VectorXd measured;    ///< All > 0 where `relative`.
  std::vector<int> group;      ///< Of each row, from 0; a group has its own scale.
  std::vector<double> weight;  ///< Of each row beyond its variance; empty: all 1.
  double huber = 3;            ///< In standard deviations.
  bool relative = true;        ///< Residuals as shares of the prediction, or as they are.
};

struct LinearFit {
  Eigen::VectorXd coefficients;
  Eigen::VectorXd standard_error;  ///< Widened for autocorrelated residuals; 0 for a coefficient held at 0.
  Eigen::MatrixXd correlation;     ///< Unit diagonal; 0 with coefficients held at 0.
  Eigen::VectorXd predicted;
  Eigen::VectorXd residual;   ///< As `relative` says.
  std::vector<double> scale;  ///< Of each group.
  std::vector<double> inflation;  ///< Of each group: variance factor that autocorrelation costs.
};

/// min |A x - b| with x >= 0.
[[nodiscard]] Eigen::VectorXd nonnegative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

/// Rows of a group in the order in which they were measured: the errors' autocorrelation is taken along it.
[[nodiscard]] LinearFit fit_linear(const LinearProblem& problem);

/// Correlation of a series with itself `lag` entries on; 0 if it is too short.
[[nodiscard]] double autocorrelation(const std::vector<double>& series, int lag);

/// The q-quantile (0 to 1) by linear interpolation; 0 for no values.
[[nodiscard]] double quantile(std::vector<double> values, double q);

}  // namespace kneepoint::calibrate
