// report.html of a knee search: the knees with what they are uncertain by, the
// latencies against load, what the server was doing there, what binds and what
// would move it.
//
// Loads beyond saturation are shown, but apart: dashed and shaded, since their
// latencies grow with the length of the run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/knee.h"
#include "sim/paper_plots.h"

namespace kneepoint::sim {

inline constexpr const char* kKneePointsCsv = "points.csv";
inline constexpr const char* kKneesCsv = "knees.csv";
inline constexpr const char* kKneeWaitsCsv = "waits.csv";

/// `setup`: model, GPU, scheduler, as setup_line() has it.
[[nodiscard]] std::string knee_page(const KneeResult& result, std::string_view setup);
/// The figures of the page, in its order.
[[nodiscard]] std::vector<NamedFigure> knee_figures(const KneeResult& result);
/// The line below each figure: setup, workload, seeds.
[[nodiscard]] std::string knee_made_by(const KneeResult& result, std::string_view setup);

/// knees.csv: kind,status,load,lower,upper,arrivals_half_width,step_time_half_width.
[[nodiscard]] std::string knees_csv(const KneeResult& result);
/// waits.csv: load,cause,share,ms_a_request.
[[nodiscard]] std::string knee_waits_csv(const KneeResult& result);

}  // namespace kneepoint::sim
