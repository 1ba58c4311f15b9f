// Step times learned from a real server's own log, on any hardware.
//
// A handful of coefficients, each with a physical reading, summed:
//
//     elapsed = base + a C + b ATT + s(G) + c KV
//
//     C    tokens of requests that compute more than one token in the step
//     ATT  what their attention touches: sum of n computed + n (n + 1) / 2
//     G    requests that compute exactly one token; s is a table for small
//          counts, linear between its points and beyond the last
//     KV   what their attention reads: sum of computed + 1
//
// and between two steps, where a synchronous server does its bookkeeping,
//
//     gap = base + d (outputs of the step before) + e [the step has C > 0]
//
// In the terms of hw/step_time_model.h elapsed is the device's time. Of the gap,
// base and outputs are the turnaround: the engine hands the tokens on before it
// looks at its inputs, so that an arrival within it still joins the next step.
// Only what the next step's own prefill costs comes after the plan, as host time.
// All coefficients are non-negative, so no time falls as a step grows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "hw/step_time_model.h"

namespace kneepoint::hw {

/// A fitted or assumed number in SI units.
struct Measured {
  double value = 0;
  double standard_error = 0;  ///< 0: assumed.
  std::string source;
};

struct SequencePoint {
  std::int64_t count = 0;
  Measured time_s;
};

struct NamedCorrelation {
  std::string a;
  std::string b;
  double value = 0;
};

/// What a fit leaves over of one kind of step, as shares of the predicted time.
struct ResidualSummary {
  std::string of;
  std::int64_t count = 0;
  double mean = 0, sd = 0, p5 = 0, p50 = 0, p95 = 0, p99 = 0, skew = 0, r_squared = 0;
  std::vector<std::pair<int, double>> autocorrelation;  ///< (lag in steps, value).
};

struct MeasuredServer {
  std::string model;
  std::string architecture;
  std::string machine;
  std::string release;
  std::string source;

  Measured base_s;
  Measured prefill_token_s;
  Measured attention_pair_s;
  std::vector<SequencePoint> sequences;  ///< Ascending by count and by time.
  Measured sequence_beyond_s;
  Measured context_token_s;

  Measured gap_base_s;
  Measured gap_per_output_s;
  Measured gap_with_prefill_s;

  Measured arrival_s;
  Measured output_s;
  Measured output_per_request_s;
  Measured turnaround_s;  ///< A closed-loop client's last token to its next send.

  std::int64_t max_prefill_tokens = 0;  ///< The range of the fit.
  std::int64_t max_sequences = 0;
  std::int64_t max_context_sum = 0;
  std::int64_t max_chunk_context = 0;

  std::vector<NamedCorrelation> correlations;
  std::vector<ResidualSummary> residuals;
  double speed_sd_per_second = 0;  ///< Of the mean residual over a second of running.
  double speed_sd_per_run = 0;     ///< Of the mean residual over a run.
  std::vector<std::string> not_identified;
};

/// What the measured form looks at in a step. Of double type, as regressors are.
struct MeasuredStepParts {
  double prefill_tokens = 0;   ///< C.
  double attention_pairs = 0;  ///< ATT.
  double sequences = 0;        ///< G.
  double context_sum = 0;      ///< KV.
};

[[nodiscard]] double measured_elapsed_s(const MeasuredServer& server, const MeasuredStepParts& parts);

/// Seconds of the forward pass of `shape`.
[[nodiscard]] double measured_elapsed_s(const MeasuredServer& server, const StepShape& shape);

/// Throws SpecError, naming file and field, if a number is missing, negative,
/// not finite, or has no unit or source.
[[nodiscard]] MeasuredServer load_server(const std::filesystem::path& path);

/// As text protobuf, readable by load_server().
void write_server(const MeasuredServer& server, std::ostream& out);

[[nodiscard]] std::unique_ptr<StepTimeModel> make_measured_step_time_model(MeasuredServer server);

}  // namespace kneepoint::hw
