#include "calibrate/error_summary.h"

#include <algorithm>
#include <cmath>

namespace kneepoint::calibrate {

namespace {
double quantile(const std::vector<double>& sorted, double q) {
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}
}  // namespace

ErrorSummary summarise(std::vector<double> errors) {
  if (errors.empty()) return {};
  ErrorSummary summary{.count = static_cast<std::int64_t>(errors.size())};
  std::ranges::sort(errors);
  summary.bias = quantile(errors, 0.5);
  for (double& error : errors) error = std::abs(error);
  std::ranges::sort(errors);
  summary.median = quantile(errors, 0.5);
  summary.p90 = quantile(errors, 0.9);
  summary.worst = errors.back();
  return summary;
}

}  // namespace kneepoint::calibrate
