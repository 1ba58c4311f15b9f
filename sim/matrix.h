// The standard benchmark: how a server answers C clients that each always have
// one request of a given context under way.
//
// Each cell of the matrix is one run as `vllm bench serve --dataset-name random
// --request-rate inf --max-concurrency C` makes it (spec.md 7.2): all requests
// exist from the start and wait for one of C slots; a request's clock starts when
// it is sent, so the client's own queue is in none of the latencies. The context
// is all a request holds in the end:
//
//     context 8192 = prompt 8064 (of which --prefix-len shared by all) + output 128
//
// Only what fits is run, by the rule of `simulate capacity` (hw/capacity.h): at
// concurrency 25 and 32K, Llama 3.1 8B in FP8 on an H100 holds 13 sequences, so
// this cell is "—" and no number pretends otherwise.
//
// Each context has its server, started with --max-model-len of the longest request
// the client may draw (and no more than the model has) unless one was given. Cells share nothing, so they run on all cores, and the result
// does not depend on how many there are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hw/capacity.h"
#include "sim/measured_run.h"
#include "sim/run_config.h"
#include "sim/run_config.pb.h"

namespace kneepoint::sim {

struct MatrixOptions {
  std::vector<std::int64_t> contexts{8192, 32768, 65536, 131072};
  std::vector<std::int64_t> concurrencies{1, 5, 10, 25, 50, 100};
  std::int64_t num_requests = 1000;  ///< A cell; `vllm bench serve`'s default, as the next.
  std::int64_t output_tokens = 128;
  std::int64_t prefix_tokens = 0;  ///< First tokens of every prompt, the same for all.
  double random_range_ratio = 0;   ///< Lengths uniform within +- this share; 0: fixed.
  int threads = 0;                 ///< 0: all cores.
};

struct MatrixCell {
  std::int64_t context = 0;
  std::int64_t concurrency = 0;
  hw::Fit fit = hw::Fit::kFits;
  std::string refused;             ///< The planner says it fits, the server would not start: why.
  std::optional<MeasuredRun> run;  ///< If it fits and starts.
  std::size_t server = 0;          ///< Index in Matrix::servers.
};

struct Matrix {
  MatrixOptions options;
  std::int64_t kv_budget_bytes = 0;  ///< The planner's.
  std::vector<RunConfig> servers;    ///< One a context that starts; `resolved_text` says all its flags.
  std::vector<MatrixCell> cells;     ///< Contexts outside, concurrencies inside.
};

/// Runs the matrix on the server `asked` for; `asked` has no trace and no client.
/// `cell_over` is called after each cell, from any thread, one at a time. Throws
/// UsageError for options that make no sense, SpecError for unknown names.
[[nodiscard]] Matrix run_matrix(const pb::RunConfig& asked, const MatrixOptions& options,
                                const std::function<void()>& cell_over = nullptr);

}  // namespace kneepoint::sim
