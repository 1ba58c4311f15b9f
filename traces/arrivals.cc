#include "traces/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "traces/closest_name.h"
#include "traces/exact_math.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

// Independent intervals of mean 1 over the rate.
class Renewal final : public ArrivalTimes {
 public:
  using Draw = double (*)(RandomStream&, double shape, double scale);

  /// `scale` makes the mean of what `draw` gives 1.
  Renewal(const ArrivalOptions& options, Draw draw, double shape = 0, double scale = 1)
      : stream_(options.seed, "arrivals"), draw_(draw), shape_(shape), scale_(scale), rate_(options.rate) {}

  [[nodiscard]] double next_s() override {
    operational_time_ += draw_(stream_, shape_, scale_);
    return operational_time_ / rate_;
  }

 private:
  RandomStream stream_;
  Draw draw_;
  double shape_;
  double scale_;
  double rate_;
  double operational_time_ = 0;
};

std::unique_ptr<ArrivalTimes> make_constant(const ArrivalOptions& options) {
  return std::make_unique<Renewal>(options, [](RandomStream&, double, double) { return 1.0; });
}

std::unique_ptr<ArrivalTimes> make_poisson(const ArrivalOptions& options) {
  return std::make_unique<Renewal>(options, [](RandomStream& s, double, double) { return s.exponential(); });
}

double draw_gamma(RandomStream& stream, double shape, double) {
  return stream.gamma(shape) / shape;
}

double gamma_shape(const ArrivalOptions& options) {
  if (options.cv) return 1 / (*options.cv * *options.cv);
  return options.burstiness.value_or(1.0);
}

std::unique_ptr<ArrivalTimes> make_gamma(const ArrivalOptions& options) {
  return std::make_unique<Renewal>(options, &draw_gamma, gamma_shape(options));
}

// exp(lgamma(1 + x)).
double factorial(double x) {
  return exact_exp(exact_log_gamma(1 + x));
}

std::unique_ptr<ArrivalTimes> make_weibull(const ArrivalOptions& options) {
  const double shape = options.cv ? weibull_shape_of_cv(*options.cv) : options.shape.value_or(1.0);
  return std::make_unique<Renewal>(
      options, [](RandomStream& s, double k, double scale) { return s.weibull(k) * scale; }, shape,
      1 / factorial(1 / shape));
}

std::unique_ptr<ArrivalTimes> make_pareto(const ArrivalOptions& options) {
  double shape = options.shape.value_or(1.5);
  if (options.cv) {
    if (!(*options.cv > 1))
      throw TraceError(fmt::format("--cv is {}; Pareto intervals have one above 1", *options.cv));
    shape = 2 * *options.cv * *options.cv / (*options.cv * *options.cv - 1);  // cv^2 = a / (a - 2).
  }
  if (!(shape > 1))
    throw TraceError(fmt::format("--shape is {}; Pareto intervals have a mean above 1 only", shape));
  return std::make_unique<Renewal>(
      options, [](RandomStream& s, double a, double scale) { return s.pareto(a) * scale; }, shape, shape - 1);
}

// Poisson arrivals whose rate depends on a state; states last exponential times
// and each of the others follows with the same probability, so the share of time
// in a state is that of its mean duration.
class ModulatedPoisson final : public ArrivalTimes {
 public:
  explicit ModulatedPoisson(const ArrivalOptions& options)
      : stream_(options.seed, "arrivals"),
        switches_(options.seed, "arrival-states"),
        states_(options.states) {
    double weighted = 0, seconds = 0;
    for (const RateState& state : states_) {
      weighted += state.weight * state.seconds;
      seconds += state.seconds;
    }
    for (RateState& state : states_) state.weight *= options.rate * seconds / weighted;
    left_s_ = switches_.exponential() * states_[state_].seconds;
  }

  [[nodiscard]] double next_s() override {
    double to_go = stream_.exponential();  // In units of rate times time.
    while (to_go > states_[state_].weight * left_s_) {
      to_go -= states_[state_].weight * left_s_;
      now_s_ += left_s_;
      const auto step = switches_.integer(1, static_cast<std::int64_t>(states_.size()) - 1);
      state_ = (state_ + static_cast<std::size_t>(step)) % states_.size();
      left_s_ = switches_.exponential() * states_[state_].seconds;
    }
    const double waited = to_go / states_[state_].weight;
    now_s_ += waited;
    left_s_ -= waited;
    return now_s_;
  }

 private:
  RandomStream stream_;
  RandomStream switches_;
  std::vector<RateState> states_;  // weight: requests a second.
  std::size_t state_ = 0;
  double left_s_ = 0;
  double now_s_ = 0;
};

std::unique_ptr<ArrivalTimes> make_mmpp(const ArrivalOptions& options) {
  if (options.states.size() < 2)
    throw TraceError("--arrivals mmpp needs --states WEIGHT:SECONDS,WEIGHT:SECONDS or more of them");
  double most = 0;
  for (const RateState& state : options.states) {
    if (!(state.weight >= 0) || !(state.seconds > 0) || !std::isfinite(state.weight + state.seconds)) {
      throw TraceError(fmt::format("--states {}:{}: WEIGHT must not be negative, SECONDS above 0",
                                   state.weight, state.seconds));
    }
    most = std::max(most, state.weight);
  }
  if (!(most > 0)) throw TraceError("--states: no state has a WEIGHT above 0");
  return std::make_unique<ModulatedPoisson>(options);
}

// `vllm bench serve` (spec.md 7.2): gamma intervals at a fixed rate, all scaled
// so that the last time is n / rate; or at the rate of the request's place in a
// ramp, unscaled. The scale needs the sum, so the same stream is drawn twice.
class BenchArrivals final : public ArrivalTimes {
 public:
  explicit BenchArrivals(const ArrivalOptions& options)
      : options_(options), shape_(options.burstiness.value_or(1.0)), stream_(options.seed, "arrivals") {
    if (!options_.ramp_up.empty()) return;
    RandomStream ahead = stream_;
    double sum = 0;
    for (std::uint64_t i = 0; i < options_.num_requests; ++i) sum += draw_gamma(ahead, shape_, 1);
    scale_ = static_cast<double>(options_.num_requests) / sum;
  }

  [[nodiscard]] double next_s() override {
    now_s_ += draw_gamma(stream_, shape_, 1) * scale_ / rate();
    ++index_;
    return now_s_;
  }

 private:
  [[nodiscard]] double rate() const {
    if (options_.ramp_up.empty()) return options_.rate;
    const double last = std::max(1.0, static_cast<double>(options_.num_requests) - 1);
    const double progress = static_cast<double>(index_) / last;
    if (options_.ramp_up == "linear")
      return options_.ramp_from + (options_.ramp_to - options_.ramp_from) * progress;
    return options_.ramp_from * exact_pow(options_.ramp_to / options_.ramp_from, progress);
  }

  ArrivalOptions options_;
  double shape_;
  RandomStream stream_;
  double scale_ = 1;
  double now_s_ = 0;
  std::uint64_t index_ = 0;
};

std::unique_ptr<ArrivalTimes> make_bench(const ArrivalOptions& options) {
  if (options.num_requests == 0)
    throw TraceError("--arrivals vllm-bench needs to know how many requests there are");
  if (!options.ramp_up.empty()) {
    const std::vector<std::string> known{"linear", "exponential"};
    if (std::ranges::find(known, options.ramp_up) == known.end()) {
      throw TraceError(fmt::format("--ramp-up-strategy {} is not known{}; known are linear, exponential",
                                   options.ramp_up, did_you_mean(options.ramp_up, known)));
    }
    if (!(options.ramp_from > 0) || !(options.ramp_to > 0)) {
      throw TraceError("--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps above 0");
    }
  }
  return std::make_unique<BenchArrivals>(options);
}

constexpr std::array kProcesses{
    ArrivalProcessRow{"constant", "equal intervals, CV 0", "", &make_constant},
    ArrivalProcessRow{"gamma", "gamma intervals, CV 1/sqrt(burstiness)", "burstiness cv", &make_gamma},
    ArrivalProcessRow{"mmpp", "Poisson whose rate jumps between states", "states", &make_mmpp},
    ArrivalProcessRow{"pareto", "heavy-tailed intervals", "shape cv", &make_pareto},
    ArrivalProcessRow{"poisson", "exponential intervals, CV 1", "", &make_poisson},
    ArrivalProcessRow{"vllm-bench", "as vllm bench serve, rescaled", "burstiness ramp_up", &make_bench},
    ArrivalProcessRow{"weibull", "Weibull intervals", "shape cv", &make_weibull},
};
static_assert(std::ranges::is_sorted(kProcesses, {}, &ArrivalProcessRow::name));

// Bends the times of another process by an envelope.
class Enveloped final : public ArrivalTimes {
 public:
  Enveloped(std::unique_ptr<ArrivalTimes> inner, RateEnvelope envelope)
      : inner_(std::move(inner)), clock_(std::move(envelope)) {}
  [[nodiscard]] double next_s() override { return clock_.time_of(inner_->next_s()); }

 private:
  std::unique_ptr<ArrivalTimes> inner_;
  EnvelopeClock clock_;
};

void check_range(std::string_view option, const std::optional<double>& value, double low, double high) {
  if (value && !(*value >= low && *value <= high)) {
    throw TraceError(fmt::format("{} is {}; it must lie in {}..{}", option, *value, low, high));
  }
}

// An option that the process would not look at is a misunderstanding.
void check_taken(const ArrivalOptions& options, const ArrivalProcessRow& row) {
  const auto refuse = [&](std::string_view name, std::string_view option, bool given) {
    if (given && row.options.find(name) == std::string_view::npos) {
      throw TraceError(fmt::format("{} does not belong to --arrivals {}", option, row.name));
    }
  };
  refuse("burstiness", "--burstiness", options.burstiness.has_value());
  refuse("cv", "--cv", options.cv.has_value());
  refuse("shape", "--shape", options.shape.has_value());
  refuse("states", "--states", !options.states.empty());
  refuse("ramp_up", "--ramp-up-strategy", !options.ramp_up.empty());
  if (options.cv && (options.burstiness || options.shape))
    throw TraceError("--cv and --burstiness or --shape say the same; give one");
}

}  // namespace

double weibull_shape_of_cv(double cv) {
  // cv^2 = Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1 falls as k grows: bisection.
  double low = 0.08, high = 200;
  for (int i = 0; i < 100; ++i) {
    const double k = std::sqrt(low * high);
    const double square = exact_exp(exact_log_gamma(1 + 2 / k) - 2 * exact_log_gamma(1 + 1 / k)) - 1;
    (square > cv * cv ? low : high) = k;
  }
  return std::sqrt(low * high);
}

std::span<const ArrivalProcessRow> arrival_processes() {
  return kProcesses;
}

std::unique_ptr<ArrivalTimes> make_arrivals(const ArrivalOptions& options) {
  check_range("--rate", options.rate, 1e-9, 1e9);
  check_range("--burstiness", options.burstiness, 1e-3, 1e6);
  check_range("--cv", options.cv, 0.01, 100);
  check_range("--shape", options.shape, 0.1, 100);
  std::vector<std::string> names;
  for (const ArrivalProcessRow& row : kProcesses) {
    names.emplace_back(row.name);
    if (row.name != options.process) continue;
    check_taken(options, row);
    auto times = row.make(options);
    if (options.envelope.flat()) return times;
    return std::make_unique<Enveloped>(std::move(times), options.envelope);
  }
  throw TraceError(fmt::format("--arrivals {} is not known{}; known are {}", options.process,
                               did_you_mean(options.process, names), fmt::join(names, ", ")));
}

}  // namespace kneepoint::traces
