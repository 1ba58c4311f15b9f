// Fits what lies outside the logged step times: the gap between steps, and the
// front end's way in and out.
#pragma once

#include <span>

#include "calibrate/step_samples.h"
#include "hw/measured_step.h"

namespace kneepoint::calibrate {

/// Fills in gap_*, arrival_s, output_*, turnaround_s of `server`, their
/// correlations, and what the runs cannot tell. Residuals beyond `huber` standard
/// deviations count less.
void fit_gaps(std::span<const RunSamples> runs, double huber, hw::MeasuredServer& server);

}  // namespace kneepoint::calibrate
