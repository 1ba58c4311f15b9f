#include "hw/roofline_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hw/fitted_times.h"
#include "hw/rates.h"
#include "hw/roofline_times.h"

namespace kneepoint::hw {

namespace {

std::chrono::nanoseconds to_nanoseconds(double seconds) {
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

Deployment draft_deployment(const Deployment& target) {
  Deployment draft = target;
  draft.pipeline_parallel_size = 1;
  if (target.drafter == Drafter::kModel) {
    draft.model = *target.draft_model;
    draft.weights = Precision::kBf16;
  } else {
    draft.model.layers = {target.model.layers.back()};
    draft.model.layers.front().count = 1;
    draft.model.num_layers = 1;
  }
  return draft;
}

// A drafter's pass belongs to the step that it follows: it has no start, no
// scheduling and no host of its own.
ServerCosts layers_only(const ServerCosts& costs) {
  return {.device_layer_s = costs.device_layer_s};
}

// One token more for each request of `step`.
StepShape one_token_each(const StepShape& step) {
  StepShape next;
  next.decodes = step.decodes;
  for (const Chunk& chunk : step.chunks) {
    const std::int64_t context = chunk.num_computed_tokens + chunk.num_tokens;
    ++next.decodes.count;
    next.decodes.context_sum += context;
    next.decodes.context_max = std::max(next.decodes.context_max, context);
  }
  next.decodes.window_context_sums = {};
  next.num_tokens = next.padded_tokens = next.num_sampled = next.decodes.count;
  return next;
}

}  // namespace

struct RooflineStep::Pass {
  Pass(OperatorGraph its_graph, const OperatorTimes& times, const GpuSpec& gpu, const ServerCosts& its_costs,
       StepTerms::Stages stages)
      : graph(std::move(its_graph)),
        costs(its_costs),
        terms(graph, times, gpu, costs, stages),
        compiled(terms, costs) {}
  OperatorGraph graph;
  ServerCosts costs;
  StepTerms terms;
  CompiledTerms compiled;
};

RooflineStep::RooflineStep(const Deployment& deployment, std::unique_ptr<OperatorTimes> times,
                           const ServerCosts& costs)
    : deployment_(deployment),
      costs_(costs),
      times_(std::move(times)),
      windows_(attention_windows_of(deployment_.model)),
      graph_(build_operator_graph(deployment_)),
      stage_terms_(graph_, *times_, deployment_.gpu, costs_, StepTerms::Stages::kSlowest),
      stage_(stage_terms_, costs_) {
  if (deployment_.pipeline_parallel_size > 1) {
    all_stages_ = std::make_unique<Pass>(graph_, *times_, deployment_.gpu, costs_, StepTerms::Stages::kAll);
  }
  if (deployment_.num_speculative_tokens > 0 && deployment_.drafter != Drafter::kLookUp) {
    draft_ = std::make_unique<Pass>(build_operator_graph(draft_deployment(deployment_)), *times_,
                                    deployment_.gpu, layers_only(costs_), StepTerms::Stages::kAll);
  }
}

RooflineStep::~RooflineStep() = default;

std::chrono::nanoseconds RooflineStep::draft_time(const StepShape& step) const {
  if (!draft_) return std::chrono::nanoseconds{0};
  StepShape first = step;
  first.num_sampled = step.num_requests();
  first.graph_mode = GraphMode::kFull;  // Its launches hide behind the step's own.
  std::chrono::nanoseconds time = draft_->compiled.device_time(first);
  if (deployment_.num_speculative_tokens > 1) {
    time += (deployment_.num_speculative_tokens - 1) * draft_->compiled.device_time(one_token_each(step));
  }
  return time;
}

StepTime RooflineStep::step_time(const StepShape& step) const {
  StepTime time;
  time.host = host_time(step);
  time.device = stage_.device_time(step);
  if (all_stages_)
    time.pipeline = std::max(all_stages_->compiled.device_time(step) - time.device, time.pipeline);
  time.device += draft_time(step);
  return time;
}

void RooflineStep::decode_run(const StepShape& first, std::span<StepTime> times) const {
  if (draft_ || all_stages_) return StepTimeModel::decode_run(first, times);
  stage_.decode_run(first, times);
  const std::chrono::nanoseconds host = host_time(first);
  for (StepTime& time : times) time.host = host;
}

std::chrono::nanoseconds RooflineStep::host_time(const StepShape& step) const {
  return to_nanoseconds(costs_.host_step_s + costs_.host_sequence_s * static_cast<double>(step.num_requests()));
}

double RooflineStep::device_seconds(const StepShape& step) const {
  return stage_terms_.device_seconds(step);
}

FrontEndTimes RooflineStep::front_end() const {
  return {.arrival = to_nanoseconds(costs_.arrival_s),
          .output = to_nanoseconds(costs_.output_s),
          .output_per_request = to_nanoseconds(costs_.output_per_request_s)};
}

std::string RooflineStep::provenance() const {
  return fmt::format("step times from the operators of {} on {}: {}", deployment_.model.name,
                     deployment_.gpu.name, times_->provenance());
}

// Extrapolation

namespace {

struct OutsideVisitor {
  const StepShape& step;
  const OperatorTimes& times;
  StepRows rows;

  std::string operator()(const GemmOperator& gemm) const {
    GemmShape shape = gemm.shape;
    shape.m = rows.of(gemm.rows);
    return shape.m == 0 ? "" : times.outside_range(shape);
  }
  std::string operator()(const DecodeAttentionOperator& attention) const {
    if (step.decodes.count > 0) {
      std::string outside = times.outside_range(decode_shape(attention.pair.decode, step.decodes));
      if (!outside.empty()) return outside;
    }
    // A short chunk reads its context once, as one decode does, and has as many query rows as several: both
    // are measured, so its range is that of one decode over its context.
    return first_chunk(false, [&](const Chunk& chunk) {
      const std::int64_t context = chunk.num_computed_tokens + chunk.num_tokens;
      return times.outside_range(
          decode_shape(attention.pair.decode, {.count = 1, .context_sum = context, .context_max = context}));
    });
  }
  std::string operator()(const PrefillAttentionOperator& attention) const {
    return first_chunk(true, [&](const Chunk& chunk) {
      return times.outside_range(
          chunk_shape(attention.pair.prefill, windowed(attention.pair.prefill, chunk).piece));
    });
  }
  std::string operator()(const MoeOperator& moe) const {
    MoeShape shape = moe.shape;
    shape.num_tokens = rows.tokens;
    return times.outside_range(shape);
  }
  std::string operator()(const CollectiveOperator& collective) const {
    CollectiveShape shape = collective.shape;
    shape.message_bytes *= rows.of(collective.rows);
    return times.outside_range(shape);
  }
  std::string operator()(const ElementwiseOperator&) const { return ""; }

  template <class Outside>
  std::string first_chunk(bool prefills, Outside outside) const {
    for (const Chunk& chunk : step.chunks) {
      if (is_prefill(chunk) != prefills) continue;
      std::string found = outside(chunk);
      if (!found.empty()) return found;
    }
    return "";
  }
};

}  // namespace

std::vector<Extrapolation> RooflineStep::extrapolations(const StepShape& step) const {
  std::vector<Extrapolation> found;
  const OutsideVisitor visitor{step, *times_, rows_of(step)};
  const auto [first, last] = vertices(graph_);
  for (auto vertex = first; vertex != last; ++vertex) {
    const Operator& op = graph_[*vertex];
    std::string outside = std::visit(visitor, op.form);
    if (outside.empty()) continue;
    // "m = 131072, measured 1 to 32768": the quantity goes to the operator, so that another one is told too.
    // A family that nobody measured has no quantity.
    const std::size_t quantity = outside.find(" = ");
    const std::string what = quantity == std::string::npos ? op.name : op.name + ": " + outside.substr(0, quantity);
    const bool known = std::ranges::any_of(found, [&](const Extrapolation& old) { return old.what == what; });
    if (!known) found.push_back({what, std::move(outside)});
  }
  return found;
}

// Makers

std::unique_ptr<OperatorTimes> choose_operator_times(const GpuSpec& gpu, const std::string& rates_file,
                                                     const InServer& in_server) {
  if (!rates_file.empty()) return std::make_unique<FittedTimes>(gpu, load_rates(rates_file), in_server);
  if (!gpu.rates_file.empty()) return std::make_unique<FittedTimes>(gpu, load_rates(gpu.rates_file), in_server);
  const std::vector<std::string>& bundled = rates_names();
  if (std::ranges::find(bundled, gpu.name) != bundled.end()) {
    return std::make_unique<FittedTimes>(gpu, load_rates(gpu.name), in_server);
  }
  return std::make_unique<RooflineTimes>(gpu, in_server);
}

std::unique_ptr<RooflineStep> make_roofline_step(const Deployment& deployment,
                                                 const std::string& rates_file) {
  const ServerCosts costs = load_server_costs();
  return std::make_unique<RooflineStep>(
      deployment, choose_operator_times(deployment.gpu, rates_file, costs.in_server()), costs);
}

std::unique_ptr<StepTimeModel> make_step_time_model(const Deployment& deployment,
                                                    const std::string& rates_file) {
  return make_roofline_step(deployment, rates_file);
}

}  // namespace kneepoint::hw
