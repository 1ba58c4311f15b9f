// What one replayed run says about time: a sample for each coefficient that can
// be fitted.
//
//     steps      make-up and logged time of every step
//     gaps       time between steps: the log's stamps have 1 s resolution, but
//                the client saw each token arrive. Between two steps whose tokens
//                it saw, client time - logged times = gaps, with the delays of the
//                way out cancelled
//     arrivals   how long a request takes from the client into the scheduler: into
//                an idle server from its first token, into a busy one from the step
//                that it just caught or just missed
//     outputs    how much later the tokens of one step's later requests arrive
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/log_replay.h"
#include "calibrate/run_input.h"

namespace kneepoint::calibrate {

struct StepSample {
  double prefill_tokens = 0;
  double attention_pairs = 0;
  double sequences = 0;
  double context_sum = 0;
  double outputs_before = 0;
  double elapsed_s = 0;
};

/// Gaps that lie between two steps whose tokens the client saw; nearly always one.
struct GapSample {
  double gaps = 0;
  double outputs_before = 0;  ///< Summed over the gaps, as are the next two.
  double with_prefill = 0;
  double seconds = 0;
};

/// Into an idle server: send to first token, less the step's logged time. What is
/// left is the way in, what a prefill adds to a gap, and the way out.
struct IdleArrival {
  double seconds = 0;
  double outputs_before = 0;  ///< Of the last step before the server was idle.
};

/// Into a busy server: the way in and out together lie in (low_s, high_s], each
/// with the turnaround that followed the step of so many outputs, since the
/// request caught one step and, unless low_s is absent, could have caught the
/// step before.
struct BusyArrival {
  std::optional<double> low_s;
  double low_outputs = 0;
  double high_s = 0;
  double high_outputs = 0;
};

struct RunSamples {
  std::string name;
  std::vector<StepSample> steps;
  std::vector<GapSample> gaps;
  std::vector<IdleArrival> idle_arrivals;
  std::vector<BusyArrival> busy_arrivals;
  std::vector<double> output_delays_s;  ///< Per place in the step: (arrival of place j - of place 0) / j.
  std::vector<double> turnarounds_s;    ///< Closed loop: last token to the next send.
  std::int64_t max_prefill_tokens = 0, max_sequences = 0, max_context_sum = 0, max_chunk_context = 0;
};

/// `config` is the run's own. A run without client file has only steps.
[[nodiscard]] RunSamples samples_of(const Run& run, const LogReplay& replay,
                                    const engine::SchedulerConfig& config);

/// "fitted on 120 steps of A_rate4, B_rate3": where a fitted number comes from.
[[nodiscard]] std::string fitted_on(std::span<const RunSamples> runs, std::size_t count, const char* what);

}  // namespace kneepoint::calibrate
