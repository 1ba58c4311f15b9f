#include "sim/knee_binds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace kneepoint::sim {
namespace {

constexpr double kWaitsMatter = 0.25;  // Of the mean TTFT.
constexpr double kBusy = 0.75;         // Of the time.
constexpr double kBurstsMatter = 1.1;  // How far smoother arrivals move the knee.

// The resources that engine::AdmissionStop's names stand for.
struct Cause {
  const char* name;
  Resource resource;
};
constexpr std::array kCauses{
    Cause{"kv_blocks", Resource::kKvBlocks},          Cause{"preempted", Resource::kKvBlocks},
    Cause{"output_in_flight", Resource::kKvBlocks},   Cause{"token_budget", Resource::kTokenBudget},
    Cause{"prompt_too_long", Resource::kTokenBudget}, Cause{"throttled", Resource::kTokenBudget},
    Cause{"max_num_seqs", Resource::kMaxNumSeqs}};

Resource resource_of(const std::string& cause) {
  const auto* found =
      std::find_if(kCauses.begin(), kCauses.end(), [&](const Cause& c) { return cause == c.name; });
  return found == kCauses.end() ? Resource::kOther : found->resource;
}

// Milliseconds a request waits for admission, by resource; not for the next step.
std::array<double, 10> waits_by_resource(const LoadPoint& point) {
  std::array<double, 10> ms{};
  for (const WaitShare& wait : point.waits) {
    if (wait.cause != "next_step" && wait.cause != "queue_empty") {
      ms[static_cast<std::size_t>(resource_of(wait.cause))] += wait.ms_a_request;
    }
  }
  return ms;
}

double sum_of(const std::array<double, 10>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum;
}

std::string waits_text(const LoadPoint& point) {
  std::string text = "waiting for admission:";
  for (const WaitShare& wait : point.waits) {
    text +=
        fmt::format(" {} {:.0f} % ({:.3g} ms a request),", wait.cause, 100 * wait.share, wait.ms_a_request);
  }
  text.back() = ' ';
  return point.waits.empty() ? "nobody waited" : text.substr(0, text.size() - 1);
}

// Share of a typical step's time by what bounds its operators.
struct StepBounds {
  std::array<double, 4> share{};  // By hw::Bound.
  double server = 0;
  std::string text;
};

StepBounds bounds_of(const KneeQuestion& question, const LoadPoint& point) {
  StepBounds bounds;
  const hw::ExplainedStep step = typical_step(question.config, point);
  const hw::Explanation explanation =
      hw::explain(question.config.deployment, step, question.config.rates_file);
  for (const hw::ExplainedOperator& op : explanation.operators) {
    bounds.share[static_cast<std::size_t>(op.bound)] += op.share;
  }
  bounds.server = explanation.server_seconds / explanation.device_seconds;
  bounds.text = fmt::format(
      "typical step: {} decodes at {} tokens of context and {} prompt tokens: {:.0f} % of its {:.3g} ms "
      "bound by memory, {:.0f} % by "
      "compute, {:.0f} % by network, {:.0f} % by launching kernels, {:.0f} % start and sampling",
      step.batch, step.context, step.prompts * step.prompt_tokens, 100 * bounds.share[1],
      1e3 * explanation.device_seconds, 100 * bounds.share[0], 100 * bounds.share[3], 100 * bounds.share[2],
      100 * bounds.server);
  return bounds;
}

Resource most_of(const StepBounds& bounds) {
  constexpr std::array kResources{Resource::kCompute, Resource::kMemoryBandwidth, Resource::kLaunch,
                                  Resource::kNetwork};
  const auto most = std::max_element(bounds.share.begin(), bounds.share.end());
  return kResources[static_cast<std::size_t>(most - bounds.share.begin())];
}

Binding bind(const KneeQuestion& question, const LoadPoint& point, std::string where) {
  Binding binding;
  binding.load = point.load;
  binding.where = std::move(where);
  const std::array<double, 10> waits = waits_by_resource(point);
  const double blocked = sum_of(waits);
  const double ttft = point.ttft.mean_ms ? point.ttft.mean_ms->value : blocked;
  binding.evidence.push_back(waits_text(point));
  binding.evidence.push_back(
      fmt::format("KV blocks in use: mean {:.0f} %, peak {:.0f} %; {:.3g} preemptions a request",
                  100 * point.mean_kv_usage, 100 * point.peak_kv_usage, point.preemptions_a_request));
  binding.evidence.push_back(fmt::format(
      "GPU busy {:.0f} % of the time; {:.4g} tokens a step of at most {}; {:.4g} running of at most {}",
      100 * point.device_busy_share, point.tokens_a_step, question.config.engine.max_num_batched_tokens,
      point.mean_running, question.config.engine.max_num_seqs));
  const bool modelled = question.config.server_file.empty() && !question.make_times;
  Resource of_steps = Resource::kOther;
  if (modelled) {
    const StepBounds bounds = bounds_of(question, point);
    binding.evidence.push_back(bounds.text);
    of_steps = most_of(bounds);
  }
  if (ttft > 0 && blocked >= kWaitsMatter * ttft) {
    binding.resource = static_cast<Resource>(std::max_element(waits.begin(), waits.end()) - waits.begin());
  } else {
    binding.resource = point.device_busy_share < kBusy && point.beyond_saturation ? Resource::kCpu : of_steps;
  }
  return binding;
}

const LoadPoint* point_below(const std::vector<LoadPoint>& points, double load) {
  const LoadPoint* best = &points.front();
  for (const LoadPoint& point : points) {
    if (point.load <= load) {
      best = &point;
    }
  }
  return best;
}

// The arrivals bind where the same requests at smoother times move the knee up.
void note_bursts(const KneeQuestion& question, const KneeResult& result, Binding& binding) {
  for (std::size_t i = 0; i < result.what_ifs.size(); ++i) {
    const WhatIf& answer = result.what_ifs[i];
    if (question.changes[i].smooths_arrivals && answer.status == KneeStatus::kFound &&
        answer.factor > kBurstsMatter) {
      binding.resource = Resource::kBursts;
      binding.evidence.push_back(
          fmt::format("{}: the knee moves by {:+.0f} %", answer.change, 100 * (answer.factor - 1)));
    }
  }
}

}  // namespace

double mean_context(const RunConfig& config, const LoadPoint& point) {
  const double blocks =
      point.mean_kv_usage * static_cast<double>(std::max<std::int64_t>(config.engine.num_blocks - 1, 0));
  const double holders = std::max(point.decodes_a_step + point.prompts_a_step, 1.0);
  return std::max(1.0, blocks * static_cast<double>(config.engine.block_size) / holders);
}

hw::ExplainedStep typical_step(const RunConfig& config, const LoadPoint& point) {
  hw::ExplainedStep step;
  step.batch = std::max<std::int64_t>(std::llround(point.decodes_a_step), 1);
  step.context =
      std::clamp<std::int64_t>(std::llround(mean_context(config, point)), 1, config.engine.max_model_len);
  step.prompt_tokens = std::llround(point.prompt_tokens_a_step);
  step.prompts = step.prompt_tokens > 0 ? 1 : 0;
  return step;
}

std::vector<Binding> find_bindings(const KneeQuestion& question, const KneeResult& result) {
  std::vector<Binding> bindings;
  const Knee* headline = result.headline();
  if (headline != nullptr) {
    bindings.push_back(bind(question, *point_below(result.points, headline->load),
                            fmt::format("at the {} knee", knee_name(headline->kind))));
    if (headline->kind == KneeKind::kSlo) {
      note_bursts(question, result, bindings.back());
    }
  }
  const auto beyond = std::find_if(result.points.begin(), result.points.end(),
                                   [](const LoadPoint& p) { return p.beyond_saturation; });
  if (beyond != result.points.end()) {
    bindings.push_back(bind(question, *beyond, "beyond saturation"));
  }
  return bindings;
}

}  // namespace kneepoint::sim
