#include "calibrate/robust_linear.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>
#include <limits>

namespace kneepoint::calibrate {

namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr int kRounds = 30;
constexpr int kMaxLag = 100;  // Autocorrelation of step times has died out by then.

// Solves for the columns in `passive` alone; the others are 0.
VectorXd solve_passive(const MatrixXd& normal, const VectorXd& rhs, const std::vector<bool>& passive) {
  std::vector<Index> columns;
  for (Index j = 0; j < rhs.size(); ++j) {
    if (passive[static_cast<std::size_t>(j)]) columns.push_back(j);
  }
  const Index n = static_cast<Index>(columns.size());
  MatrixXd part(n, n);
  VectorXd right(n);
  for (Index i = 0; i < n; ++i) {
    right(i) = rhs(columns[static_cast<std::size_t>(i)]);
    for (Index j = 0; j < n; ++j) {
      part(i, j) = normal(columns[static_cast<std::size_t>(i)], columns[static_cast<std::size_t>(j)]);
    }
  }
  const VectorXd solved = part.ldlt().solve(right);
  VectorXd x = VectorXd::Zero(rhs.size());
  for (Index i = 0; i < n; ++i) x(columns[static_cast<std::size_t>(i)]) = solved(i);
  return x;
}

// The median of |values|, as a standard deviation of a normal distribution.
double robust_scale(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return std::max(quantile(std::move(values), 0.5) * 1.4826, 1e-9);
}

void update_residuals(const LinearProblem& problem, LinearFit& fit) {
  fit.predicted = problem.design * fit.coefficients;
  fit.residual = problem.measured - fit.predicted;
  if (problem.relative) {
    fit.residual = fit.residual.cwiseQuotient(fit.predicted.cwiseMax(std::numeric_limits<double>::min()));
  }
  for (std::size_t g = 0; g < fit.scale.size(); ++g) {
    std::vector<double> of_group;
    for (std::size_t i = 0; i < problem.group.size(); ++i) {
      if (problem.group[i] == static_cast<int>(g)) of_group.push_back(fit.residual(static_cast<Index>(i)));
    }
    fit.scale[g] = robust_scale(std::move(of_group));
  }
}

// Square root of each row's weight: inverse of its standard deviation, less for outliers.
VectorXd root_weights(const LinearProblem& problem, const LinearFit& fit) {
  VectorXd weights(fit.residual.size());
  for (Index i = 0; i < weights.size(); ++i) {
    const double scale = fit.scale[static_cast<std::size_t>(problem.group[static_cast<std::size_t>(i)])];
    const double distance = std::abs(fit.residual(i)) / scale;
    const double huber = distance <= problem.huber ? 1.0 : std::sqrt(problem.huber / distance);
    const double given =
        problem.weight.empty() ? 1.0 : std::sqrt(problem.weight[static_cast<std::size_t>(i)]);
    weights(i) = given * huber / (problem.relative ? scale * fit.predicted(i) : scale);
  }
  return weights;
}

void fill_errors(const LinearProblem& problem, LinearFit& fit) {
  const Index n = fit.coefficients.size();
  // Rows of one kind follow each other in time; those of different kinds may lie far apart (steps, arrivals).
  fit.inflation.assign(fit.scale.size(), 1.0);
  for (std::size_t g = 0; g < fit.scale.size(); ++g) {
    std::vector<double> standard;
    for (Index i = 0; i < fit.residual.size(); ++i) {
      if (problem.group[static_cast<std::size_t>(i)] != static_cast<int>(g)) continue;
      standard.push_back(std::clamp(fit.residual(i) / fit.scale[g], -problem.huber, problem.huber));
    }
    for (int lag = 1; lag <= kMaxLag; ++lag) {
      const double rho = autocorrelation(standard, lag);
      if (rho <= 0) break;
      fit.inflation[g] += 2 * rho;
    }
  }
  const VectorXd weights = root_weights(problem, fit);
  const MatrixXd weighted = weights.asDiagonal() * problem.design;
  std::vector<Index> free;
  for (Index j = 0; j < n; ++j) {
    if (fit.coefficients(j) > 0) free.push_back(j);
  }
  const Index m = static_cast<Index>(free.size());
  MatrixXd part(weighted.rows(), m);
  for (Index j = 0; j < m; ++j) part.col(j) = weighted.col(free[static_cast<std::size_t>(j)]);
  // Sandwich: the weights trust every row alike, the errors of a group count `inflation` times.
  const MatrixXd bread = (part.transpose() * part).ldlt().solve(MatrixXd::Identity(m, m));
  for (Index i = 0; i < part.rows(); ++i) {
    part.row(i) *= std::sqrt(fit.inflation[static_cast<std::size_t>(problem.group[static_cast<std::size_t>(i)])]);
  }
  const MatrixXd covariance = bread * (part.transpose() * part) * bread;
  fit.standard_error = VectorXd::Zero(n);
  fit.correlation = MatrixXd::Identity(n, n);
  for (Index i = 0; i < m; ++i) {
    fit.standard_error(free[static_cast<std::size_t>(i)]) = std::sqrt(std::max(covariance(i, i), 0.0));
    for (Index j = 0; j < m; ++j) {
      const double spread = std::sqrt(covariance(i, i) * covariance(j, j));
      fit.correlation(free[static_cast<std::size_t>(i)], free[static_cast<std::size_t>(j)]) =
          spread > 0 ? covariance(i, j) / spread : 0.0;
    }
  }
}

}  // namespace

VectorXd nonnegative_least_squares(const MatrixXd& a, const VectorXd& b) {
  // Columns in very different units (a base, a sum of squares) are scaled to one length first.
  VectorXd lengths = a.colwise().norm().transpose();
  for (Index j = 0; j < lengths.size(); ++j) lengths(j) = lengths(j) > 0 ? lengths(j) : 1.0;
  const MatrixXd scaled = a * lengths.cwiseInverse().asDiagonal();
  const MatrixXd normal = scaled.transpose() * scaled;
  const VectorXd rhs = scaled.transpose() * b;
  const Index n = rhs.size();
  const double tolerance = 1e-10 * std::max(rhs.cwiseAbs().maxCoeff(), 1e-300);
  std::vector<bool> passive(static_cast<std::size_t>(n), false);
  VectorXd x = VectorXd::Zero(n);
  for (Index round = 0; round < 10 * n; ++round) {
    const VectorXd gradient = rhs - normal * x;
    Index best = -1;
    for (Index j = 0; j < n; ++j) {
      if (!passive[static_cast<std::size_t>(j)] && gradient(j) > tolerance &&
          (best < 0 || gradient(j) > gradient(best))) {
        best = j;
      }
    }
    if (best < 0) break;
    passive[static_cast<std::size_t>(best)] = true;
    VectorXd next = solve_passive(normal, rhs, passive);
    while (true) {  // Walk towards `next` until the first coefficient reaches 0; hold it there.
      double step = 1;
      for (Index j = 0; j < n; ++j) {
        if (passive[static_cast<std::size_t>(j)] && next(j) <= 0)
          step = std::min(step, x(j) / (x(j) - next(j)));
      }
      x += step * (next - x);
      if (step >= 1) break;
      for (Index j = 0; j < n; ++j) {
        if (passive[static_cast<std::size_t>(j)] && x(j) <= 1e-14) {
          passive[static_cast<std::size_t>(j)] = false;
          x(j) = 0;
        }
      }
      next = solve_passive(normal, rhs, passive);
    }
  }
  return x.cwiseMax(0.0).cwiseQuotient(lengths);
}

LinearFit fit_linear(const LinearProblem& problem) {
  BOOST_ASSERT(problem.design.rows() == problem.measured.size());
  BOOST_ASSERT(static_cast<Index>(problem.group.size()) == problem.measured.size());
  LinearFit fit;
  const int groups =
      problem.group.empty() ? 0 : *std::max_element(problem.group.begin(), problem.group.end()) + 1;
  fit.scale.assign(static_cast<std::size_t>(groups), 1.0);
  VectorXd weights = VectorXd::Ones(problem.measured.size());
  if (problem.relative)
    weights = problem.measured.cwiseMax(std::numeric_limits<double>::min()).cwiseInverse();
  for (int round = 0; round < kRounds; ++round) {
    fit.coefficients = nonnegative_least_squares(weights.asDiagonal() * problem.design,
                                                 weights.cwiseProduct(problem.measured));
    update_residuals(problem, fit);
    weights = root_weights(problem, fit);
  }
  fill_errors(problem, fit);
  return fit;
}

double autocorrelation(const std::vector<double>& series, int lag) {
  const std::size_t n = series.size();
  const auto shift = static_cast<std::size_t>(lag);
  if (n < shift + 2) return 0;
  double mean = 0;
  for (const double value : series) mean += value;
  mean /= static_cast<double>(n);
  double variance = 0, covariance = 0;
  for (std::size_t i = 0; i < n; ++i) {
    variance += (series[i] - mean) * (series[i] - mean);
    if (i + shift < n) covariance += (series[i] - mean) * (series[i + shift] - mean);
  }
  return variance > 0 ? covariance / variance : 0;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace kneepoint::calibrate
