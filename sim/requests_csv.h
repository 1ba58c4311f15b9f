// requests.csv: one line a request, written as requests end.
//
//     index,arrival_s,sent_s,queued_s,scheduled_s,first_token_s,last_token_s,
//     prompt_tokens,output_tokens,cached_tokens,preemptions,end
//
// Times are seconds since the start of the trace with 9 digits: whole
// nanoseconds, nothing rounded. A field is empty if it never came to that: a
// refused request was not queued. last_token_s of a request that failed is when
// its client knew. output_tokens is what the client received; `end` says whether
// it counts (length, stop) or not (request_record.h has all names).
//
// Lines stand in the order in which requests ended; `index` is the position in
// the trace, from 0.
#pragma once

#include <string>

#include "sim/observer.h"
#include "sim/output_files.h"

namespace kneepoint::sim {

class RequestsCsv final : public RunObserver {
 public:
  /// Writes the header. `file` must outlive this.
  explicit RequestsCsv(OutputFile& file);
  void on_request_end(const RequestRecord& request) override;

 private:
  OutputFile& file_;
  std::string line_;  // Reused.
};

/// ttft_cdf.csv: the distribution of TTFT of completed requests as its
/// quantiles 0, 0.001, ..., 1. Header "quantile,ttft_ms"; no lines if nobody completed.
[[nodiscard]] std::string ttft_cdf_csv(const std::vector<double>& quantiles_ms);

}  // namespace kneepoint::sim
