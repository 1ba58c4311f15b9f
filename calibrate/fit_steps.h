// Fits the measured step model (hw/measured_step.h) to replayed runs.
//
// Three regressions, in this order: the logged step times on the make-up of the
// steps, the time between steps on what the step before gave out, the way in and
// out on first tokens into an idle server. Each coefficient carries its standard
// error, widened for the residuals' autocorrelation; what the runs cannot tell
// apart is said in words.
#pragma once

#include <span>

#include "calibrate/step_samples.h"
#include "hw/measured_step.h"

namespace kneepoint::calibrate {

struct FitOptions {
  double huber = 2;  ///< Residuals beyond so many standard deviations count less.
};

/// The time model alone; who the server is, the caller fills in. Throws
/// CalibrateError if there are too few steps to fit.
[[nodiscard]] hw::MeasuredServer fit_step_model(std::span<const RunSamples> runs,
                                                const FitOptions& options = {});

/// Share by which the steps of runs[index] take longer than a fit to the other
/// runs predicts, all steps together: 0.1 is 10 % slower. 0 if there are no others.
[[nodiscard]] double slower_than_others(std::span<const RunSamples> runs, std::size_t index,
                                        const FitOptions& options = {});

/// Predicted seconds of a sample's step.
[[nodiscard]] double predicted_elapsed_s(const hw::MeasuredServer& server, const StepSample& sample);

}  // namespace kneepoint::calibrate
