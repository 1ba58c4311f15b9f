// The accounts of a run: load over time, steps, and what is left at the end.
#include <algorithm>
#include <boost/assert.hpp>

#include "sim/event_loop.h"

namespace kneepoint::sim {
namespace {

// So many computing steps in a row without one token for anybody are no
// preemption that sorts itself out: the longest prefill takes far fewer.
constexpr std::int64_t kStormSteps = 100'000;

}  // namespace

// A step that computed is over.
void EventLoop::book_step(const Batch& batch) {
  ++summary_.steps;
  summary_.scheduled_tokens += batch.num_tokens;
  books_.planned_tokens(batch.num_tokens);
  books_.member_tokens(batch.record.context_tokens + batch.record.generation_tokens);
  for (RunObserver* observer : parts_.observers) {
    observer->on_step(batch.record);
  }
}

void EventLoop::watch_progress() {
  steps_without_tokens_ = outcome_.num_emitted == 0 ? steps_without_tokens_ + 1 : 0;
  summary_.storm = steps_without_tokens_ >= kStormSteps;
}

// Books the time since the last change under the load that held, then reads the
// load that holds from now on.
void EventLoop::note_load() {
  const SimTime now = events_.now();
  const SimDuration held = now - last_load_change_;
  if (held.count() > 0) {
    running_time_ += Int128{held.count()} * load_.num_running;
    waiting_time_ += Int128{held.count()} * load_.num_waiting;
    books_.engine_held(held, load_.num_running + load_.num_waiting);
    const std::int64_t blocked = std::min(blocked_by_plan_, load_.num_waiting);
    wait_by_cause_[static_cast<std::size_t>(server_.admission_stop())] += held * blocked;
    wait_for_next_step_ += held * (load_.num_waiting - blocked);
    last_load_change_ = now;
  }
  read_load(now);
}

void EventLoop::read_load(SimTime since) {
  const engine::EngineLoad load = parts_.engine.load();
  if (load == load_) {
    return;
  }
  load_ = load;
  summary_.peak_running = std::max(summary_.peak_running, load_.num_running);
  summary_.peak_waiting = std::max(summary_.peak_waiting, load_.num_waiting);
  summary_.peak_used_blocks = std::max(summary_.peak_used_blocks, load_.usable_blocks - load_.free_blocks);
  for (RunObserver* observer : parts_.observers) {
    observer->on_load(since, load_);
  }
}

void EventLoop::close_books() {
  note_load();
  const bool whole = !summary_.storm && !stopped() && summary_.stopped_by.empty();
  BOOST_ASSERT_MSG(!whole || live_.empty(), "CONSERVE_REQUESTS: a request is neither over nor under way");
  summary_.end = events_.now();
  for (const auto& [index, live] : live_) {
    const std::int64_t unlisted = live.cohort_since < 0 ? 0 : outputs_.num_steps() - live.cohort_since;
    books_.request_got(live.sampled + unlisted);
    if (!live.server_done && live.record.queued != kNever) {
      books_.left_engine(summary_.end - live.record.queued);
    }
    if (!live.client_done) {
      books_.unfinished(summary_.end, live.record.sent);
      ++summary_.unfinished;
      withdraw_tokens(live);
    }
  }
  summary_.sent = books_.num_sent();
  summary_.audit = books_.close(summary_.end, whole, load_.free_blocks, load_.usable_blocks);
  if (summary_.first_send == kNever) {
    summary_.first_send = SimTime{};
  }
  const auto lasted = static_cast<double>((summary_.end - summary_.first_send).count());
  summary_.mean_running = lasted > 0 ? static_cast<double>(running_time_) / lasted : 0;
  summary_.mean_waiting = lasted > 0 ? static_cast<double>(waiting_time_) / lasted : 0;
  for (std::size_t cause = 0; cause < wait_by_cause_.size(); ++cause) {
    if (wait_by_cause_[cause].count() > 0) {
      summary_.wait_causes.push_back(
          {std::string(engine::admission_stop_name(static_cast<engine::AdmissionStop>(cause))), wait_by_cause_[cause]});
    }
  }
  if (wait_for_next_step_.count() > 0) {
    summary_.wait_causes.push_back({"next_step", wait_for_next_step_});
  }
  const engine::PrefixCacheStats cache = parts_.engine.prefix_cache_stats();
  summary_.prefix_query_tokens = cache.query_tokens;
  summary_.prefix_hit_tokens = cache.hit_tokens;
  summary_.num_blocks = load_.usable_blocks + 1;
  summary_.device_busy = server_.device_busy();
  for (const hw::Extrapolation& found : server_.extrapolations()) {
    summary_.notices.push_back("outside what was measured: " + found.what + " (" + found.shape + ")");
  }
}

void EventLoop::check_causal_times(const RequestRecord& record) const {
  SimTime before = record.arrival;
  for (const SimTime stamp : {record.sent, record.queued, record.scheduled, record.first_token, record.last_token}) {
    if (stamp != kNever) {
      BOOST_ASSERT_MSG(before <= stamp, "CAUSAL_TIMES: a request's time stamps go backwards");
      before = stamp;
    }
  }
}

}  // namespace kneepoint::sim
