// Why a step takes as long as it does: its operators one by one.
//
// Each row is an operator of the graph in one step: what it has to do, how long it
// takes, how long it would take at nominal rates (the floor), what binds it there,
// and how well its time is known. The last rows are what the server adds.
//
//     bound   compute    FLOPs at the peak take longer than the bytes
//             memory     the bytes take longer
//             network    bytes to other GPUs
//             launch     the floor is less than a third of the time: starting it,
//                        not doing it, is what costs
//
// `simulate explain` prints the table; the graph also goes out as DOT (Graphviz)
// and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hw/deployment.h"
#include "hw/operator_times.h"
#include "hw/roofline_step.h"
#include "hw/step_time_model.h"

namespace kneepoint::hw {

enum class Bound : std::uint8_t { kCompute, kMemory, kLaunch, kNetwork };

[[nodiscard]] std::string_view bound_name(Bound bound);

/// All instances of one operator on one GPU, in the slowest pipeline stage.
struct ExplainedOperator {
  std::string name;
  std::int64_t count = 0;
  double flops = 0;  ///< These and the following: all `count` of them.
  double bytes = 0;
  double network_bytes = 0;
  double seconds = 0;
  double floor_seconds = 0;
  double share = 0;  ///< Of the step's device time.
  Bound bound = Bound::kLaunch;
  Confidence confidence = Confidence::kEstimated;
  std::string outside;  ///< Where it leaves the measured range, else "".
};

struct Explanation {
  std::vector<ExplainedOperator> operators;  ///< In the order in which they run; none that has nothing to do.
  double server_seconds = 0;                 ///< Start, sampling, gaps: what the server adds on the device.
  double drafter_seconds = 0;
  double device_seconds = 0;  ///< The step.
  double host_seconds = 0;
  double pipeline_seconds = 0;
  std::string provenance;
};

/// A step to explain: `batch` decodes at context `context`, beside prompts of
/// `prompt_tokens` over as many cached tokens as `cached_tokens` says.
struct ExplainedStep {
  std::int64_t batch = 1;
  std::int64_t context = 1024;
  std::int64_t prompts = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
};

[[nodiscard]] Explanation explain(const RooflineStep& model, const StepShape& step);

/// The same of a deployment; graph padding as vLLM does it.
[[nodiscard]] Explanation explain(const Deployment& deployment, const ExplainedStep& step,
                                  const std::string& rates_file = "");

/// A table of fixed columns.
[[nodiscard]] std::string explain_text(const Explanation& explanation);

/// The operator graph as Graphviz reads it, each vertex with its time and share.
[[nodiscard]] std::string explain_dot(const RooflineStep& model, const StepShape& step);

/// {"step": ..., "operators": [...], "edges": [[from, to], ...]}; the graph's vertices by position.
[[nodiscard]] std::string explain_json(const RooflineStep& model, const StepShape& step);

/// StepShape of `step` with the storage of its chunks and windows.
struct OwnedStepShape {
  StepShape shape;
  std::vector<Chunk> chunks;
  std::vector<std::int64_t> window_sums;
};
void fill_step_shape(const Deployment& deployment, const ExplainedStep& step, OwnedStepShape& owned);

}  // namespace kneepoint::hw
