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

// So many computing steps in a row without one token for anybody are no
// preemption that sorts itself out: the longest prefill takes far fewer.
constexpr std::int64_t kStormSteps = 100'000;

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
    ++summary_.steps;
    summary_.scheduled_tokens += batch.num_tokens;
    books_.planned_tokens(batch.num_tokens);
    books_.member_tokens(batch.record.generation_tokens);
    books_.step_gave(outputs_.num_outputs());
    outputs_.next_like_before(events_.now() + front_end_.output);
    for (RunObserver* observer : parts_.observers) {
      observer->on_step(batch.record);
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
  step_end_planned_ = true;
  events_.push({server_.oldest_end(), Phase::kStepEnd, EventKind::kOldestStepEnds, 0});
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
    ++summary_.steps;
    summary_.scheduled_tokens += batch.num_tokens;
    books_.planned_tokens(batch.num_tokens);
    books_.member_tokens(batch.record.context_tokens + batch.record.generation_tokens);
    for (RunObserver* observer : parts_.observers) {
      observer->on_step(batch.record);
    }
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

// ---- outputs on their way to the clients

void EventLoop::deliver_outputs() {
  if (keeps_cohort_) {
    order_outputs();
  }
  for (const engine::EmittedTokens& tokens : outcome_.emitted) {
    deliver_tokens(live_of(tokens.id), tokens);
  }
}

// Finds out what those got whom the outcome does not list, and when those it lists
// got what came before.
void EventLoop::order_outputs() {
  const std::int64_t number = outputs_.num_steps();
  for (const engine::RequestId id : outcome_.joined) {
    live_of(id).cohort_since = number;
  }
  std::swap(listed_, listed_before_);
  listed_.clear();
  for (const engine::EmittedTokens& tokens : outcome_.emitted) {
    Live& live = live_of(tokens.id);
    const bool enters = live.cohort_since < 0 && live.last_listed.step != number - 1;
    listed_.push_back({tokens.id, tokens.place, enters, {}});
    live.last_listed = {number, tokens.place};
    if (live.first_listed.step < 0) {
      live.first_listed = live.last_listed;
    }
  }
  for (const OutputOrder::Listed& before : listed_before_) {
    const auto found = live_.find(before.id);
    const bool goes_on = found != live_.end() && !found->second.server_done &&
                         (found->second.last_listed.step == number || found->second.cohort_since == number);
    if (!goes_on) {
      left_.push_back(before.place);
    }
  }
  outputs_.next_step(events_.now() + front_end_.output, outcome_.num_emitted, listed_, left_);
  left_.clear();
  for (const OutputOrder::Listed& output : listed_) {
    if (live_of(output.id).first_listed.step == number) {
      outputs_.hold(number);  // Until it is over: should it fail, its tokens are withdrawn.
    }
  }
  if (outputs_.cohort().count > 0) {
    for (RunObserver* observer : parts_.observers) {
      observer->on_cohort_tokens(outputs_.cohort());
    }
  }
  for (const OutputOrder::Listed& output : listed_) {
    Live& live = live_of(output.id);
    if (live.cohort_since >= 0) {
      settle_cohort_tokens(live, number - live.cohort_since, output.previous);
    }
  }
}

// A request was given `num_tokens` tokens unlisted, the last of which came at `last`.
void EventLoop::settle_cohort_tokens(Live& live, std::int64_t num_tokens, SimTime last) {
  live.cohort_since = -1;
  live.sampled += num_tokens;
  live.record.output_tokens += num_tokens;
  live.record.last_token = last;
}

// The step that ends next has no output for it.
void EventLoop::leave_cohort_unlisted(Live& live) {
  std::int64_t place = 0;
  SimTime last{};
  outputs_.follow(live.request.id, live.last_listed.step, live.last_listed.place,
                  [&](std::int64_t, std::int64_t its_place, SimTime at_client) {
                    place = its_place;
                    last = at_client;
                  });
  left_.push_back(place);
  settle_cohort_tokens(live, outputs_.num_steps() - live.cohort_since, last);
}

void EventLoop::withdraw_tokens(const Live& live) {
  if (!keeps_cohort_ || live.first_listed.step < 0) {
    return;
  }
  std::vector<SimTime> times;
  outputs_.follow(live.request.id, live.first_listed.step, live.first_listed.place,
                  [&](std::int64_t, std::int64_t, SimTime at_client) { times.push_back(at_client); });
  for (RunObserver* observer : parts_.observers) {
    observer->on_tokens_withdrawn(times);
  }
}

// One request's part of a step's output on its way to the client.
void EventLoop::deliver_tokens(Live& live, const engine::EmittedTokens& tokens) {
  RequestRecord& record = live.record;
  if (!live.had_output && tokens.num_tokens > 0) {
    live.had_output = true;
    admission_.on_first_output(record.prompt_tokens);
  }
  const SimTime at_client = outputs_.time_at(events_.now() + front_end_.output, tokens.place);
  const SimTime deadline = config_.client.timeout ? record.sent + *config_.client.timeout : kNever;
  const bool received = !live.client_done && at_client <= deadline;
  live.sampled += tokens.num_tokens;
  if (received && tokens.num_tokens > 0) {
    const SimTime previous = record.last_token;
    record.output_tokens += tokens.num_tokens;
    record.last_token = at_client;
    if (previous == kNever) {
      record.first_token = at_client;
    }
    for (RunObserver* observer : parts_.observers) {
      observer->on_tokens(record, previous, at_client, tokens.num_tokens);
    }
  }
  if (tokens.finish == engine::FinishReason::kNone) {
    return;
  }
  if (received) {
    end_at_server(live, tokens.finish == engine::FinishReason::kStop ? RequestEnd::kStop : RequestEnd::kLength, at_client);
    return;
  }
  leave_server(live);  // The client has given up, or will before this arrives.
  forget_if_over(live);
}

// The server is done with a request; its client will know at `at_client`.
void EventLoop::end_at_server(Live& live, RequestEnd end, SimTime at_client) {
  live.record.end = end;
  live.record.last_token = at_client;
  leave_server(live);
  if (live.client_done) {
    forget_if_over(live);
    return;
  }
  events_.push({at_client, Phase::kArrival, EventKind::kClientHasAnswer, live.record.index});
}

void EventLoop::leave_server(Live& live) {
  live.server_done = true;
  if (!live.accepted) {
    return;
  }
  if (live.record.queued != kNever) {
    books_.left_engine(events_.now() - live.record.queued);
  }
  if (!live.had_output) {
    admission_.on_first_output(live.record.prompt_tokens);
  }
  admission_.on_over();
  parts_.keys.remove(live.request.id);
}

void EventLoop::sample(const Batch& batch, engine::StepResult& result) {
  for (const BatchMember& member : batch.members) {
    if (!member.samples) {
      continue;
    }
    const auto found = live_.find(member.id);
    if (found == live_.end()) {
      continue;  // Ended while this batch was in flight.
    }
    const Live& live = found->second;
    std::int32_t num_tokens = 1;
    if (member.num_draft_tokens > 0 && !member.drafts_padded) {
      num_tokens += acceptance_.draw(member.num_draft_tokens);
    }
    const bool reaches_eos = live.ends_after > 0 && live.sampled + num_tokens >= live.ends_after;
    if (reaches_eos || member.num_draft_tokens > 0) {
      const std::int64_t stop_at = reaches_eos ? live.ends_after - live.sampled - 1 : -1;
      result.exceptions.push_back({member.id, num_tokens, static_cast<std::int32_t>(stop_at)});
    }
  }
}

// ---- books

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
    }
  }
  summary_.sent = books_.num_sent();
  summary_.audit = books_.close(summary_.end, whole, load_.free_blocks, load_.usable_blocks);
  if (summary_.first_send == kNever) {
    summary_.first_send = SimTime{};
  }
  for (const auto& [id, live] : live_) {
    if (!live.client_done) {
      withdraw_tokens(live);
    }
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

EventLoop::Live& EventLoop::live_of(std::uint64_t id) {
  const auto found = live_.find(id);
  BOOST_ASSERT_MSG(found != live_.end(), "CONSERVE_REQUESTS: an event for a request that is not there");
  return found->second;
}

}  // namespace kneepoint::sim
