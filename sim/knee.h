// How much traffic a set-up takes before its latency breaks.
//
// The same workload is run at many loads, the same random numbers at each of them
// (sim/knee_search.h). Load is requests per second, or, in a closed loop,
// requests in flight. Three knees come out of it:
//
//     p99 TTFT                                  SLO         highest load that meets every limit
//        |                          :  /        elbow       where the curve turns up: Kneedle on p99
//        |- - - - - - - - limit - -:-/- -                   TTFT, over the loads the server keeps up with
//        |                     .·:  /           saturation  highest load the server keeps up with:
//        |  .  .  .  .  . · '    : /                        throughput follows the arrivals, the queue
//        +------------------|--|-|------ load               has no trend
//                      elbow SLO saturation
//
// Each is found for every seed by itself; the answer is the mean over the seeds.
// Its interval has two parts which are kept apart:
//
//     arrivals    Student's t over the seeds: which requests happened to come when
//     step time   how far the knee moves if every step of the server takes one
//                 standard deviation longer than thought (sim/step_time_error.h)
//
// both as half-widths of 95 %; the whole is the root of the sum of their squares,
// as the two have nothing to do with each other.
//
// This header is what reports read. Values without a unit in their name are
// requests, tokens or shares; latencies are milliseconds.
//
// Sources  V. Satopää, J. Albrecht, D. Irwin, B. Raghavan, "Finding a 'kneedle'
//          in a haystack", ICDCS workshops, 2011 (sim/knee_elbow.h). Others where
//          they are used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kneepoint::sim {

/// What is turned up.
enum class LoadAxis : std::uint8_t {
  kRate,         ///< Open loop: requests per second.
  kConcurrency,  ///< Closed loop: requests in flight, whole.
};
[[nodiscard]] const char* load_unit(LoadAxis axis);  ///< "req/s", "requests in flight".

/// A mean over the seeds with the half-width of its 95 % interval.
struct Estimate {
  double value = 0;
  double half_width = 0;
};

/// A figure that not every point has: no run of it was finished.
using MaybeEstimate = std::optional<Estimate>;

struct LatencyEstimates {
  MaybeEstimate mean_ms, p50_ms, p95_ms, p99_ms;
};

/// Share of the time that requests waited for admission, by what stopped them:
/// engine::AdmissionStop's names, and "next_step".
struct WaitShare {
  std::string cause;
  double share = 0;  ///< Of all waiting; they sum to 1.
  double ms_a_request = 0;
};

/// Whether the server keeps up with a load (sim/saturation.h).
struct KeepsUp {
  bool keeps_up = true;
  int runs_with_trend = 0;  ///< Of LoadPoint::runs, each tested alone.
  double trend_t = 0;       ///< The drift's t, all runs together; above its critical value the queue grows.
                            ///< Closed loop: share of the requests in flight that wait.
  double throughput_share = 1;  ///< Completions over arrivals.
};

/// All runs at one load.
struct LoadPoint {
  double load = 0;
  int runs = 0;
  std::int64_t requests_a_run = 0;
  std::int64_t warm_up_requests = 0;  ///< Cut from each run, by MSER.
  int stopped_early = 0;              ///< Runs ended when the backlog had made the SLO unreachable.
  KeepsUp keeps_up;
  bool beyond_saturation = false;  ///< Its latencies grow with the length of the run: no more than a band.
  bool meets_slo = false;          ///< On the mean over the seeds; false without an SLO.

  LatencyEstimates ttft, tpot, e2el;
  Estimate requests_per_s;  ///< Completed.
  Estimate output_tokens_per_s;
  std::optional<Estimate> good_share;  ///< Requests within the limits of --goodput; nothing without.
  double failed_share = 0;             ///< Refused or timed out.

  double mean_running = 0;  ///< Requests, over time.
  double mean_waiting = 0;
  double peak_waiting = 0;   ///< Mean over the runs of their peaks.
  double mean_kv_usage = 0;  ///< Share of the KV blocks, over steps.
  double peak_kv_usage = 0;  ///< Mean over the runs of their peaks.
  double preemptions_a_request = 0;
  double device_busy_share = 0;
  double tokens_a_step = 0;
  double decodes_a_step = 0;  ///< Requests in a step that have output already; so the next, without.
  double prompts_a_step = 0;
  double prompt_tokens_a_step = 0;
  double steps_per_s = 0;
  std::vector<WaitShare> waits;  ///< Most first.

  /// Percent of p99 TTFT for one percent of step time, same random numbers; nothing
  /// where the server does not keep up.
  std::optional<Estimate> elasticity;
};

enum class KneeKind : std::uint8_t { kSlo, kElbow, kSaturation };
[[nodiscard]] const char* knee_name(KneeKind kind);  ///< "SLO", "elbow", "saturation".

enum class KneeStatus : std::uint8_t {
  kFound,
  kBelowRange,  ///< Passed at the lowest load already: overloaded from the start, or an SLO no load meets.
  kAboveRange,  ///< Not reached at the highest load.
  kNone,        ///< The curve has no such knee (no elbow in a straight line), or it was not asked for.
};
[[nodiscard]] const char* knee_status_name(KneeStatus status);  ///< "found", "below the range", ...

struct Knee {
  KneeKind kind = KneeKind::kSlo;
  KneeStatus status = KneeStatus::kNone;
  double load = 0;                 ///< If found; else the end of the range that it lies beyond.
  double arrivals_half_width = 0;  ///< 95 %, in units of load; so the next.
  double step_time_half_width = 0;
  double step_time_sensitivity = 0;  ///< Percent that the knee falls for one percent of step time.
  std::vector<double> by_seed;       ///< One a seed, if found.
  std::int64_t requests_a_run = 0;   ///< That it was read from.
  std::string explanation;           ///< One line for people.

  [[nodiscard]] bool found() const { return status == KneeStatus::kFound; }
  [[nodiscard]] double half_width() const;  ///< Both parts together.
  [[nodiscard]] double lower() const;       ///< Never below 0.
  [[nodiscard]] double upper() const;
};

/// How well the step times are known: relative standard deviations of the speed of
/// a whole run.
struct StepTimeError {
  double model = 0;  ///< From the standard errors and the misfit of the rates, or of the measured model.
  double drift = 0;  ///< The machine's own, --step-time-sd.
  std::string model_source;  ///< One line each: where from.
  std::string drift_source;
  [[nodiscard]] double total() const;
};

/// What limits the server at a load.
enum class Resource : std::uint8_t {
  kKvBlocks,
  kTokenBudget,
  kMaxNumSeqs,
  kMemoryBandwidth,
  kCompute,
  kNetwork,
  kLaunch,  ///< Starting kernels, on the device.
  kCpu,     ///< The host, between steps.
  kBursts,  ///< The arrivals' own: the server has room on average.
  kOther,
};
[[nodiscard]] const char* resource_name(Resource resource);  ///< "KV blocks", "memory bandwidth", ...

struct Binding {
  double load = 0;
  std::string where;  ///< "at the SLO knee", "beyond saturation".
  Resource resource = Resource::kOther;
  std::vector<std::string> evidence;  ///< Lines with figures.
};

/// The knee with something changed, by the same seeds.
struct WhatIf {
  std::string change;                     ///< "2x KV blocks (57,225)", "FP8 KV cache".
  KneeKind kind = KneeKind::kSaturation;  ///< Which knee was followed.
  KneeStatus status = KneeStatus::kNone;
  double load = 0;               ///< The headline knee times what it moved by.
  double factor = 1;             ///< Moved by, mean over the paired seeds.
  double factor_half_width = 0;  ///< 95 %; 0 with one seed.
};

/// How many such servers the trace's own traffic needs, spread perfectly.
struct ServersNeeded {
  double mean_rate = 0;  ///< Requests per second of the trace as it is.
  double peak_rate = 0;  ///< Highest over a window.
  double peak_window_s = 0;
  std::int64_t for_mean = 0;  ///< By the knee.
  std::int64_t for_peak = 0;
  std::int64_t for_mean_cautious = 0;  ///< By the lower end of the knee's interval.
  std::int64_t for_peak_cautious = 0;
};

struct KneeResult {
  LoadAxis axis = LoadAxis::kRate;
  std::vector<std::string> slo;  ///< As written: "ttft:p99:500"; empty without.
  int seeds = 0;
  double precision = 0;  ///< Asked for: half-width over load.
  bool precise = false;  ///< Reached by every knee that was found.
  StepTimeError step_time_error;

  std::vector<LoadPoint> points;  ///< By load, ascending.
  std::vector<Knee> knees;        ///< SLO (if asked for), elbow, saturation.
  std::vector<Binding> bindings;
  std::vector<WhatIf> what_ifs;
  std::optional<ServersNeeded> servers;
  std::vector<std::string> notices;

  std::int64_t runs = 0;  ///< Simulations in all.
  std::int64_t simulated_requests = 0;

  // What was asked.
  std::string version;
  std::string workload;       ///< "trace azure.pb at its own times, blocks resampled".
  std::string configuration;  ///< The resolved run config without places.
  std::vector<std::string> provenance;

  [[nodiscard]] const Knee* find(KneeKind kind) const;  ///< Null if it was not asked for.
  /// The knee that the answer leads with: the SLO's if found, else saturation's if found, else null.
  [[nodiscard]] const Knee* headline() const;
};

}  // namespace kneepoint::sim
