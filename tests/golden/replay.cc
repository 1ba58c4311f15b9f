#include "tests/golden/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/vllm_v1.h"
#include "tests/golden/executor.h"

namespace kneepoint::golden {

namespace {

using engine::RequestId;
using nlohmann::json;

/// Thrown through the engine loop to end a replay at the first difference.
struct Differs {
  Difference difference;
};

const char* kind_name(engine::ScheduledKind kind) {
  switch (kind) {
    case engine::ScheduledKind::kNew:
      return "new";
    case engine::ScheduledKind::kResumed:
      return "resumed";
    case engine::ScheduledKind::kRunning:
      return "run";
  }
  return "?";
}

/// Walks both values in step; throws at the first leaf that differs.
void compare(const json& ours, const json& theirs, const std::string& field, std::int64_t step) {
  if (ours.is_object() && theirs.is_object()) {
    for (const auto& [key, value] : theirs.items()) {
      const bool present = ours.contains(key);
      compare(present ? ours.at(key) : json("(absent)"), value, fmt::format("{}.{}", field, key), step);
    }
    for (const auto& [key, value] : ours.items()) {
      if (!theirs.contains(key)) {
        throw Differs{{step, fmt::format("{}.{}", field, key), value.dump(), "(absent)"}};
      }
    }
    return;
  }
  if (ours.is_array() && theirs.is_array() && ours.size() == theirs.size() &&
      (theirs.empty() || theirs.front().is_object())) {
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      compare(ours[i], theirs[i], fmt::format("{}[{}]", field, i), step);
    }
    return;
  }
  if (ours != theirs) {
    throw Differs{{step, field, ours.dump(), theirs.dump()}};
  }
}

/// Usage is recorded with six digits; which way a tie was rounded does not matter.
bool same_when_rounded(double exact, double recorded) {
  return std::abs(exact - recorded) < 0.5e-6 + 1e-12;
}

/// The same script for an engine that keeps a cohort. Recorded stops then come as a surprise to it.
Script with_way(Script script, Way way) {
  if (way == Way::kCohort) {
    script.config.walk_decodes = false;
    for (ScriptRequest& request : script.requests) {
      request.request.may_stop = false;
    }
  }
  return script;
}

class Replay {
 public:
  Replay(const RecordedCase& recorded, Way way)
      : recorded_(recorded),
        script_(with_way(recorded.script, way)),
        executor_(script_),
        scheduler_(script_.config, executor_),
        depth_(static_cast<std::size_t>(engine::batches_in_flight(script_.config))) {}

  /// Runs to the end or throws Differs.
  void run();

  [[nodiscard]] std::int64_t events() const { return static_cast<std::int64_t>(next_event_); }

 private:
  void arrive();
  void turn();
  void schedule();
  void update();
  void expect(json ours);
  [[nodiscard]] json scheduled_event(const std::vector<engine::ScheduledRequest>& step);
  [[nodiscard]] json share_entry(const engine::ScheduledRequest& share);
  void add_queues(json& event) const;
  void add_pool(json& event) const;
  [[nodiscard]] json names(const std::vector<RequestId>& ids) const;
  void note_unwalked(const std::vector<engine::ScheduledRequest>& step);
  [[nodiscard]] std::vector<engine::EmittedTokens> all_emitted();

  const RecordedCase& recorded_;
  Script script_;
  Executor executor_;
  engine::VllmV1 scheduler_;
  std::size_t depth_;

  std::int64_t iteration_ = 0;
  std::size_t next_arrival_ = 0;
  std::size_t next_abort_ = 0;
  std::size_t next_event_ = 0;
  std::deque<engine::StepResult> in_flight_;
  std::set<RequestId> arrived_;
  std::set<RequestId> ended_;
  std::deque<std::vector<RequestId>> unwalked_;  // Members of the cohort, for each step in flight.
  engine::StepPlan plan_;
  engine::StepOutcome outcome_;
  std::map<RequestId, std::size_t> blocks_shown_;  // Of each running request's table, in earlier events.
};

void Replay::run() {
  for (; iteration_ < script_.max_iterations; ++iteration_) {
    arrive();
    if (scheduler_.has_requests() || !in_flight_.empty()) {
      turn();
    } else if (next_arrival_ == script_.requests.size()) {
      break;
    }
  }
  if (next_event_ < recorded_.trace.size()) {
    throw Differs{{iteration_, "event", "(none)", recorded_.trace[next_event_].dump()}};
  }
}

void Replay::arrive() {
  while (next_arrival_ < script_.requests.size() && script_.requests[next_arrival_].at <= iteration_) {
    arrived_.insert(script_.requests[next_arrival_].request.id);
    scheduler_.add_request(script_.requests[next_arrival_++].request);
  }
  while (next_abort_ < script_.aborts.size() && script_.aborts[next_abort_].at <= iteration_) {
    const RequestId id = script_.aborts[next_abort_++].id;
    scheduler_.abort_request(id);
    if (arrived_.contains(id)) {
      ended_.insert(id);
    }
  }
}

/// One turn of the engine loop: fill the pipeline first, then take the oldest result.
void Replay::turn() {
  if (depth_ == 1) {
    schedule();
    update();
    return;
  }
  if (scheduler_.has_requests()) {
    schedule();
    if (in_flight_.size() < depth_ && (plan_.num_tokens > 0 || scheduler_.has_requests())) {
      return;
    }
  }
  update();
}

void Replay::schedule() {
  scheduler_.set_engine_turn(iteration_);
  scheduler_.plan_step(plan_);
  std::vector<engine::ScheduledRequest> step;
  scheduler_.for_each_scheduled([&](const engine::ScheduledRequest& share) { step.push_back(share); });
  expect(scheduled_event(step));
  note_unwalked(step);
  in_flight_.push_back(executor_.run(step));
}

void Replay::update() {
  scheduler_.update(in_flight_.front(), outcome_);
  in_flight_.pop_front();
  json event{{"ev", "update"}, {"step", iteration_}, {"out", json::array()}};
  for (const engine::EmittedTokens& emitted : all_emitted()) {
    json fin;
    if (emitted.finish != engine::FinishReason::kNone) {
      fin = engine::finish_reason_name(emitted.finish);
    }
    event["out"].push_back(
        {{"id", script_.names[emitted.id]}, {"toks", emitted.num_tokens}, {"fin", std::move(fin)}});
  }
  add_pool(event);
  expect(std::move(event));
}

/// Who is in the step and was not walked.
void Replay::note_unwalked(const std::vector<engine::ScheduledRequest>& step) {
  std::vector<RequestId>& unwalked = unwalked_.emplace_back();
  std::set<RequestId> walked;
  scheduler_.for_each_walked([&](const engine::ScheduledRequest& share) { walked.insert(share.id); });
  for (const engine::ScheduledRequest& share : step) {
    if (!walked.contains(share.id)) {
      unwalked.push_back(share.id);
    }
  }
  if (std::ssize(unwalked) != plan_.num_unwalked) {
    throw Differs{{iteration_, "unwalked", std::to_string(plan_.num_unwalked), std::to_string(unwalked.size())}};
  }
}

/// The outcome with the members of the cohort, one token each, in the places that are left for them.
std::vector<engine::EmittedTokens> Replay::all_emitted() {
  std::set<RequestId> gone = ended_;  // Listed, or ended since.
  for (const engine::EmittedTokens& emitted : outcome_.emitted) {
    gone.insert(emitted.id);
    if (emitted.finish != engine::FinishReason::kNone) {
      ended_.insert(emitted.id);
    }
  }
  std::vector<engine::EmittedTokens> all;
  auto listed = outcome_.emitted.begin();
  const auto add_listed = [&] {
    for (; listed != outcome_.emitted.end() && listed->place == std::ssize(all); ++listed) {
      all.push_back(*listed);
    }
  };
  for (const RequestId id : unwalked_.front()) {
    if (!gone.contains(id)) {
      add_listed();
      all.push_back({.id = id, .num_tokens = 1});
    }
  }
  add_listed();
  unwalked_.pop_front();
  if (listed != outcome_.emitted.end() || std::ssize(all) != outcome_.num_emitted) {
    throw Differs{{iteration_, "num_emitted", std::to_string(outcome_.num_emitted), std::to_string(all.size())}};
  }
  return all;
}

/// Token values are free, so `toks` is compared as a count; the free queue only where it was recorded.
void Replay::expect(json ours) {
  if (next_event_ == recorded_.trace.size()) {
    throw Differs{{iteration_, "event", ours.dump(), "(none)"}};
  }
  json theirs = recorded_.trace[next_event_];
  if (!theirs.contains("free_queue")) {
    ours.erase("free_queue");
  }
  if (theirs.contains("usage") && ours.contains("usage") &&
      same_when_rounded(ours["usage"], theirs["usage"])) {
    ours["usage"] = theirs["usage"];
  }
  if (theirs.contains("out")) {
    for (json& output : theirs["out"]) {
      output["toks"] = output.at("toks").size();
    }
  }
  compare(ours, theirs, ours.at("ev").get<std::string>(), iteration_);
  ++next_event_;
}

json Replay::scheduled_event(const std::vector<engine::ScheduledRequest>& step) {
  json event{{"ev", "schedule"}, {"step", iteration_}, {"total", plan_.num_tokens}, {"sched", json::array()}};
  for (const RequestId id : plan_.preempted) {
    blocks_shown_.erase(id);
  }
  for (const engine::ScheduledRequest& share : step) {
    event["sched"].push_back(share_entry(share));
  }
  std::vector<RequestId> finished = plan_.finished;
  std::ranges::sort(finished);  // vLLM reports a set; the recorder sorted it.
  event["preempted"] = names(plan_.preempted);
  event["finished"] = names(finished);
  add_queues(event);
  add_pool(event);
  const engine::EngineLoad load = scheduler_.load();
  event["usage"] = 1.0 - static_cast<double>(load.free_blocks) / static_cast<double>(load.usable_blocks);
  return event;
}

json Replay::share_entry(const engine::ScheduledRequest& share) {
  const auto table = scheduler_.block_table(share.id);
  std::size_t& shown = blocks_shown_[share.id];
  if (share.kind != engine::ScheduledKind::kRunning) {
    shown = 0;
  }
  const auto given = table.subspan(shown);
  shown = table.size();
  return {{"id", script_.names[share.id]},
          {"n", share.num_scheduled_tokens},
          {"computed", share.num_computed_tokens},
          {"kind", kind_name(share.kind)},
          {"spec", share.num_draft_tokens},
          {"blocks", std::vector<engine::BlockId>(given.begin(), given.end())}};
}

void Replay::add_queues(json& event) const {
  json waiting = json::array();
  json skipped = json::array();
  json queue = json::array();
  for (const engine::VllmV1::Waiting& entry : scheduler_.waiting()) {
    const std::string& name = script_.names[entry.id];
    (entry.deferred ? skipped : waiting).push_back(name);
    queue.push_back(name);
  }
  event["running"] = names(scheduler_.running());
  if (!skipped.empty()) {
    event["queue"] = std::move(queue);
  }
  event["waiting"] = std::move(waiting);
  event["skipped"] = std::move(skipped);
}

void Replay::add_pool(json& event) const {
  event["free"] = scheduler_.pool().num_free();
  event["free_queue"] = scheduler_.pool().free_queue();
}

json Replay::names(const std::vector<RequestId>& ids) const {
  json list = json::array();
  for (const RequestId id : ids) {
    list.push_back(script_.names[id]);
  }
  return list;
}

}  // namespace

ReplayOutcome replay(const RecordedCase& recorded, Way way) {
  Replay replay(recorded, way);
  try {
    replay.run();
  } catch (const Differs& differs) {
    return {replay.events(), differs.difference};
  }
  return {replay.events(), std::nullopt};
}

}  // namespace kneepoint::golden
