// One run of a server recorded request by request: a folder with
//
//     meta.json        model, vllm_version, engine_kwargs (vLLM's own option names)
//     requests.jsonl   a request a line: input_toks, output_toks, arrival_time and the
//                      engine's queued_ts, first_token_ts, last_token_ts, all in seconds
//
// meta.json names no GPU, so the folder's name must begin with one:
// "rtxpro6000_llama31_8b".
#pragma once

#include <filesystem>

#include "calibrate/serving_rows.h"

namespace kneepoint::calibrate {

/// Throws CalibrateError naming file, line and field.
[[nodiscard]] ServingRow read_recorded_run(const std::filesystem::path& folder);

/// A row that says why nothing in `folder` can be predicted.
[[nodiscard]] ServingRow unreadable_folder(const std::filesystem::path& folder);

}  // namespace kneepoint::calibrate
