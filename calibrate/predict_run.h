// A real run, predicted: its own requests, its own client, its own engine
// configuration, and a step model learned elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/run_input.h"
#include "hw/deployment.h"
#include "hw/measured_step.h"
#include "sim/run_summary.h"

namespace kneepoint::calibrate {

/// Times of one request at the client, measured or simulated.
struct RequestTimes {
  std::size_t index = 0;  ///< In the client's order.
  double start_s = 0;
  double ttft_s = 0;
  double latency_s = 0;
  std::vector<double> itls_s;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
};

struct RunMetric {
  std::string name;  ///< As `vllm bench serve` calls it: "mean_ttft_ms".
  double value = 0;
};

struct RunPrediction {
  std::vector<RequestTimes> requests;  ///< Completed ones, in the client's order.
  std::vector<RunMetric> metrics;
  sim::RunSummary summary;
};

/// Every metric of the client's summary from per-request times: throughputs, and
/// mean, median, p90 and p99 of ttft, tpot, itl and e2el.
[[nodiscard]] std::vector<RunMetric> metrics_of(const std::vector<RequestTimes>& requests, double duration_s);

/// What the client recorded of each request.
[[nodiscard]] std::vector<RequestTimes> measured_requests(const ClientRun& client);

/// The metrics of that.
[[nodiscard]] std::vector<RunMetric> measured_metrics(const ClientRun& client);

/// A machine that others use is not equally fast all the time.
struct Unrest {
  double sd_per_second = 0;  ///< Of a factor on step times, drawn anew for each second of computing; 0: none.
  std::uint64_t seed = 0;
};

/// Simulates `run` with the step times of `server`. Open loop: the recorded send
/// times; closed loop: the client's semaphore. Throws CalibrateError if the run
/// lacks its client file or its server's configuration.
[[nodiscard]] RunPrediction predict_run(const Run& run, const hw::MeasuredServer& server,
                                        const Unrest& unrest = {});

/// The same with any step times; `graphs` as sim::Server takes them, `turnaround_s`
/// from a closed-loop client's last token to its next send.
[[nodiscard]] RunPrediction predict_run(const Run& run, const hw::StepTimeModel& times,
                                        const hw::GraphSizes* graphs, double turnaround_s);

}  // namespace kneepoint::calibrate
