#include "sim/warm_up.h"

#include <limits>
#include <vector>

namespace kneepoint::sim {
namespace {

constexpr std::size_t kBatch = 5;
constexpr std::size_t kFewestBatches = 4;

}  // namespace

std::size_t warm_up_length(std::span<const double> series) {
  const std::size_t batches = series.size() / kBatch;
  if (batches < kFewestBatches) {
    return 0;
  }
  std::vector<double> means(batches, 0.0);
  for (std::size_t i = 0; i < batches * kBatch; ++i) {
    means[i / kBatch] += series[i] / static_cast<double>(kBatch);
  }
  // From the back: mean and squared deviations of what is left (Welford).
  double mean = 0;
  double squares = 0;
  double count = 0;
  double best = std::numeric_limits<double>::infinity();
  std::size_t cut = 0;
  for (std::size_t d = batches; d-- > 0;) {
    count += 1;
    const double step = means[d] - mean;
    mean += step / count;
    squares += step * (means[d] - mean);
    if (d <= batches / 2 && squares / (count * count) <= best) {
      best = squares / (count * count);
      cut = d;
    }
  }
  return cut == batches / 2 ? 0 : cut * kBatch;
}

}  // namespace kneepoint::sim
