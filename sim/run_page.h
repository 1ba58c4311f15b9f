// report.html of one run: headline numbers, what must not be overlooked, the
// distribution of TTFT, the run over time, what requests waited for, and the
// configuration and inputs that made it. Each figure names its CSV beside it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/paper_plots.h"
#include "sim/report.h"
#include "sim/time_series.h"

namespace kneepoint::sim {

inline constexpr const char* kTtftCdfCsv = "ttft_cdf.csv";
inline constexpr const char* kLoadCsv = "load_over_time.csv";
inline constexpr const char* kLatencyCsv = "latency_over_time.csv";
inline constexpr const char* kWaitCsv = "wait_by_cause.csv";

/// Of the figures, in the order of the page.
inline constexpr std::array kRunFigureNames{"ttft_cdf",       "arrivals",     "ttft_over_time",
                                            "tpot_over_time", "kv_over_time", "queue_over_time",
                                            "batch_over_time"};

/// Model, GPU, scheduler and limits, on one line.
[[nodiscard]] std::string setup_line(const RunConfig& config);
/// The same with workload and seed.
[[nodiscard]] std::string made_by(const RunConfig& config);

/// The figures of the page, in its order.
[[nodiscard]] std::vector<NamedFigure> run_figures(const RunResult& result, const TimeSeries& series);
[[nodiscard]] std::string run_page(const RunResult& result, const TimeSeries& series);

/// wait_by_cause.csv: cause,request_seconds,share; the largest first.
[[nodiscard]] std::string wait_csv(const RunSummary& summary);

}  // namespace kneepoint::sim
