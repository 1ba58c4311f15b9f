#include "sim/client.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <tuple>
#include <utility>

namespace kneepoint::sim {

OpenLoopClient::OpenLoopClient(std::unique_ptr<Workload> workload) : workload_(std::move(workload)) { read_head(); }

void OpenLoopClient::read_head() { has_head_ = workload_->next(head_); }

SimTime OpenLoopClient::next_send_time() {
  SimTime next = has_head_ ? head_.arrival : kNever;
  if (!ready_.empty()) {
    next = std::min(next, ready_.top().arrival);
  }
  return next;
}

bool OpenLoopClient::next_send(SimTime now, Send& send) {
  const bool from_ready = !ready_.empty() && (!has_head_ || ready_.top().arrival <= head_.arrival);
  if (from_ready) {
    if (ready_.top().arrival > now) {
      return false;
    }
    send = ready_.top();
    ready_.pop();
    return true;
  }
  if (!has_head_ || head_.arrival > now) {
    return false;
  }
  if (head_.record.session == traces::kNoSession) {
    std::swap(send, head_);
    read_head();
    return true;
  }
  Session& session = sessions_[head_.record.session];
  ++session.under_way;
  const bool waits = head_.record.after_previous && session.under_way > 1;
  if (waits) {
    session.waiting.push_back(std::move(head_));
  } else if (head_.record.after_previous && session.last_finish + head_.record.think_time > now) {
    release(std::move(head_), session.last_finish);
  } else {
    send = std::move(head_);
    read_head();
    return true;
  }
  read_head();
  return false;
}

// `send` may go once its think time after the answer before has passed.
void OpenLoopClient::release(Send send, SimTime after) {
  send.arrival = std::max(send.arrival, after + send.record.think_time);
  ready_.push(std::move(send));
}

void OpenLoopClient::on_finished(const Finished& finished) {
  if (finished.session == traces::kNoSession) {
    return;
  }
  Session& session = sessions_.at(finished.session);
  --session.under_way;
  session.last_finish = finished.time;
  if (!session.waiting.empty()) {
    release(std::move(session.waiting.front()), finished.time);
    session.waiting.pop_front();
  }
}

SemaphoreClient::SemaphoreClient(std::unique_ptr<Client> inner, std::int64_t max_concurrency,
                                 std::function<SimDuration()> think)
    : inner_(std::move(inner)), think_(std::move(think)) {
  BOOST_ASSERT(max_concurrency > 0);
  for (std::int64_t i = 0; i < max_concurrency; ++i) {
    free_slots_.push(SimTime{});
  }
}

SimTime SemaphoreClient::next_send_time() {
  if (free_slots_.empty()) {
    return kNever;
  }
  const SimTime next = inner_->next_send_time();
  return next == kNever ? kNever : std::max(next, free_slots_.top());
}

bool SemaphoreClient::next_send(SimTime now, Send& send) {
  if (free_slots_.empty() || free_slots_.top() > now || !inner_->next_send(now, send)) {
    return false;
  }
  free_slots_.pop();
  return true;
}

void SemaphoreClient::on_finished(const Finished& finished) {
  free_slots_.push(finished.time + (think_ ? think_() : SimDuration{0}));
  inner_->on_finished(finished);
}

}  // namespace kneepoint::sim
