#include "calibrate/fit_least_squares.h"

#include <algorithm>
#include <cmath>

namespace kneepoint::calibrate {

namespace {

constexpr double kDifference = 1e-3;  // Relative step of the finite differences.
constexpr double kFirstDamping = 1e-2;
constexpr double kLargestDamping = 1e8;
constexpr double kLeastCurvature = 1e-5;
constexpr double kLeastNotice = 1e-4;  // Of the strongest parameter's effect on the rows.
constexpr double kLargestStep = 1.0;  // Of a logarithm, in one iteration.
constexpr double kConverged = 1e-7;   // Relative gain in cost.

double robust_cost(const Eigen::VectorXd& residual, double scale) {
  double sum = 0;
  for (const double r : residual) sum += std::sqrt(1 + (r / scale) * (r / scale)) - 1;
  return 2 * scale * scale * sum;
}

// One fit in progress; x are logarithms.
class Minimiser {
 public:
  explicit Minimiser(const FitProblem& problem)
      : problem_(problem),
        log_measured_(problem.measured.array().log()),
        lower_(problem.lower.array().log()),
        upper_(problem.upper.array().log()) {}

  [[nodiscard]] Eigen::VectorXd clamp(const Eigen::VectorXd& x) const {
    return x.cwiseMax(lower_).cwiseMin(upper_);
  }

  /// Back from logarithms. A fixed parameter, a tile size say, keeps its exact value.
  [[nodiscard]] Eigen::VectorXd parameters(const Eigen::VectorXd& x) const {
    Eigen::VectorXd result = x.array().exp();
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      if (fixed(i)) result[i] = problem_.lower[i];
    }
    return result;
  }

  [[nodiscard]] Eigen::VectorXd residual(const Eigen::VectorXd& x) const {
    Eigen::VectorXd predicted(problem_.measured.size());
    problem_.predict(parameters(x), predicted);
    return predicted.array().log().matrix() - log_measured_;
  }

  [[nodiscard]] Eigen::MatrixXd jacobian(const Eigen::VectorXd& x) const {
    Eigen::MatrixXd result(problem_.measured.size(), x.size());
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      if (fixed(i)) {
        result.col(i).setZero();
        continue;
      }
      Eigen::VectorXd up = x;
      Eigen::VectorXd down = x;
      up[i] = std::min(x[i] + kDifference, upper_[i]);
      down[i] = std::max(x[i] - kDifference, lower_[i]);
      result.col(i) = (residual(up) - residual(down)) / (up[i] - down[i]);
    }
    return result;
  }

  [[nodiscard]] bool fixed(Eigen::Index i) const { return !(upper_[i] > lower_[i]); }
  /// Whether x[i] may move against the gradient.
  [[nodiscard]] bool free(Eigen::Index i, double x, double gradient) const {
    if (fixed(i)) return false;
    if (x <= lower_[i] && gradient > 0) return false;
    return !(x >= upper_[i] && gradient < 0);
  }
  [[nodiscard]] bool at_bound(Eigen::Index i, double x) const {
    constexpr double kNear = 1e-6;
    return x - lower_[i] < kNear || upper_[i] - x < kNear;
  }

 private:
  const FitProblem& problem_;
  Eigen::VectorXd log_measured_;
  Eigen::VectorXd lower_;
  Eigen::VectorXd upper_;
};

Eigen::VectorXd weights_of(const Eigen::VectorXd& residual, double scale) {
  return (1 + (residual.array() / scale).square()).rsqrt();
}

// Solves the damped normal equations on the free parameters.
Eigen::VectorXd damped_step(const Eigen::MatrixXd& hessian, const Eigen::VectorXd& gradient,
                            const std::vector<Eigen::Index>& free, double damping) {
  const auto n = static_cast<Eigen::Index>(free.size());
  Eigen::MatrixXd a(n, n);
  Eigen::VectorXd b(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const Eigen::Index row = free[static_cast<std::size_t>(i)];
    b[i] = -gradient[row];
    for (Eigen::Index j = 0; j < n; ++j) a(i, j) = hessian(row, free[static_cast<std::size_t>(j)]);
  }
  // A parameter that the rows hardly notice is damped as if they noticed it a little; else its step would be
  // huge and mean nothing.
  const double floor = kLeastCurvature * hessian.diagonal().maxCoeff();
  for (Eigen::Index i = 0; i < n; ++i)
    a(i, i) += damping * std::max(a(i, i), floor) + floor * kLeastCurvature;
  const Eigen::VectorXd solution = a.ldlt().solve(b);
  Eigen::VectorXd step = Eigen::VectorXd::Zero(gradient.size());
  for (Eigen::Index i = 0; i < n; ++i) step[free[static_cast<std::size_t>(i)]] = solution[i];
  return step.cwiseMax(-kLargestStep).cwiseMin(kLargestStep);
}

}  // namespace

FitResult fit_from(const FitProblem& problem, const Eigen::VectorXd& start, int max_iterations) {
  const Minimiser at(problem);
  Eigen::VectorXd x = at.clamp(start.array().log().matrix());
  Eigen::VectorXd residual = at.residual(x);
  double cost = robust_cost(residual, problem.scale);
  double damping = kFirstDamping;
  FitResult result;
  for (bool moved = true; moved && result.iterations < max_iterations; ++result.iterations) {
    const Eigen::MatrixXd jacobian = at.jacobian(x);
    const Eigen::MatrixXd weighted = weights_of(residual, problem.scale).asDiagonal() * jacobian;
    const Eigen::MatrixXd hessian = jacobian.transpose() * weighted;
    const Eigen::VectorXd gradient = weighted.transpose() * residual;
    std::vector<Eigen::Index> free;
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      if (at.free(i, x[i], gradient[i])) free.push_back(i);
    }
    if (free.empty()) break;
    moved = false;
    for (; damping < kLargestDamping; damping *= 4) {
      const Eigen::VectorXd next = at.clamp(x + damped_step(hessian, gradient, free, damping));
      const Eigen::VectorXd next_residual = at.residual(next);
      const double next_cost = robust_cost(next_residual, problem.scale);
      if (!(next_cost < cost)) continue;
      moved = cost - next_cost > kConverged * cost;
      x = next;
      residual = next_residual;
      cost = next_cost;
      damping = std::max(damping / 8, 1e-9);
      break;
    }
  }
  result.parameters = at.parameters(x);
  result.cost = cost;
  return result;
}

namespace {

// Sandwich estimate: the curvature says how well a parameter is held, the spread
// of the residuals how much the rows disagree.
void add_errors(const FitProblem& problem, FitResult& fit) {
  const Minimiser at(problem);
  const Eigen::VectorXd x = fit.parameters.array().log();
  const Eigen::Index n = x.size();
  const Eigen::VectorXd residual = at.residual(x);
  const Eigen::MatrixXd jacobian = at.jacobian(x);
  const Eigen::VectorXd weight = weights_of(residual, problem.scale);
  std::vector<Eigen::Index> free;
  for (Eigen::Index i = 0; i < n; ++i) {
    const bool told = jacobian.col(i).norm() > kLeastNotice * jacobian.colwise().norm().maxCoeff();
    if (!at.fixed(i) && !at.at_bound(i, x[i]) && told) free.push_back(i);
  }
  fit.standard_error = Eigen::VectorXd::Zero(n);
  fit.correlation = Eigen::MatrixXd::Identity(n, n);
  if (free.empty()) return;
  const auto size = static_cast<Eigen::Index>(free.size());
  Eigen::MatrixXd part(jacobian.rows(), size);
  for (Eigen::Index i = 0; i < size; ++i) part.col(i) = jacobian.col(free[static_cast<std::size_t>(i)]);
  const Eigen::MatrixXd bread =
      (part.transpose() * weight.asDiagonal() * part).completeOrthogonalDecomposition().pseudoInverse();
  const Eigen::VectorXd score = (weight.array() * residual.array()).square();
  const Eigen::MatrixXd covariance = bread * (part.transpose() * score.asDiagonal() * part) * bread;
  const Eigen::VectorXd sigma = covariance.diagonal().cwiseMax(0).cwiseSqrt();
  for (Eigen::Index i = 0; i < size; ++i) {
    const Eigen::Index row = free[static_cast<std::size_t>(i)];
    fit.standard_error[row] = sigma[i] * fit.parameters[row];
    for (Eigen::Index j = 0; j < size; ++j) {
      if (i == j || !(sigma[i] * sigma[j] > 0)) continue;
      fit.correlation(row, free[static_cast<std::size_t>(j)]) = covariance(i, j) / (sigma[i] * sigma[j]);
    }
  }
}

}  // namespace

FitResult fit_robust(const FitProblem& problem, const Eigen::VectorXd& start, int num_starts) {
  FitResult best = fit_from(problem, start);
  for (int s = 1; s < num_starts; ++s) {
    Eigen::VectorXd other = start;
    for (Eigen::Index i = 0; i < other.size(); ++i) {
      // Signs of a Walsh function: each start moves another half of the parameters.
      const auto bits = static_cast<unsigned>(i) & static_cast<unsigned>(s);
      const bool up = (__builtin_popcount(bits) % 2 == 0) != (i % 3 == s % 3);
      other[i] *= up ? 2.0 : 0.5;
    }
    const FitResult found = fit_from(problem, other);
    if (found.cost < best.cost) best = found;
  }
  add_errors(problem, best);
  return best;
}

}  // namespace kneepoint::calibrate
