// A request's way through the simulation, from the client's send to the last
// token, one event at a time.
//
//     client ── sends ──► front end ── reaches engine ──► waiting ► running
//        ▲                    │ refuses                      │ step ends: tokens
//        └──── has answer ◄───┴──────────────────────────────┘
//
// Each event handler below is one arrow. The loop owns what a request is to the
// simulation (Live); the engine knows it by id only, the metrics get its
// RequestRecord when it is over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"
#include "hw/step_time_model.h"
#include "sim/acceptance.h"
#include "sim/admission.h"
#include "sim/client.h"
#include "sim/content_keys.h"
#include "sim/event_queue.h"
#include "sim/observer.h"
#include "sim/output_order.h"
#include "sim/paired_books.h"
#include "sim/percentiles.h"
#include "sim/run_config.h"
#include "sim/run_limits.h"
#include "sim/run_summary.h"
#include "sim/server.h"
#include "sim/stop_signal.h"

namespace kneepoint::sim {

class EventLoop final : private Sampler {
 public:
  struct Parts {
    Client& client;
    engine::Scheduler& engine;
    ContentKeys& keys;
    const hw::StepTimeModel& times;
    const hw::GraphSizes* graphs = nullptr;  ///< Null for a measured server.
    std::vector<RunObserver*> observers;
    const StopSignal* stop = nullptr;        ///< Null: the run goes to its end.
  };

  EventLoop(const RunConfig& config, Parts parts);

  /// Runs until every request is over, a limit of the config is reached, or the signal says stop.
  [[nodiscard]] RunSummary run();

  [[nodiscard]] const EventQueue& events() const { return events_; }

 private:
  struct Live {
    RequestRecord record;
    std::uint64_t session = 0;
    std::int64_t ends_after = 0;  // EOS is the token of this number; 0: ends by length.
    engine::NewRequest request;
    std::int64_t sampled = 0;   // Tokens at the server, whether or not the client gets them.
    bool accepted = false;      // By the front end.
    bool had_output = false;
    // Where its outputs are in OutputOrder: steps by its count, and places in them.
    struct Output {
      std::int64_t step = -1;
      std::int64_t place = 0;
    };
    Output first_listed;
    Output last_listed;
    std::int64_t cohort_since = -1;  // First step of which it had a token unlisted, if it has not been listed since.
    bool server_done = false;   // The answer, or the refusal, is on its way, or nobody waits for one.
    bool client_done = false;   // It has the answer or has given up.
  };

  // One handler per EventKind.
  void client_sends();
  void reaches_engine(Live& live);
  void client_times_out(Live& live);
  void client_has_answer(Live& live);
  void abort_reaches_engine(Live& live);
  void engine_turns();
  void oldest_step_ends();
  [[nodiscard]] bool steps_end_steadily();

  void dispatch(const Event& event);
  void schedule_next_send();
  void accept(Live& live, const traces::TraceRecord& record);
  void client_is_done(Live& live);
  void forget_if_over(const Live& live);
  void wake_engine();
  void plan_turn(SimDuration delay);
  void plan_step_end();
  void deliver_outputs();
  void order_outputs();
  void settle_cohort_tokens(Live& live, std::int64_t num_tokens, SimTime last);
  void leave_cohort_unlisted(Live& live);
  void withdraw_tokens(const Live& live);
  void deliver_tokens(Live& live, const engine::EmittedTokens& tokens);
  void end_at_server(Live& live, RequestEnd end, SimTime at_client);
  void leave_server(Live& live);
  void watch_head();
  void watch_doomed();
  void end_never_running(engine::RequestId id, RequestEnd end);
  void book_step(const Batch& batch);
  void watch_progress();
  void note_load();
  void read_load(SimTime since);
  [[nodiscard]] bool stops_early();
  void close_books();
  void check_causal_times(const RequestRecord& record) const;
  void sample(const Batch& batch, engine::StepResult& result) override;
  [[nodiscard]] bool stopped() const { return parts_.stop != nullptr && parts_.stop->requested; }
  [[nodiscard]] Live& live_of(std::uint64_t id);

  const RunConfig& config_;
  Parts parts_;
  Server server_;
  AdmissionControl admission_;
  DraftAcceptance acceptance_;
  hw::FrontEndTimes front_end_;
  bool keeps_cohort_;  // The engine does not list every output.
  OutputOrder outputs_;
  EventQueue events_;
  std::unordered_map<std::uint64_t, Live> live_;
  RunSummary summary_;
  LimitWatch limits_;
  PairedBooks books_;

  SimTime next_send_planned_ = kNever;  // A kClientSends event stands for this time.
  bool turn_planned_ = false;           // A kEngineTurns event stands.
  bool step_end_planned_ = false;       // A kOldestStepEnds event stands.
  SimTime last_load_change_{};
  engine::EngineLoad load_;
  Int128 running_time_ = 0;  // Integrals over time, in nanoseconds.
  Int128 waiting_time_ = 0;
  std::vector<SimDuration> wait_by_cause_;  // Request-time waited, by engine::AdmissionStop.
  SimDuration wait_for_next_step_{0};       // By those who came after the newest plan.
  std::int64_t blocked_by_plan_ = 0;        // Waited on after the newest plan.
  std::int64_t steps_without_tokens_ = 0;
  struct Doomed {
    engine::RequestId id = engine::kNoRequest;
    std::size_t batches_before = 0;  // In flight when it was found too large for the pool.
  };
  Doomed doomed_;
  engine::RequestId passed_over_ = engine::kNoRequest;  // The head when an idle engine last planned nothing.

  // Reused.
  Send send_;
  TurnReport turn_;
  engine::StepOutcome outcome_;
  std::vector<OutputOrder::Listed> listed_;  // Of the newest step that ended.
  std::vector<OutputOrder::Listed> listed_before_;
  std::vector<std::int64_t> left_;
};

}  // namespace kneepoint::sim
