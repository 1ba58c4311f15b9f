#include "hw/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/graph/graphviz.hpp>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "hw/operator_graph.h"
#include "hw/step_terms.h"

namespace kneepoint::hw {

namespace {

constexpr double kLaunchBound = 1.0 / 3;  // Floor over time, below which launching is what costs.

Bound bound_of(const OperatorCost& cost, const Operator& op, double seconds, const GpuSpec& gpu) {
  const double floor = floor_seconds(cost, arithmetic_of(op), gpu);
  if (floor < kLaunchBound * seconds) return Bound::kLaunch;
  if (cost.network_bytes > 0) return Bound::kNetwork;
  const double memory = cost.bytes / gpu.bandwidth_bytes_per_s;
  return floor > memory ? Bound::kCompute : Bound::kMemory;
}

bool is_busy(const OperatorCost& cost) {
  return cost.flops > 0 || cost.bytes > 0 || cost.network_bytes > 0;
}

// One row for a vertex; whatever it has to do.
ExplainedOperator explain_operator(const Operator& op, const RooflineStep& model, const StepShape& step) {
  const GpuSpec& gpu = model.deployment().gpu;
  const OperatorCost cost = cost_of(op, step);
  const OperatorTime time = time_of(op, step, model.operator_times(), gpu, model.costs().mixed_attention);
  const auto count = static_cast<double>(op.stage_count);
  return {.name = op.name,
          .count = op.stage_count,
          .flops = count * cost.flops,
          .bytes = count * cost.bytes,
          .network_bytes = count * cost.network_bytes,
          .seconds = count * time.seconds,
          .floor_seconds = count * floor_seconds(cost, arithmetic_of(op), gpu),
          .bound = bound_of(cost, op, time.seconds, gpu),
          .confidence = time.confidence,
          .outside = ""};
}

}  // namespace

std::string_view bound_name(Bound bound) {
  constexpr std::array kNames{"compute", "memory", "launch", "network"};
  return kNames[static_cast<std::size_t>(bound)];
}

Explanation explain(const RooflineStep& model, const StepShape& step) {
  const StepTime time = model.step_time(step);
  const auto seconds = [](std::chrono::nanoseconds ns) { return static_cast<double>(ns.count()) * 1e-9; };
  Explanation result{.operators = {},
                     .device_seconds = seconds(time.device),
                     .host_seconds = seconds(time.host),
                     .pipeline_seconds = seconds(time.pipeline),
                     .provenance = model.provenance()};
  result.drafter_seconds = seconds(model.draft_time(step));
  result.server_seconds = result.device_seconds - result.drafter_seconds;
  const std::vector<Extrapolation> outside = model.extrapolations(step);
  const auto [first, last] = vertices(model.graph());
  for (auto vertex = first; vertex != last; ++vertex) {
    const Operator& op = model.graph()[*vertex];
    if (op.stage_count == 0 || !is_busy(cost_of(op, step))) continue;
    ExplainedOperator row = explain_operator(op, model, step);
    row.share = row.seconds / result.device_seconds;
    for (const Extrapolation& one : outside) {
      if (one.what.rfind(op.name + ": ", 0) == 0) row.outside = one.shape;
    }
    result.server_seconds -= row.seconds;
    result.operators.push_back(std::move(row));
  }
  return result;
}

void fill_step_shape(const Deployment& deployment, const ExplainedStep& step, OwnedStepShape& owned) {
  StepShape& shape = owned.shape;
  shape = {};
  owned.chunks.assign(static_cast<std::size_t>(step.prompts), {step.prompt_tokens, step.cached_tokens});
  // With drafts a decode verifies 1 + k tokens and is no plain decode any more.
  const std::int64_t each = 1 + deployment.num_speculative_tokens;
  if (each > 1) {
    owned.chunks.insert(owned.chunks.end(), static_cast<std::size_t>(step.batch), {each, step.context - 1});
  } else if (step.batch > 0) {
    shape.decodes = {step.batch, step.batch * step.context, step.context, {}};
  }
  owned.window_sums.clear();
  for (const std::int64_t window : attention_windows_of(deployment.model)) {
    owned.window_sums.push_back(shape.decodes.count * std::min(step.context, window));
  }
  shape.decodes.window_context_sums = owned.window_sums;
  shape.chunks = owned.chunks;
  shape.num_tokens = step.batch * each + step.prompts * step.prompt_tokens;
  shape.num_sampled = step.batch * each + step.prompts;
  shape.num_outputs_before = step.batch;
  const GraphChoice choice = GraphSizes(deployment).choose(shape.num_tokens, step.prompts == 0);
  shape.padded_tokens = choice.padded_tokens;
  shape.graph_mode = choice.mode;
}

Explanation explain(const Deployment& deployment, const ExplainedStep& step, const std::string& rates_file) {
  OwnedStepShape owned;
  fill_step_shape(deployment, step, owned);
  return explain(*make_roofline_step(deployment, rates_file), owned.shape);
}

// Table

std::string explain_text(const Explanation& explanation) {
  std::string text = fmt::format("{}\n\n", explanation.provenance);
  text += fmt::format("{:<26} {:>5} {:>10} {:>10} {:>10} {:>10} {:>6}  {:<8} {}\n", "operator", "count",
                      "GFLOP", "MB", "us", "floor us", "share", "bound", "rate");
  for (const ExplainedOperator& op : explanation.operators) {
    text += fmt::format("{:<26} {:>5} {:>10.3f} {:>10.3f} {:>10.1f} {:>10.1f} {:>5.1f}%  {:<8} {}{}\n",
                        op.name, op.count, op.flops * 1e-9, (op.bytes + op.network_bytes) * 1e-6,
                        op.seconds * 1e6, op.floor_seconds * 1e6, 100 * op.share, bound_name(op.bound),
                        confidence_name(op.confidence), op.outside.empty() ? "" : " (" + op.outside + ")");
  }
  const auto line = [&](const char* name, double seconds) {
    text += fmt::format("{:<26} {:>5} {:>10} {:>10} {:>10.1f} {:>10} {:>5.1f}%\n", name, "", "", "",
                        seconds * 1e6, "", 100 * seconds / explanation.device_seconds);
  };
  line("start, sampling, gaps", explanation.server_seconds);
  if (explanation.drafter_seconds > 0) line("drafter", explanation.drafter_seconds);
  line("step, device", explanation.device_seconds);
  text += fmt::format("\nhost {:.1f} us: {}\n", explanation.host_seconds * 1e6,
                      "hidden behind the device if scheduling is asynchronous, else added");
  if (explanation.pipeline_seconds > 0) {
    text += fmt::format(
        "further pipeline stages {:.1f} us: until the result is there; the next batch can begin before\n",
        explanation.pipeline_seconds * 1e6);
  }
  return text;
}

// Graph

std::string explain_dot(const RooflineStep& model, const StepShape& step) {
  const double device = static_cast<double>(model.step_time(step).device.count()) * 1e-9;
  std::ostringstream out;
  boost::write_graphviz(
      out, model.graph(),
      [&](std::ostream& to, OperatorVertex vertex) {
        const ExplainedOperator row = explain_operator(model.graph()[vertex], model, step);
        to << fmt::format(R"([label="{}\n{} x {:.1f} us, {:.1f} %"])", row.name, row.count,
                          row.count > 0 ? row.seconds / static_cast<double>(row.count) * 1e6 : 0.0,
                          100 * row.seconds / device);
      },
      boost::default_writer(), [](std::ostream& to) { to << "node [shape=box];\n"; });
  return out.str();
}

std::string explain_json(const RooflineStep& model, const StepShape& step) {
  using Json = nlohmann::ordered_json;
  const Explanation explanation = explain(model, step);
  Json json;
  json["provenance"] = explanation.provenance;
  json["step"] = {{"num_tokens", step.num_tokens},
                  {"padded_tokens", step.padded_tokens},
                  {"device_s", explanation.device_seconds},
                  {"host_s", explanation.host_seconds},
                  {"pipeline_s", explanation.pipeline_seconds},
                  {"server_s", explanation.server_seconds},
                  {"drafter_s", explanation.drafter_seconds}};
  json["operators"] = Json::array();
  const auto [first, last] = vertices(model.graph());
  for (auto vertex = first; vertex != last; ++vertex) {
    const ExplainedOperator row = explain_operator(model.graph()[*vertex], model, step);
    json["operators"].push_back({{"name", row.name},
                                 {"count", row.count},
                                 {"flops", row.flops},
                                 {"bytes", row.bytes},
                                 {"network_bytes", row.network_bytes},
                                 {"seconds", row.seconds},
                                 {"floor_seconds", row.floor_seconds},
                                 {"share", row.seconds / explanation.device_seconds},
                                 {"bound", bound_name(row.bound)},
                                 {"rate", confidence_name(row.confidence)}});
  }
  json["edges"] = Json::array();
  const auto [first_edge, last_edge] = edges(model.graph());
  for (auto edge = first_edge; edge != last_edge; ++edge) {
    json["edges"].push_back({source(*edge, model.graph()), target(*edge, model.graph())});
  }
  return json.dump(2) + "\n";
}

}  // namespace kneepoint::hw
