// The client's side and the server's: one handler an event. What becomes of a
// step's outputs is in event_loop_outputs.cc, the accounts in event_loop_books.cc.
#include "sim/event_loop.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <limits>
#include <utility>

#include "sim/crash_context.h"

namespace kneepoint::sim {
namespace {

// "If nothing could be executed but requests remain, the loop sleeps 1 ms"
// (spec.md 7.1).
constexpr SimDuration kIdleSleep = std::chrono::milliseconds(1);

constexpr std::size_t kNumAdmissionStops = static_cast<std::size_t>(engine::AdmissionStop::kDraftRoom) + 1;

}  // namespace

EventLoop::EventLoop(const RunConfig& config, Parts parts)
    : config_(config),
      parts_(std::move(parts)),
      server_(parts_.engine, parts_.times, parts_.graphs, config.engine),
      admission_(config.admission, config.engine.max_model_len),
      acceptance_(config.draft_acceptance_rates, config.seed),
      front_end_(parts_.times.front_end()),
      keeps_cohort_(!config.engine.walk_decodes),
      outputs_(front_end_.output_per_request),
      limits_(config.limits),
      load_(parts_.engine.load()),
      wait_by_cause_(kNumAdmissionStops) {}

RunSummary EventLoop::run() {
  const CrashContext context(config_.seed, events_);
  summary_.first_send = kNever;
  schedule_next_send();
  while (!events_.empty() && !summary_.storm && !stopped() && !stops_early()) {
    dispatch(events_.pop());
  }
  close_books();
  return std::move(summary_);
}

// A limit that is reached with the last request is no limit to anything.
bool EventLoop::stops_early() {
  const bool reached = limits_.reached(events_.next_time(), books_.num_over());
  if (!reached || (books_.num_over() == books_.num_sent() && parts_.client.next_send_time() == kNever)) {
    return false;
  }
  summary_.stopped_by = limits_.which(books_.num_over());
  return true;
}

void EventLoop::dispatch(const Event& event) {
  switch (event.kind) {
    case EventKind::kOldestStepEnds: return oldest_step_ends();
    case EventKind::kClientSends: return client_sends();
    case EventKind::kEngineTurns: return engine_turns();
    case EventKind::kReachesEngine: return reaches_engine(live_of(event.subject));
    case EventKind::kClientHasAnswer:
    case EventKind::kClientTimesOut:
    case EventKind::kAbortReachesEngine: break;
  }
  // Those that may come when the request is already over: a client that gives up does not wait for an answer on
  // its way, nor does one that has its answer give up.
  const auto found = live_.find(event.subject);
  if (found == live_.end()) {
    return;
  }
  if (event.kind == EventKind::kClientHasAnswer) {
    client_has_answer(found->second);
  } else if (event.kind == EventKind::kClientTimesOut) {
    client_times_out(found->second);
  } else {
    abort_reaches_engine(found->second);
  }
}

// ---- the client's side

void EventLoop::schedule_next_send() {
  const SimTime next = parts_.client.next_send_time();
  if (next == kNever) {
    return;
  }
  const SimTime when = std::max(next, events_.now());
  if (next_send_planned_ != kNever && next_send_planned_ <= when) {
    return;
  }
  next_send_planned_ = when;
  events_.push({when, Phase::kArrival, EventKind::kClientSends, 0});
}

void EventLoop::client_sends() {
  const SimTime now = events_.now();
  if (next_send_planned_ == now) {
    next_send_planned_ = kNever;
  }
  if (parts_.client.next_send_time() <= now && parts_.client.next_send(now, send_)) {
    Live& live = live_[send_.index];
    live = Live{};
    live.record.index = send_.index;
    live.record.arrival = send_.arrival;
    live.record.sent = now;
    live.record.prompt_tokens = send_.record.prompt_tokens;
    live.record.wanted_output_tokens = send_.record.output_tokens;
    live.session = send_.record.session;
    summary_.first_send = std::min(summary_.first_send, now);
    books_.sent(now);
    for (RunObserver* observer : parts_.observers) {
      observer->on_send(live.record);
    }
    if (const std::optional<RequestEnd> refusal = admission_.refuses(send_.record.prompt_tokens)) {
      end_at_server(live, *refusal, now);
    } else {
      accept(live, send_.record);
    }
  }
  schedule_next_send();
}

// The front end lets a request in; the engine will see it when it has passed.
void EventLoop::accept(Live& live, const traces::TraceRecord& record) {
  admission_.on_accepted(record.prompt_tokens);
  live.accepted = true;
  const std::int64_t room = config_.engine.max_model_len - record.prompt_tokens;
  const bool by_eos = record.ends_by == traces::EndsBy::kEos;
  const std::int64_t asked = record.max_tokens > 0 ? record.max_tokens : (by_eos ? room : record.output_tokens);
  live.ends_after = by_eos ? record.output_tokens : 0;

  engine::NewRequest& request = live.request;
  request.id = static_cast<engine::RequestId>(live.record.index);
  request.prompt_tokens = static_cast<std::int32_t>(record.prompt_tokens);
  request.max_tokens = static_cast<std::int32_t>(std::min(asked, std::int64_t{std::numeric_limits<std::int32_t>::max()}));
  request.priority = record.priority;
  request.arrival = live.record.sent.time_since_epoch().count();
  request.adapter = record.adapter;
  request.may_stop = by_eos;
  if (config_.engine.orca_reserve != engine::OrcaReserve::kMax) {  // These two reserve by the true length.
    request.reserve_output_tokens = static_cast<std::int32_t>(std::min(record.output_tokens, room));
  }
  parts_.keys.add(request.id, record);
  events_.push({events_.now() + front_end_.arrival, Phase::kArrival, EventKind::kReachesEngine, live.record.index});
  if (config_.client.timeout) {
    events_.push({events_.now() + *config_.client.timeout, Phase::kArrival, EventKind::kClientTimesOut,
                  live.record.index});
  }
}

void EventLoop::client_times_out(Live& live) {
  const bool answer_is_here = live.server_done && live.record.last_token == events_.now();
  if (live.client_done || answer_is_here) {
    return;
  }
  if (!live.server_done) {
    events_.push({events_.now() + front_end_.arrival, Phase::kArrival, EventKind::kAbortReachesEngine,
                  live.record.index});
  }
  live.record.end = RequestEnd::kClientTimeout;
  live.record.last_token = events_.now();
  client_is_done(live);
}

void EventLoop::client_has_answer(Live& live) {
  if (!live.client_done) {  // Else it gave up while a refusal was on its way.
    client_is_done(live);
  }
}

// The client's account of a request closes; a slot of its semaphore is free.
void EventLoop::client_is_done(Live& live) {
  const Finished finished{live.record.index, live.session, events_.now()};
  check_causal_times(live.record);
  if (!is_completed(live.record.end)) {
    withdraw_tokens(live);
  }
  for (RunObserver* observer : parts_.observers) {
    observer->on_request_end(live.record);
  }
  live.client_done = true;
  books_.over(events_.now(), live.record.sent);
  forget_if_over(live);
  parts_.client.on_finished(finished);
  schedule_next_send();
}

void EventLoop::forget_if_over(const Live& live) {
  if (live.client_done && live.server_done) {
    books_.request_got(live.sampled);
    if (live.first_listed.step >= 0) {
      outputs_.release(live.first_listed.step);
    }
    live_.erase(live.record.index);
  }
}

// ---- the server's side

void EventLoop::reaches_engine(Live& live) {
  live.record.queued = events_.now();
  parts_.engine.add_request(live.request);
  note_load();
  wake_engine();
}

void EventLoop::abort_reaches_engine(Live& live) {
  if (live.server_done) {
    return;
  }
  parts_.engine.abort_request(live.request.id);
  leave_server(live);
  forget_if_over(live);
  note_load();
  wake_engine();
}

// With nothing in flight the engine waits for input; else it looks when the
// oldest batch ends.
void EventLoop::wake_engine() {
  if (server_.idle()) {
    if (!turn_planned_) {
      parts_.engine.set_engine_turn(0);  // A wave begins (spec.md 2.5).
    }
    plan_turn(SimDuration{0});
  }
}

void EventLoop::plan_turn(SimDuration delay) {
  if (!turn_planned_) {
    turn_planned_ = true;
    events_.push({events_.now() + delay, Phase::kStepBegin, EventKind::kEngineTurns, 0});
  }
}

void EventLoop::engine_turns() {
  turn_planned_ = false;
  note_load();  // The time up to now goes to the plan before.
  server_.turn(events_.now(), turn_);
  for (const TurnReport::Started& started : turn_.started) {
    RequestRecord& record = live_of(started.id).record;
    record.scheduled = events_.now();
    record.cached_tokens = started.cached_tokens;
  }
  for (const engine::RequestId id : turn_.preempted) {
    ++live_of(id).record.preemptions;
    ++summary_.preemptions;
    for (RunObserver* observer : parts_.observers) {
      observer->on_preempt(live_of(id).record, events_.now());
    }
  }
  for (const engine::RequestId id : turn_.paused) {
    leave_cohort_unlisted(live_of(id));
  }
  for (const engine::RequestId id : turn_.ignored) {
    end_at_server(live_of(id), RequestEnd::kIgnored, events_.now() + front_end_.output);
  }
  note_load();
  blocked_by_plan_ = load_.num_waiting;
  watch_head();
  plan_step_end();
}

void EventLoop::plan_step_end() {
  if (!server_.idle() && !step_end_planned_) {
    step_end_planned_ = true;
    // An empty batch in flight may have ended while the engine turned round.
    events_.push({std::max(server_.oldest_end(), events_.now()), Phase::kStepEnd, EventKind::kOldestStepEnds, 0});
  }
}

// Where nothing runs the pool is as empty as it will ever be: a head that needs
// more than all of it waits forever, and everyone behind it, or is preempted again
// and again. vLLM hangs here. And an engine that twice plans nothing for the same
// head, which has the whole server to itself, never will: its policy cannot run it.
void EventLoop::watch_head() {
  if (load_.num_running > 0 || load_.num_waiting == 0) {
    passed_over_ = engine::kNoRequest;
    return;
  }
  const engine::RequestId head = parts_.engine.waiting_head();
  if (parts_.engine.blocks_needed_by_head() > load_.usable_blocks) {
    if (server_.computing()) {  // What was planned before may still bring its last token.
      doomed_ = {head, server_.num_in_flight()};
    } else {
      end_never_running(head, RequestEnd::kNeverFits);
    }
  } else if (!server_.computing() && std::exchange(passed_over_, head) == head) {
    end_never_running(head, RequestEnd::kIgnored);
  }
}

// One batch less that might bring the last token of a request too large for the pool.
void EventLoop::watch_doomed() {
  if (doomed_.id == engine::kNoRequest || --doomed_.batches_before > 0) {
    return;
  }
  const engine::RequestId id = std::exchange(doomed_.id, engine::kNoRequest);
  const auto found = live_.find(id);
  if (found != live_.end() && !found->second.server_done) {
    end_never_running(id, RequestEnd::kNeverFits);
  }
}

void EventLoop::end_never_running(engine::RequestId id, RequestEnd end) {
  Live& live = live_of(id);
  if (end == RequestEnd::kNeverFits) {
    ++summary_.never_fit;
    summary_.hangs_from = std::min(summary_.hangs_from, events_.now());
  }
  parts_.engine.abort_request(id);
  end_at_server(live, end, events_.now() + front_end_.output);
  note_load();
}

// Many steps at once, as long as nothing happens but that each running request
// gets a token from each; false if not even the oldest step is such a one.
bool EventLoop::steps_end_steadily() {
  constexpr std::int64_t kMostTurns = 1 << 16;
  const bool all_go_on = keeps_cohort_ && outputs_.all_go_on() && load_.num_running == outputs_.num_outputs();
  if (!all_go_on || blocked_by_plan_ != load_.num_waiting) {  // The newest plan has not seen all who wait.
    return false;
  }
  const std::int64_t turns = parts_.engine.steady_turns(kMostTurns);
  if (turns == 0) {
    return false;
  }
  const SimDuration turnaround = parts_.times.turnaround(outputs_.num_outputs());
  const SimTime until = std::min(events_.next_time(), limits_.latest());
  const std::int64_t done = server_.turn_steadily(turns, turnaround, until, [this, turnaround](const Batch& batch) {
    events_.advance_to(batch.record.end);
    book_step(batch);
    books_.step_gave(outputs_.num_outputs());
    outputs_.next_like_before(events_.now() + front_end_.output);
    for (RunObserver* observer : parts_.observers) {
      observer->on_cohort_tokens(outputs_.cohort());
    }
    read_load(events_.now() + turnaround);  // The next plan took blocks; nothing else changes.
  });
  if (done == 0) {
    return false;
  }
  steps_without_tokens_ = 0;
  listed_.clear();
  note_load();
  plan_step_end();
  return true;
}

void EventLoop::oldest_step_ends() {
  step_end_planned_ = false;
  note_load();
  if (steps_end_steadily()) {
    return;
  }
  const Batch& batch = server_.finish_oldest(*this, outcome_);
  const bool computed = batch.num_tokens > 0;
  if (computed) {
    book_step(batch);
    watch_progress();
  }
  deliver_outputs();
  for (const engine::EmittedTokens& tokens : outcome_.emitted) {
    books_.step_gave(tokens.num_tokens);
  }
  books_.step_gave(outcome_.num_emitted - static_cast<std::int64_t>(outcome_.emitted.size()));
  note_load();
  watch_doomed();
  const bool nothing_can_run = !computed && server_.idle() && parts_.engine.has_requests();
  const SimDuration turnaround =
      computed ? parts_.times.turnaround(outcome_.num_emitted) : SimDuration{0};
  plan_turn(nothing_can_run ? kIdleSleep : turnaround);
}

EventLoop::Live& EventLoop::live_of(std::uint64_t id) {
  const auto found = live_.find(id);
  BOOST_ASSERT_MSG(found != live_.end(), "CONSERVE_REQUESTS: an event for a request that is not there");
  return found->second;
}

}  // namespace kneepoint::sim
