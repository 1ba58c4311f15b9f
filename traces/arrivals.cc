#include "traces/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "traces/closest_name.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

// Independent intervals of mean 1 over `rate`.
class Renewal final : public ArrivalTimes {
 public:
  using Draw = double (*)(RandomStream&, double shape);

  Renewal(const ArrivalOptions& options, Draw draw, double shape)
      : stream_(options.seed, "arrivals"), draw_(draw), shape_(shape), rate_(options.rate) {}

  [[nodiscard]] double next_s() override {
    operational_time_ += draw_(stream_, shape_);
    return operational_time_ / rate_;
  }

 private:
  RandomStream stream_;
  Draw draw_;
  double shape_;
  double rate_;
  double operational_time_ = 0;
};

std::unique_ptr<ArrivalTimes> make_poisson(const ArrivalOptions& options) {
  return std::make_unique<Renewal>(
      options, [](RandomStream& stream, double) { return stream.exponential(); }, 0.0);
}

std::unique_ptr<ArrivalTimes> make_gamma(const ArrivalOptions& options) {
  return std::make_unique<Renewal>(
      options, [](RandomStream& stream, double shape) { return stream.gamma(shape) / shape; },
      options.burstiness.value_or(1.0));
}

constexpr std::array kProcesses{
    ArrivalProcessRow{"gamma", "gamma intervals, CV 1/sqrt(--burstiness)", &make_gamma},
    ArrivalProcessRow{"poisson", "exponential intervals, CV 1", &make_poisson},
};
static_assert(std::ranges::is_sorted(kProcesses, {}, &ArrivalProcessRow::name));

}  // namespace

std::span<const ArrivalProcessRow> arrival_processes() {
  return kProcesses;
}

std::unique_ptr<ArrivalTimes> make_arrivals(const ArrivalOptions& options) {
  if (!(options.rate > 0) || !std::isfinite(options.rate)) {
    throw TraceError(
        fmt::format("--rate is {}; it must be a number of requests a second above 0", options.rate));
  }
  if (options.burstiness && (!(*options.burstiness >= 1e-3) || !(*options.burstiness <= 1e6))) {
    throw TraceError(fmt::format("--burstiness is {}; it must lie in 0.001..1000000", *options.burstiness));
  }
  std::vector<std::string> names;
  for (const ArrivalProcessRow& row : kProcesses) {
    if (row.name == options.process) return row.make(options);
    names.emplace_back(row.name);
  }
  throw TraceError(fmt::format("--arrivals {} is not known{}; known are {}", options.process,
                               did_you_mean(options.process, names), fmt::join(names, ", ")));
}

}  // namespace kneepoint::traces
