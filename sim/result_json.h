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
// Nothing says where files lay: inputs are named without their folders, the
// configuration, too, and it leaves out where the output went.
//
// One key a line. Numbers in their shortest form that reads back as the same.
#pragma once

#include <string>
#include <string_view>

#include "sim/report.h"

namespace kneepoint::sim {

/// The text of result.json, ending in a newline.
[[nodiscard]] std::string result_json(const RunResult& result);

/// A resolved configuration (text format, a field a line) without places: input files by base name; no `out`,
/// `step_log`, `format`, `report`, `plots` and `timeline`, which change nothing that happens.
[[nodiscard]] std::string configuration_without_places(std::string_view text);

}  // namespace kneepoint::sim
