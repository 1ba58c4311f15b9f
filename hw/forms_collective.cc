#include "hw/forms_collective.h"

#include <algorithm>
#include <array>

namespace kneepoint::hw {

namespace {
constexpr double kBytesPerUsOfAGigabyte = 1e3;

using P = CollectiveParams;
constexpr std::array<ParameterSpec<P>, 6> kParameters{{
    {"latency1", "us", &P::latency1_us, 1, 1000, 5, "first line, for the smallest messages"},
    {"bandwidth1", "GB/s", &P::bandwidth1, 0.05, 2000, 50, "message bytes over time, first line"},
    {"latency2", "us", &P::latency2_us, 1, 1000, 10, "second line"},
    {"bandwidth2", "GB/s", &P::bandwidth2, 0.05, 2000, 150, "message bytes over time, second line"},
    {"latency3", "us", &P::latency3_us, 1, 3000, 60, "third line, for the largest messages"},
    {"bandwidth3", "GB/s", &P::bandwidth3, 0.05, 2000, 250, "message bytes over time, third line"},
}};
}  // namespace

std::span<const ParameterSpec<CollectiveParams>> collective_parameters() {
  return kParameters;
}

double collective_us(double message_bytes, double crossing_bytes, const CollectiveParams& params,
                     double link_bytes_per_us) {
  const auto line = [&](double latency_us, double gigabytes_per_s) {
    return latency_us + message_bytes / (gigabytes_per_s * kBytesPerUsOfAGigabyte);
  };
  const double fastest =
      std::min({line(params.latency1_us, params.bandwidth1), line(params.latency2_us, params.bandwidth2),
                line(params.latency3_us, params.bandwidth3)});
  return std::max(fastest, crossing_bytes / link_bytes_per_us);
}

}  // namespace kneepoint::hw
