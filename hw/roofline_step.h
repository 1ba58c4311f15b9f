// StepTimeModel of a model on a GPU: its operator graph, timed by operator times,
// plus what the server adds, compiled to tables.
//
//     device = sum of the graph's operators + gaps + sampling      (hw/step_terms.h)
//     host   = scheduling, inputs, outputs                         (hw/server_costs.h)
//
// Pipeline parallelism: `device` is the slowest stage with its send; the other
// stages are StepTime::pipeline. With as many batches in flight as there are
// stages each stage is busy, and a token comes every `stages` batches.
//
// Speculative decoding: the step verifies 1 + k tokens a request. A drafter on the
// device then runs k times: once over all the step's tokens, k - 1 times over one
// token of each request.
#pragma once

#include <memory>

#include "hw/compiled_step.h"
#include "hw/deployment.h"
#include "hw/operator_graph.h"
#include "hw/operator_times.h"
#include "hw/server_costs.h"
#include "hw/step_terms.h"
#include "hw/step_time_model.h"

namespace kneepoint::hw {

class RooflineStep final : public StepTimeModel {
 public:
  RooflineStep(const Deployment& deployment, std::unique_ptr<OperatorTimes> times, const ServerCosts& costs);

  ~RooflineStep() override;
  RooflineStep(const RooflineStep&) = delete;  // Parts point at each other.
  RooflineStep& operator=(const RooflineStep&) = delete;

  [[nodiscard]] StepTime step_time(const StepShape& step) const override;
  void decode_run(const StepShape& first, std::span<StepTime> times) const override;
  [[nodiscard]] FrontEndTimes front_end() const override;
  [[nodiscard]] std::span<const std::int64_t> attention_windows() const override { return windows_; }
  [[nodiscard]] std::vector<Extrapolation> extrapolations(const StepShape& step) const override;
  [[nodiscard]] std::string provenance() const override;

  /// The reference that step_time().device approximates: seconds, uncompiled.
  [[nodiscard]] double device_seconds(const StepShape& step) const;

  /// The drafter's part of step_time().device.
  [[nodiscard]] std::chrono::nanoseconds draft_time(const StepShape& step) const;

  [[nodiscard]] const OperatorGraph& graph() const { return graph_; }
  [[nodiscard]] const OperatorTimes& operator_times() const { return *times_; }
  [[nodiscard]] const Deployment& deployment() const { return deployment_; }
  [[nodiscard]] const ServerCosts& costs() const { return costs_; }

 private:
  [[nodiscard]] std::chrono::nanoseconds host_time(const StepShape& step) const;

  struct Pass;  // One graph, its terms, its tables.

  Deployment deployment_;
  ServerCosts costs_;
  std::unique_ptr<OperatorTimes> times_;
  std::vector<std::int64_t> windows_;
  OperatorGraph graph_;
  StepTerms stage_terms_;
  CompiledTerms stage_;
  std::unique_ptr<Pass> all_stages_;  // Null without pipeline.
  std::unique_ptr<Pass> draft_;       // Null without a drafter on the device.
};

/// Fitted rates from `rates_file`, else the GPU's bundled rates, else roofline
/// shares. Throws SpecError for a file that is wrong or another GPU's.
[[nodiscard]] std::unique_ptr<OperatorTimes> choose_operator_times(const GpuSpec& gpu, const std::string& rates_file,
                                                                   const InServer& in_server = {});

/// make_step_time_model() (hw/deployment.h) as what it is.
[[nodiscard]] std::unique_ptr<RooflineStep> make_roofline_step(const Deployment& deployment,
                                                               const std::string& rates_file = "");

}  // namespace kneepoint::hw
