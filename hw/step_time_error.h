// How well a step's time is known: its relative standard deviation from one
// server to another that the same numbers stand for.
//
// Roofline model. Two things can be off:
//
//     rates    each family's parameters, by their standard errors and correlations:
//              drawn together, in logarithms, and the step timed with each draw
//     misfit   the forms themselves: half of a family's rows are predicted within its
//              median error, which of a normal error is 0.6745 standard deviations.
//              All operators of a family miss alike, families independently
//
// so that with w_f the share of family f in the step
//
//     sd^2 = var over draws + sum over f of (w_f median_error_f / 0.6745)^2
//
// An operator whose rates were not measured takes kEstimatedError. What the server
// adds (hw/server_costs.h) carries no error of its own yet; provenance says so.
//
// Measured model. The step's time is linear in its coefficients, so their standard
// errors and correlations give its variance directly.
#pragma once

#include <cstdint>
#include <string>

#include "hw/deployment.h"
#include "hw/explain.h"
#include "hw/measured_step.h"

namespace kneepoint::hw {

/// Relative standard deviation of operator times that were carried over from other
/// GPUs. Assumed: nobody measured them, that is the point.
inline constexpr double kEstimatedError = 0.2;

struct StepTimeSd {
  double relative = 0;
  std::string source;  ///< One line.
};

[[nodiscard]] StepTimeSd roofline_step_sd(const Deployment& deployment, const std::string& rates_file,
                                          const ExplainedStep& step);

[[nodiscard]] StepTimeSd measured_step_sd(const MeasuredServer& server, const MeasuredStepParts& parts);

}  // namespace kneepoint::hw
