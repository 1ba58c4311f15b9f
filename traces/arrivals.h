// When requests come.
//
// A process is a renewal process at unit rate: intervals of mean 1 from one
// distribution. Its speed comes last, as a rate: interval / rate seconds. So
// burstiness, the spread of the intervals, is a matter of the process, and load
// a matter of the rate. An interval lies before the first request too.
//
//     poisson     exponential intervals, CV 1: many independent clients
//     gamma       CV 1 / sqrt(burstiness): below 1 bursts, above 1 evenness
//
// Source  `vllm bench serve` draws gamma intervals of shape `burstiness`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "traces/random_stream.h"

namespace kneepoint::traces {

struct ArrivalOptions {
  std::string process;               ///< A name of arrival_processes().
  double rate = 0;                   ///< Requests a second, above 0.
  std::optional<double> burstiness;  ///< Of gamma; default 1.
  std::uint64_t num_requests = 0;    ///< For processes that look at the whole.
  std::uint64_t seed = 1;            ///< Stream "arrivals".
};

/// Times of arrival, one after another.
class ArrivalTimes {
 public:
  virtual ~ArrivalTimes() = default;
  /// Seconds from the start of the trace; never falls.
  [[nodiscard]] virtual double next_s() = 0;
};

/// One row per process; the row is the registration.
struct ArrivalProcessRow {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<ArrivalTimes> (*make)(const ArrivalOptions&);
};

/// All processes, ordered by name.
[[nodiscard]] std::span<const ArrivalProcessRow> arrival_processes();

/// Throws TraceError for an unknown name or an option out of range.
[[nodiscard]] std::unique_ptr<ArrivalTimes> make_arrivals(const ArrivalOptions& options);

}  // namespace kneepoint::traces
