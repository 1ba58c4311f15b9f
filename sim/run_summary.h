// What a run was as a whole: filled by the simulation, read by the reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/paired_books.h"
#include "sim/sim_time.h"

namespace kneepoint::sim {

/// What requests waited for: request-time in the queue by cause, the causes being
/// engine::AdmissionStop's and "next_step" for those who came after the newest plan.
struct WaitCause {
  std::string cause;
  SimDuration time{0};
};

struct RunSummary {
  SimTime first_send{};
  SimTime end{};                  ///< Last event.
  std::int64_t steps = 0;         ///< That computed something.
  std::int64_t scheduled_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t num_blocks = 0;    ///< The null block included.
  std::int64_t peak_used_blocks = 0;
  double peak_memory_bytes = 0;   ///< One GPU, weights and all; 0 if the server is not modelled by memory.
  std::int64_t prefix_query_tokens = 0;  ///< First admissions only, as vLLM logs it.
  std::int64_t prefix_hit_tokens = 0;
  SimDuration device_busy{0};
  double mean_running = 0;        ///< Time averages from first send to end.
  double mean_waiting = 0;
  std::int64_t peak_running = 0;
  std::int64_t peak_waiting = 0;
  std::vector<WaitCause> wait_causes;
  bool overloaded = false;        ///< The queue grew to the end of the arrivals.
  std::string overload_reason;    ///< One line, with figures.
  SimTime hangs_from = kNever;    ///< From here on vLLM itself would hang (a request that never fits).
  std::int64_t never_fit = 0;
  bool storm = false;             ///< Cut: steps without end computed and nobody got a token (preemptions forever).
  std::string stopped_by;         ///< The limit that ended the run early, "--max-requests 100"; empty: it ended by itself.
  std::int64_t sent = 0;          ///< Requests.
  std::int64_t unfinished = 0;    ///< Sent and not over when the run was stopped or cut; 0 normally.
  std::vector<AuditLine> audit;   ///< Totals counted twice.
  std::vector<std::string> notices;      ///< Extrapolations and other things to know; stderr and result.
};

}  // namespace kneepoint::sim
