#include "sim/step_replay.h"

#include <algorithm>
#include <boost/assert.hpp>

namespace kneepoint::sim {

StepReplay::StepReplay(const engine::SchedulerConfig& config, std::span<const traces::TraceRecord> requests,
                       std::span<const engine::FreeBlock> free_queue)
    : config_(config), keys_(config.block_size) {
  engine::validate(config_);
  const engine::SchedulerRow* row = engine::find_scheduler("vllm-v1");
  BOOST_ASSERT_MSG(row != nullptr, "the scheduler table has no vllm-v1");
  scheduler_ = row->make(config_, keys_);
  depth_ = static_cast<std::size_t>(engine::batches_in_flight(config_));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    engine::NewRequest request;
    request.id = static_cast<engine::RequestId>(i);
    request.prompt_tokens = static_cast<std::int32_t>(requests[i].prompt_tokens);
    request.max_tokens = static_cast<std::int32_t>(requests[i].output_tokens);
    request.priority = requests[i].priority;
    request.arrival = requests[i].arrival.count();
    requests_.push_back(request);
    keys_.add(request.id, requests[i]);
  }
  without_output_.assign(requests.size(), false);
  if (!free_queue.empty()) {
    const bool preset = scheduler_->preset_free_queue(free_queue);
    BOOST_ASSERT_MSG(preset, "vllm-v1 has a pool to preset");
    static_cast<void>(preset);
  }
}

void StepReplay::add(std::size_t index) {
  scheduler_->add_request(requests_[index]);
}

bool StepReplay::next(ReplayedStep& step) {
  step = ReplayedStep{};
  // Only a request that waits for output in flight makes an empty plan that a
  // later one follows; depth + 1 empty ones in a row mean that nothing can run.
  for (std::size_t empty = 0; empty <= depth_; ++empty) {
    while (in_flight_ >= depth_) process_oldest(nullptr);
    if (!scheduler_->has_requests()) return false;
    scheduler_->plan_step(plan_);
    ++in_flight_;
    if (plan_.num_tokens > 0) {
      record_plan(step);
      while (in_flight_ >= depth_) process_oldest(&step);
      return true;
    }
  }
  return false;
}

void StepReplay::record_plan(ReplayedStep& step) {
  scheduler_->for_each_scheduled([&](const engine::ScheduledRequest& request) {
    const std::int64_t tokens = request.num_scheduled_tokens;
    if (request.has_output) {
      ++step.generation_requests;
      step.generation_tokens += tokens;
    } else {
      ++step.context_requests;
      step.context_tokens += tokens;
    }
    if (tokens > 1) {
      const double n = static_cast<double>(tokens);
      step.prefill_tokens += tokens;
      step.attention_pairs += n * request.num_computed_tokens + n * (n + 1) / 2;
      step.max_chunk_context =
          std::max<std::int64_t>(step.max_chunk_context, request.num_computed_tokens + tokens);
    } else {
      ++step.sequences;
      step.context_sum += request.num_computed_tokens + 1;
    }
    if (request.kind == engine::ScheduledKind::kNew) {
      step.started.push_back(request.id);
      step.cached_tokens += request.num_cached_tokens;
    }
    // Whoever has no output yet and gets none from this step will be a context request again.
    set_without_output(request.id, !request.has_output && !request.samples);
  });
  for (const engine::RequestId id : plan_.preempted) set_without_output(id, false);
  step.preempted = plan_.preempted;
  step.admission_stop = plan_.admission_stop;
  step.not_admitted = plan_.not_admitted;
}

void StepReplay::set_without_output(engine::RequestId id, bool value) {
  running_without_output_ += static_cast<int>(value) - static_cast<int>(without_output_[id]);
  without_output_[id] = value;
}

void StepReplay::process_oldest(ReplayedStep* newest) {
  result_.clear();
  outcome_.clear();
  scheduler_->update(result_, outcome_);
  --in_flight_;
  if (newest == nullptr) return;
  for (const engine::EmittedTokens& tokens : outcome_.emitted) newest->emitted.push_back(tokens.id);
  const engine::EngineLoad load = scheduler_->load();
  newest->running = load.num_running;
  newest->idle_after = load.num_running + load.num_waiting == 0;
  newest->kv_usage = 1.0 - static_cast<double>(load.free_blocks) / static_cast<double>(load.usable_blocks);
}

}  // namespace kneepoint::sim
