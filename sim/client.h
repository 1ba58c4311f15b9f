// The client: who sends which request when.
//
// Three kinds, stacked. OpenLoopClient sends at the workload's times whatever
// the server does, but for the turns of a session, which wait for the answer
// before. SemaphoreClient lets at most N requests be under way, as
// `vllm bench serve --max-concurrency N` does: a request's task is created at
// its arrival time and waits for a slot, first come first served; the client's
// clock for the request starts when it is sent (spec.md 7.2).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/sim_time.h"
#include "traces/trace_record.h"

namespace kneepoint::sim {

/// A request of the workload and the time at which it means to be sent.
struct Send {
  std::uint64_t index = 0;  ///< Position in the workload, from 0.
  SimTime arrival{};
  traces::TraceRecord record;
};

/// Requests in the order of their arrival.
class Workload {
 public:
  virtual ~Workload() = default;
  /// The next request into `send`, whose storage is reused; false at the end.
  [[nodiscard]] virtual bool next(Send& send) = 0;
};

/// A request that is over, completed or not.
struct Finished {
  std::uint64_t index = 0;
  std::uint64_t session = traces::kNoSession;
  SimTime time{};
};

class Client {
 public:
  virtual ~Client() = default;

  /// When there may be something to send; kNever if not before an
  /// on_finished(), or never again.
  [[nodiscard]] virtual SimTime next_send_time() = 0;

  /// Moves a request that is due at `now` into `send`; false if none is after
  /// all (it turned out to wait for an answer).
  [[nodiscard]] virtual bool next_send(SimTime now, Send& send) = 0;

  /// The client knows that a request it sent is over.
  virtual void on_finished(const Finished& finished) = 0;
};

/// Sends at the workload's times; a later turn of a session when the answer
/// before it has been read and thought about.
class OpenLoopClient final : public Client {
 public:
  explicit OpenLoopClient(std::unique_ptr<Workload> workload);

  [[nodiscard]] SimTime next_send_time() override;
  [[nodiscard]] bool next_send(SimTime now, Send& send) override;
  void on_finished(const Finished& finished) override;

 private:
  struct Session {
    std::int64_t under_way = 0;  // Turns sent and not over, and turns that wait.
    SimTime last_finish{};
    std::deque<Send> waiting;    // Turns whose predecessor is not over.
  };
  struct Later {  // Orders the heap: earliest first, then by position.
    bool operator()(const Send& a, const Send& b) const {
      return std::tie(a.arrival, a.index) > std::tie(b.arrival, b.index);
    }
  };

  void read_head();
  void release(Send send, SimTime after);

  std::unique_ptr<Workload> workload_;
  Send head_;            // Next of the workload.
  bool has_head_ = false;
  std::priority_queue<Send, std::vector<Send>, Later> ready_;  // Later turns whose predecessor is over.
  std::unordered_map<std::uint64_t, Session> sessions_;
};

/// Lets at most `max_concurrency` requests of another client be under way.
class SemaphoreClient final : public Client {
 public:
  /// `think`: from a completion until its slot can be used, as real clients take
  /// some time; asked once per completion. Null: none.
  SemaphoreClient(std::unique_ptr<Client> inner, std::int64_t max_concurrency,
                  std::function<SimDuration()> think = nullptr);

  [[nodiscard]] SimTime next_send_time() override;
  [[nodiscard]] bool next_send(SimTime now, Send& send) override;
  void on_finished(const Finished& finished) override;

 private:
  std::unique_ptr<Client> inner_;
  std::function<SimDuration()> think_;
  // When each free slot can be used, earliest first.
  std::priority_queue<SimTime, std::vector<SimTime>, std::greater<>> free_slots_;
};

}  // namespace kneepoint::sim
