#include "traces/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "traces/record_check.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

class Uniform final : public LengthModel {
 public:
  Uniform(std::int64_t low, std::int64_t high) : low_(low), width_(static_cast<double>(high - low + 1)) {}

  [[nodiscard]] std::int64_t quantile(double u) const override {
    return low_ + static_cast<std::int64_t>(u * width_);
  }

 private:
  std::int64_t low_;
  double width_;
};

}  // namespace

std::unique_ptr<LengthModel> uniform_lengths(std::int64_t mean, double ratio) {
  if (mean < 1 || mean > kMaxTokens / 2) {
    throw TraceError(fmt::format("a length of {} tokens; it must lie in 1..{}", mean, kMaxTokens / 2));
  }
  if (!(ratio >= 0) || !(ratio < 1)) {
    throw TraceError(fmt::format("--random-range-ratio is {}; it must be at least 0 and below 1", ratio));
  }
  const auto middle = static_cast<double>(mean);
  const auto low = static_cast<std::int64_t>(std::floor(middle * (1 - ratio)));
  const auto high = static_cast<std::int64_t>(std::ceil(middle * (1 + ratio)));
  return std::make_unique<Uniform>(std::max<std::int64_t>(low, 1), high);
}

}  // namespace kneepoint::traces
