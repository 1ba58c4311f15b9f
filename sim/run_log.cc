#include "sim/run_log.h"

#include <utility>

namespace kneepoint::sim {

RunLogger::RunLogger(RunLog& log, bool keep_gaps, const std::optional<StopRule>& rule)
    : log_(log), keep_gaps_(keep_gaps), rule_(rule) {
  log_.lines.reserve(static_cast<std::size_t>(log_.requests));
}

RequestLine& RunLogger::line_of(std::uint64_t index) {
  if (index >= log_.lines.size()) {
    log_.lines.resize(index + 1);
  }
  return log_.lines[index];
}

void RunLogger::on_send(const RequestRecord& request) {
  RequestLine& line = line_of(request.index);
  line.sent_ns = request.sent.time_since_epoch().count();
  line.waiting = waiting_;
  if (rule_) {
    send_times_.push_back(line.sent_ns);
  }
}

void RunLogger::on_tokens(const RequestRecord& request, SimTime previous, SimTime at_client, std::int64_t) {
  if (keep_gaps_ && previous != kNever) {
    log_.gaps.emplace_back(static_cast<std::int32_t>(request.index), (at_client - previous).count());
  }
}

void RunLogger::on_request_end(const RequestRecord& request) {
  RequestLine& line = line_of(request.index);
  line.over = true;
  line.end = request.end;
  line.output_tokens = static_cast<std::int32_t>(request.output_tokens);
  line.e2e_ns = (request.last_token - request.sent).count();
  if (request.first_token != kNever) {
    line.ttft_ns = (request.first_token - request.sent).count();
  }
  if (request.scheduled != kNever && request.queued != kNever) {
    line.queue_ns = (request.scheduled - request.queued).count();
  }
  if (rule_ && (line.ttft_ns == kNotKnown || line.ttft_ns > rule_->ttft_limit_ns)) {
    ++misses_;
  }
}

void RunLogger::on_step(const StepRecord& step) {
  ++steps_;
  if (last_step_end_ != kNever) {
    const double seconds = to_seconds(step.end - last_step_end_);
    kv_seconds_ += seconds * step.kv_usage;
    seconds_ += seconds;
  }
  last_step_end_ = step.end;
  decodes_ += step.generation_requests;
  prompts_ += step.context_requests;
  prompt_tokens_ += step.context_tokens;
}

// Who waits in the queue now and was sent longer ago than the limit misses it for
// sure. The queue holds the newest arrivals, so these are all of it but those sent
// since. (A preempted request may wait, too, with its first token out; the rule's
// margin covers them.)
void RunLogger::on_load(SimTime now, const engine::EngineLoad& load) {
  waiting_ = static_cast<std::int32_t>(load.num_waiting);
  if (!rule_ || misses_ + load.num_waiting < rule_->misses) {
    return;
  }
  const std::int64_t then = now.time_since_epoch().count() - rule_->ttft_limit_ns;
  while (recent_ < send_times_.size() && send_times_[recent_] < then) {
    ++recent_;
  }
  const std::int64_t late = load.num_waiting - static_cast<std::int64_t>(send_times_.size() - recent_);
  if (misses_ + late >= rule_->misses) {
    stop_.requested = true;
  }
}

void RunLogger::finish(const RunSummary& summary) {
  log_.summary = summary;
  log_.stopped = stop_.requested;
  log_.steps.kv_usage = seconds_ > 0 ? kv_seconds_ / seconds_ : 0;
  if (steps_ > 0) {
    const auto steps = static_cast<double>(steps_);
    log_.steps.decodes = static_cast<double>(decodes_) / steps;
    log_.steps.prompts = static_cast<double>(prompts_) / steps;
    log_.steps.prompt_tokens = static_cast<double>(prompt_tokens_) / steps;
  }
}

}  // namespace kneepoint::sim
