#include "calibrate/microbench/reference.h"

#include <algorithm>
#include <cmath>

namespace kneepoint::microbench {

std::vector<double> reference_attention(const std::vector<double>& query, int tokens, double scale,
                                        const RowReader& key, const RowReader& value) {
  const auto head_size = static_cast<int>(query.size());
  std::vector<double> weights;
  double largest = -HUGE_VAL;
  for (int token = 0; token < tokens; ++token) {
    double score = 0;
    for (int d = 0; d < head_size; ++d) score += query[static_cast<std::size_t>(d)] * key(token, d);
    weights.push_back(score * scale);
    largest = std::max(largest, weights.back());
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  std::vector<double> output(query.size(), 0);
  for (int token = 0; token < tokens; ++token) {
    const double weight = weights[static_cast<std::size_t>(token)] / sum;
    for (int d = 0; d < head_size; ++d) output[static_cast<std::size_t>(d)] += weight * value(token, d);
  }
  return output;
}

double reference_dot(const std::vector<double>& x, const std::vector<double>& w) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * w[i];
  return sum;
}

double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double worst = 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // A comparison with a number that is none is false; it must count as wrong.
    const double error = std::abs(got[i] - expected[i]);
    worst = error <= worst ? worst : std::isfinite(error) ? error : HUGE_VAL;
    largest = std::max(largest, std::abs(expected[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

}  // namespace kneepoint::microbench
