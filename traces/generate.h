// Workloads from distributions: arrivals, prompt lengths and output lengths are
// three random streams of one seed.
#pragma once

#include <cstdint>
#include <memory>

#include "traces/arrivals.h"
#include "traces/lengths.h"
#include "traces/record_source.h"

namespace kneepoint::traces {

struct GenerateOptions {
  ArrivalOptions arrivals;  ///< Its num_requests and seed are those of the workload.
  std::unique_ptr<LengthModel> prompt_lengths;
  std::unique_ptr<LengthModel> output_lengths;
};

/// `options.arrivals.num_requests` records. Throws TraceError for a wrong option.
[[nodiscard]] std::unique_ptr<RecordSource> generate(GenerateOptions options);

}  // namespace kneepoint::traces
