// A step's outputs on their way to the clients, and how a request leaves the server.
#include <algorithm>

#include "sim/event_loop.h"

namespace kneepoint::sim {

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

}  // namespace kneepoint::sim
