#include "sim/server.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <utility>

namespace kneepoint::sim {

using engine::ScheduledKind;
using engine::ScheduledRequest;

void TurnReport::clear() {
  computed = false;
  started.clear();
  preempted.clear();
  paused.clear();
  ignored.clear();
}

Server::Server(engine::Scheduler& engine, const hw::StepTimeModel& times, const hw::GraphSizes* graphs,
               const engine::SchedulerConfig& config)
    : engine_(engine),
      times_(times),
      graphs_(graphs),
      depth_(static_cast<std::size_t>(engine::batches_in_flight(config))),
      tokens_per_decode_(1 + config.num_speculative_tokens) {}

void Server::turn(SimTime now, TurnReport& report) {
  report.clear();
  while (in_flight_.size() < depth_ && engine_.has_requests()) {
    plan_step(now, report);
  }
}

void Server::plan_step(SimTime now, TurnReport& report) {
  engine_.plan_step(plan_);
  Batch batch = take_spare();
  batch.record = {};
  batch.record.step = plan_.step;
  batch.record.preempted = static_cast<std::int64_t>(plan_.preempted.size());
  batch.num_tokens = plan_.num_tokens;
  fill_members(batch);

  report.computed = plan_.num_tokens > 0;
  report.preempted.insert(report.preempted.end(), plan_.preempted.begin(), plan_.preempted.end());
  report.paused.insert(report.paused.end(), plan_.paused.begin(), plan_.paused.end());
  for (std::size_t i = 0; i < plan_.finished_reason.size(); ++i) {
    if (plan_.finished_reason[i] == engine::FinishReason::kIgnored) {
      report.ignored.push_back(plan_.finished[i]);
    }
  }
  for (const ScheduledRequest& request : plan_.individual) {
    if (request.kind == ScheduledKind::kNew) {
      report.started.push_back({request.id, request.num_cached_tokens});
    }
  }

  if (plan_.num_tokens > 0) {
    shape_ = shape_of_plan(batch);
    note_extrapolations(shape_);
    put_on_timeline(batch, now, times_.step_time(shape_));
  } else {
    put_on_timeline(batch, now, {});
  }
  in_flight_.push_back(std::move(batch));
}

void Server::put_on_timeline(Batch& batch, SimTime planned, const hw::StepTime& time) {
  batch.record.planned = planned;
  batch.record.begin = std::max(device_free_, planned + time.host);
  device_free_ = batch.record.begin + time.device;
  // Further pipeline stages; results still leave in order.
  batch.record.end = device_free_ + time.pipeline;
  if (!in_flight_.empty()) {
    batch.record.end = std::max(batch.record.end, in_flight_.back().record.end);
  }
  device_busy_ += time.device;
}

// Every plan to come is the newest one with one token more for each.
void Server::begin_steadily() {
  shape_.chunks = {};
  shape_.num_outputs_before = outputs_before_ = shape_.decodes.count;
  times_ahead_.clear();
  next_ahead_ = 0;
}

// The oldest batch ends, and the next one like it is planned at `now`, one of at most `num_turns`.
void Server::plan_steadily(SimTime now, std::int64_t num_turns) {
  constexpr std::int64_t kAhead = 8;  // Most runs are a few steps long; what is not used is lost.
  std::swap(finished_, in_flight_.front());
  in_flight_.pop_front();
  shape_.decodes.context_sum += shape_.decodes.count;
  shape_.decodes.context_max += 1;
  note_extrapolations(shape_);
  if (next_ahead_ == times_ahead_.size()) {
    times_ahead_.resize(static_cast<std::size_t>(std::min(kAhead, num_turns)));
    times_.decode_run(shape_, times_ahead_);
    next_ahead_ = 0;
  }
  Batch batch = take_spare();
  batch.record = finished_.record;
  batch.record.step += static_cast<std::int64_t>(depth_);
  batch.record.preempted = 0;
  batch.num_tokens = finished_.num_tokens;
  batch.members.clear();
  put_on_timeline(batch, now, times_ahead_[next_ahead_++]);
  in_flight_.push_back(std::move(batch));
}

// Who is in the batch, and how vLLM's step log would count it.
void Server::fill_members(Batch& batch) {
  batch.members.clear();
  StepRecord& record = batch.record;
  record.generation_requests = record.generation_tokens = plan_.num_unwalked;
  engine_.for_each_walked([&](const ScheduledRequest& request) {
    batch.members.push_back({request.id, request.num_draft_tokens, request.samples, request.drafts_padded});
    if (request.has_output) {
      ++record.generation_requests;
      record.generation_tokens += request.num_scheduled_tokens;
    } else {
      ++record.context_requests;
      record.context_tokens += request.num_scheduled_tokens;
    }
  });
}

hw::StepShape Server::shape_of_plan(const Batch& batch) {
  hw::StepShape shape;
  shape.num_tokens = plan_.num_tokens;
  shape.num_outputs_before = outputs_before_;
  shape.num_sampled = plan_.cohort.count;
  shape.decodes = {plan_.cohort.count, plan_.cohort.context_sum, plan_.cohort.context_max, {}};
  chunks_.clear();
  bool uniform = plan_.cohort.count == 0 || tokens_per_decode_ == 1;
  for (const ScheduledRequest& request : plan_.individual) {
    uniform = uniform && request.num_scheduled_tokens == tokens_per_decode_;
    shape.num_sampled += request.samples ? 1 + request.num_draft_tokens : 0;
    if (request.num_scheduled_tokens == 1) {  // Time cannot tell it from a plain decode.
      const std::int64_t context = std::int64_t{request.num_computed_tokens} + 1;
      ++shape.decodes.count;
      shape.decodes.context_sum += context;
      shape.decodes.context_max = std::max(shape.decodes.context_max, context);
    } else {
      chunks_.push_back({request.num_scheduled_tokens, request.num_computed_tokens});
    }
  }
  shape.chunks = chunks_;

  const std::span<const std::int64_t> windows = times_.attention_windows();
  if (!windows.empty()) {
    window_sums_.assign(windows.size(), 0);
    engine_.for_each_scheduled([&](const ScheduledRequest& request) {
      if (request.num_scheduled_tokens == 1) {
        for (std::size_t w = 0; w < windows.size(); ++w) {
          window_sums_[w] += std::min(std::int64_t{request.num_computed_tokens} + 1, windows[w]);
        }
      }
    });
    shape.decodes.window_context_sums = window_sums_;
  }

  shape.padded_tokens = shape.num_tokens;
  shape.graph_mode = hw::GraphMode::kNone;
  if (graphs_ != nullptr) {
    const hw::GraphChoice choice = graphs_->choose(shape.num_tokens, uniform);
    shape.padded_tokens = choice.padded_tokens;
    shape.graph_mode = choice.mode;
  }
  BOOST_ASSERT_MSG(shape.num_requests() == static_cast<std::int64_t>(batch.members.size()) + plan_.num_unwalked,
                   "CONSERVE_REQUESTS: cohort and individual requests are not the whole plan");
  return shape;
}

// Asking the model costs more than a step's time does, so it is asked only when
// some quantity is larger than in any step before.
void Server::note_extrapolations(const hw::StepShape& shape) {
  std::int64_t longest = shape.decodes.context_max;
  for (const hw::Chunk& chunk : shape.chunks) {
    longest = std::max(longest, chunk.num_tokens + chunk.num_computed_tokens);
  }
  const std::int64_t now[3] = {shape.num_tokens, longest, shape.num_requests()};
  bool record = false;
  for (std::size_t i = 0; i < 3; ++i) {
    record = record || now[i] > largest_seen_[i];
    largest_seen_[i] = std::max(largest_seen_[i], now[i]);
  }
  if (!record) {
    return;
  }
  for (hw::Extrapolation& found : times_.extrapolations(shape)) {
    const bool known = std::any_of(extrapolations_.begin(), extrapolations_.end(),
                                   [&](const hw::Extrapolation& old) { return old.what == found.what; });
    if (!known) {
      extrapolations_.push_back(std::move(found));
    }
  }
}

const Batch& Server::finish_oldest(Sampler& sampler, engine::StepOutcome& outcome) {
  BOOST_ASSERT(!in_flight_.empty());
  std::swap(finished_, in_flight_.front());
  in_flight_.pop_front();
  result_.clear();
  sampler.sample(finished_, result_);
  outcome.clear();
  engine_.update(result_, outcome);
  if (finished_.num_tokens > 0) {
    outputs_before_ = outcome.num_emitted;
  }
  note_usage(finished_);
  return finished_;
}

void Server::note_usage(Batch& batch) const {
  const engine::EngineLoad load = engine_.load();
  batch.record.kv_usage = 1.0 - static_cast<double>(load.free_blocks) / static_cast<double>(load.usable_blocks);
}

bool Server::computing() const {
  return std::any_of(in_flight_.begin(), in_flight_.end(), [](const Batch& batch) { return batch.num_tokens > 0; });
}

Batch Server::take_spare() {
  Batch batch;
  std::swap(batch.members, finished_.members);
  return batch;
}

}  // namespace kneepoint::sim
