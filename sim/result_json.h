// result.json: the keys of `vllm bench serve --save-result` in its order, then
// ours. Any tool that reads the one reads the other.
//
// Differences from vLLM's file, all for the sake of equal bytes from equal
// inputs: date is null; start_times count from the start of the trace;
// generated_texts, which a simulation does not have, are left out. Statistics of
// nothing are null, as is a failed request's time to a first token it never got;
// a failed request's output_len is 0. latencies and queue_times are arrays of
// one entry a request and so, like the other such arrays, only there with
// --save-detailed. Request rate "inf" means the trace's own times, as
// vLLM writes for --self-timed, or all at once; `arrivals` tells the two apart.
//
// One key a line. Numbers in their shortest form that reads back as the same.
#pragma once

#include <string>

#include "sim/report.h"

namespace kneepoint::sim {

/// The text of result.json, ending in a newline.
[[nodiscard]] std::string result_json(const RunResult& result);

}  // namespace kneepoint::sim
