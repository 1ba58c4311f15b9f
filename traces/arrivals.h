// When requests come.
//
// A renewal process draws its intervals independently from one distribution of
// mean 1; its speed comes last, as a rate: interval / rate seconds. So burstiness,
// the spread of the intervals, is a matter of the process, and load a matter of
// the rate. An interval lies before the first request too.
//
//     constant     no spread at all; real clients are never like this
//     poisson      exponential intervals, CV 1: many independent clients
//     gamma        CV 1/sqrt(burstiness): below 1 bursts, above 1 evenness
//     weibull      tail exp(-x^shape): below 1 bursts with long silences
//     pareto       tail (1 + x)^-shape: self-similar traffic; from 2 on down no variance
//     mmpp         Poisson whose rate jumps between states (Markov-modulated)
//     vllm-bench   gamma, stretched so that the last request comes at n / rate; or
//                  with a ramp-up of the rate from request to request
//
// On top of any of them an envelope (traces/rate_envelope.h) bends time.
//
// Sources  Markov-modulated Poisson: W. Fischer, K. Meier-Hellstern, Performance
//          Evaluation 18(2), 1993. Pareto traffic: V. Paxson, S. Floyd, IEEE/ACM
//          ToN 3(3), 1995.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/random_stream.h"
#include "traces/rate_envelope.h"

namespace kneepoint::traces {

/// A state of mmpp: its rate relative to the others', and how long it lasts in the mean.
struct RateState {
  double weight = 1;
  double seconds = 1;
};

struct ArrivalOptions {
  std::string process;               ///< A name of arrival_processes().
  double rate = 0;                   ///< Requests a second in the mean, above 0.
  std::optional<double> burstiness;  ///< gamma, vllm-bench: shape of the intervals; default 1.
  std::optional<double> cv;        ///< gamma, weibull, pareto: standard deviation over mean of the intervals.
  std::optional<double> shape;     ///< weibull, pareto.
  std::vector<RateState> states;   ///< mmpp: two or more.
  std::string ramp_up;             ///< vllm-bench: "linear" or "exponential"; "": none, and rescaled.
  double ramp_from = 0;            ///< Requests a second at the first request
  double ramp_to = 0;              ///< and at the last.
  RateEnvelope envelope;           ///< Relative rate over time; default 1 throughout.
  std::uint64_t num_requests = 0;  ///< vllm-bench looks at the whole.
  std::uint64_t seed = 1;          ///< Streams "arrivals" and "arrival-states".
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
  std::string_view options;  ///< Which of burstiness, cv, shape, states, ramp_up it takes.
  std::unique_ptr<ArrivalTimes> (*make)(const ArrivalOptions&);
};

/// All processes, ordered by name.
[[nodiscard]] std::span<const ArrivalProcessRow> arrival_processes();

/// Throws TraceError for an unknown name, an option out of range or one that the
/// process does not take.
[[nodiscard]] std::unique_ptr<ArrivalTimes> make_arrivals(const ArrivalOptions& options);

/// Shape of Weibull intervals of coefficient of variation `cv`.
[[nodiscard]] double weibull_shape_of_cv(double cv);

}  // namespace kneepoint::traces
