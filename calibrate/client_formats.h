// What load generators write about each request, brought to one form.
//
//     vllm bench serve   one JSON object of arrays (--save-result --save-detailed)
//     guidellm           benchmarks.json: requests.successful of one benchmark
//     aiperf             profile_export.jsonl: one object a line, each value with its unit
//     rows               CSV or JSON Lines with a column each for the send time, the
//                        lengths, and the latencies or the times of first and last
//                        token; names as tools spell them, `_ms` and `_ns` say the unit
//
// Rows may give the server's stamps on a clock of its own (queued, first and last
// token; LLMServingSim's bench does). The quickest request from send to queue
// then sets the two clocks against each other, and its delay is taken to be 0.
//
// As everywhere in calibrate: failed requests, times that are negative, not
// finite or in another unit, rows cut in the middle are refused by name.
#pragma once

#include <filesystem>

#include "calibrate/run_input.h"

namespace kneepoint::calibrate {

/// Reads a file of any of these forms, told apart by their looks. Throws CalibrateError.
[[nodiscard]] ClientRun read_client_file(const std::filesystem::path& path);

}  // namespace kneepoint::calibrate
