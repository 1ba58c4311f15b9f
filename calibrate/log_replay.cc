#include "calibrate/log_replay.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "calibrate/calibrate_error.h"

namespace kneepoint::calibrate {

namespace {

// The log prints KV use in percent with one digit.
constexpr double kKvTolerance = 0.0005 + 1e-9;

bool agree(const IterationLine& logged, const sim::ReplayedStep& ours) {
  return logged.context_requests == ours.context_requests && logged.context_tokens == ours.context_tokens &&
         logged.generation_requests == ours.generation_requests &&
         logged.generation_tokens == ours.generation_tokens &&
         (!logged.kv_usage || std::abs(*logged.kv_usage - ours.kv_usage) <= kKvTolerance);
}

// The decision that most likely differs, by what differs first in a step.
std::string rule_concerned(const IterationLine& logged, const sim::ReplayedStep& ours,
                           std::int64_t block_size) {
  if (logged.generation_requests != ours.generation_requests) {
    return ours.generation_requests < logged.generation_requests
               ? "fewer requests decode: preemption (spec 2.1.8), or answers shorter than the server's"
               : "more requests decode: preemption (spec 2.1.8), or answers longer than the server's";
  }
  if (logged.context_requests != ours.context_requests) {
    return fmt::format("admission (spec 2.2); ours stopped at: {}",
                       engine::admission_stop_name(ours.admission_stop));
  }
  const std::int64_t tokens = ours.context_tokens - logged.context_tokens;
  if (tokens != 0 && tokens % block_size == 0) {
    return tokens > 0 ? "prefix cache: the server hit more blocks (spec 4.4)"
                      : "prefix cache: the server hit fewer blocks (spec 4.4)";
  }
  if (tokens != 0) return "token budget and chunks (spec 2.1.6, 2.2.11), or prompts of other lengths";
  return "KV blocks held (spec 4.3, 4.6), or another number of blocks";
}

// Requests in the order in which they can have been admitted.
std::vector<std::size_t> admission_order(const Run& run) {
  std::vector<std::size_t> order(run.trace.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto first_token = [&](std::size_t i) {
    return run.client ? run.client->requests[i].start_s + run.client->requests[i].ttft_s
                      : run.trace[i].send_s;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return first_token(a) < first_token(b); });
  return order;
}

// One attempt at a run, able to start over: the scheduler cannot be copied, but
// it is deterministic, so an earlier state is reached again by the same arrivals.
class Attempt {
 public:
  Attempt(const engine::SchedulerConfig& config, const std::vector<traces::TraceRecord>& records,
          const std::vector<std::size_t>& order)
      : config_(config), records_(records), order_(order) {}

  /// Forgets everything and starts from this pool.
  void restart(std::vector<engine::FreeBlock> free_queue) {
    free_queue_ = std::move(free_queue);
    arrivals_.clear();
    rewind();
  }

  /// Goes on to the end of step `arrivals_.size()` with `count` arrivals before
  /// it; undone by rewind() unless kept.
  bool try_step(std::size_t count, sim::ReplayedStep& step) {
    for (std::size_t i = 0; i < count; ++i) replay_->add(order_[arrived_ + i]);
    return replay_->next(step);
  }
  void keep(std::size_t count) {
    arrivals_.push_back(count);
    arrived_ += count;
  }
  void rewind() {
    replay_ = std::make_unique<sim::StepReplay>(config_, records_, free_queue_);
    arrived_ = 0;
    sim::ReplayedStep ignored;
    for (const std::size_t count : arrivals_) {
      static_cast<void>(try_step(count, ignored));
      arrived_ += count;
    }
  }

  [[nodiscard]] std::size_t left() const { return order_.size() - arrived_; }
  [[nodiscard]] std::size_t arrived() const { return arrived_; }
  [[nodiscard]] std::size_t next_request(std::size_t behind) const { return order_[arrived_ + behind]; }
  [[nodiscard]] const sim::StepReplay& replay() const { return *replay_; }

 private:
  const engine::SchedulerConfig& config_;
  const std::vector<traces::TraceRecord>& records_;
  const std::vector<std::size_t>& order_;
  std::vector<engine::FreeBlock> free_queue_;
  std::unique_ptr<sim::StepReplay> replay_;
  std::vector<std::size_t> arrivals_;  // Before each step so far.
  std::size_t arrived_ = 0;
};

// Finds how many requests arrived before the step `logged`, so that ours agrees.
// The first guess is what the running requests leave to be explained; it is off
// where preempted requests come back without output, or some running one gets
// no tokens. On success `step` is ours and the arrivals are kept.
bool place_arrivals(Attempt& attempt, const IterationLine& logged, sim::ReplayedStep& step,
                    std::size_t& count, std::optional<sim::ReplayedStep>& first_try) {
  const std::int64_t left = static_cast<std::int64_t>(attempt.left());
  const std::int64_t guess =
      std::clamp<std::int64_t>(logged.context_requests - attempt.replay().running_without_output(), 0, left);
  bool fresh = true;
  for (std::int64_t distance = 0; distance <= std::max<std::int64_t>(logged.context_requests, 4);
       ++distance) {
    for (const std::int64_t candidate : {guess - distance, guess + distance}) {
      if (candidate < 0 || candidate > left || (distance == 0 && candidate != guess)) continue;
      if (!fresh) attempt.rewind();
      fresh = false;
      const bool ran = attempt.try_step(static_cast<std::size_t>(candidate), step);
      if (ran && agree(logged, step)) {
        count = static_cast<std::size_t>(candidate);
        return true;
      }
      if (!first_try && ran) first_try = step;
      if (distance == 0) break;  // Both candidates are the same.
    }
  }
  attempt.rewind();
  return false;
}

void check_steps_are_whole(const Run& run, const std::vector<IterationLine>& steps) {
  if (steps.empty())
    throw CalibrateError(fmt::format("{}: no logged step lies in the run's time", run.files.name));
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].iteration != steps[i - 1].iteration + 1) {
      throw CalibrateError(
          fmt::format("{}: the log is cut: iteration {} follows {} (line {}); such a run cannot be "
                      "replayed",
                      run.files.name, steps[i].iteration, steps[i - 1].iteration, steps[i].line));
    }
  }
}

// A pool whose last blocks hold the given prefixes: what an earlier run left, as
// far as hits show it.
std::vector<engine::FreeBlock> pool_with_hits(const std::vector<InferredHit>& hits,
                                              const std::vector<traces::TraceRecord>& records,
                                              const engine::SchedulerConfig& config) {
  std::vector<engine::BlockKey> keys;
  sim::ContentKeys source(config.block_size);
  for (const InferredHit& hit : hits) {
    const auto id = static_cast<engine::RequestId>(hit.request);
    source.add(id, records[hit.request]);
    for (std::int32_t j = 0; j < hit.blocks; ++j) {
      const engine::BlockKey key = source.block_key(id, j);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::vector<engine::FreeBlock> queue;
  const std::int64_t usable = config.num_blocks - 1;
  const std::int64_t plain = std::max<std::int64_t>(usable - static_cast<std::int64_t>(keys.size()), 0);
  for (std::int64_t block = 1; block <= usable; ++block) {
    std::optional<engine::BlockKey> key;
    if (block > plain) key = keys[static_cast<std::size_t>(block - plain - 1)];
    queue.push_back({static_cast<std::int32_t>(block), key});
  }
  return queue;
}

// Which hits on an earlier run's blocks could explain the step that differs: the
// server computed fewer tokens than ours, or, where the budget was full anyway,
// held more blocks. A difference in tokens says how many blocks; else any number
// of any request that started in this step or the two before may be it.
std::vector<InferredHit> possible_hits(const LogReplay& result,
                                       const std::vector<traces::TraceRecord>& records,
                                       std::int64_t block_size) {
  std::vector<InferredHit> hits;
  const StepMismatch& mismatch = *result.mismatch;
  if (!mismatch.ours) return hits;
  const std::int64_t tokens = mismatch.ours->context_tokens - mismatch.logged.context_tokens;
  const auto full_blocks = [&](engine::RequestId id) { return (records[id].prompt_tokens - 1) / block_size; };
  if (tokens > 0 && tokens % block_size == 0) {
    for (const engine::RequestId id : mismatch.ours->started) {
      if (full_blocks(id) >= tokens / block_size) hits.push_back({id, tokens / block_size});
    }
  }
  const bool holds_more = mismatch.logged.kv_usage && *mismatch.logged.kv_usage > mismatch.ours->kv_usage;
  if (tokens > 0 || holds_more) {
    std::vector<engine::RequestId> recent = mismatch.ours->started;
    for (std::size_t back = 1; back <= 2 && back <= result.steps.size(); ++back) {
      const auto& started = result.steps[result.steps.size() - back].ours.started;
      recent.insert(recent.end(), started.begin(), started.end());
    }
    for (const engine::RequestId id : recent) {
      for (std::int64_t blocks = 1; blocks <= full_blocks(id); ++blocks) hits.push_back({id, blocks});
    }
  }
  return hits;
}

// Replays from the start until the end or the first step that differs.
LogReplay replay_once(Attempt& attempt, const std::vector<IterationLine>& steps, std::size_t requests,
                      std::int64_t block_size) {
  LogReplay result;
  result.logged_steps = steps.size();
  result.joined.assign(requests, steps.size());
  for (std::size_t k = 0; k < steps.size(); ++k) {
    sim::ReplayedStep step;
    std::size_t count = 0;
    std::optional<sim::ReplayedStep> first_try;
    if (!place_arrivals(attempt, steps[k], step, count, first_try)) {
      result.mismatch = StepMismatch{k, steps[k], first_try, "ours has nothing to run: no request is left"};
      if (first_try) result.mismatch->rule = rule_concerned(steps[k], *first_try, block_size);
      return result;
    }
    for (std::size_t i = 0; i < count; ++i) result.joined[attempt.next_request(i)] = k;
    attempt.keep(count);
    result.steps.push_back({steps[k], std::move(step)});
  }
  const engine::EngineLoad load = attempt.replay().load();
  result.unfinished = attempt.left() + static_cast<std::size_t>(load.num_running + load.num_waiting);
  return result;
}

}  // namespace

engine::SchedulerConfig replayable_config(const Run& run) {
  if (run.config) return run.config->engine;
  const LoggedServer& server = only_server(run.log, run.files.name);
  const LoggedConfig config = logged_config(server);
  if (!config.missing.empty()) {
    throw CalibrateError(
        fmt::format("{}: the log does not say {}; give the file with the server's start-up lines as "
                    "another log=",
                    run.files.name, fmt::join(config.missing, "; ")));
  }
  const auto drafts = server.config.find("speculative_config");
  if (drafts != server.config.end() && drafts->second != "None") {
    throw CalibrateError(
        fmt::format("{}: the server drafts ({}); how many drafts were accepted is not in its log, so "
                    "the run cannot be replayed",
                    run.files.name, drafts->second.substr(0, 60)));
  }
  if (run.cache && (run.cache->block_size != config.engine.block_size ||
                    run.cache->num_blocks != config.engine.num_blocks)) {
    throw CalibrateError(fmt::format("{}: is of a server with {} blocks of {} tokens; the log says {} of {}",
                                     run.files.cache->string(), run.cache->num_blocks, run.cache->block_size,
                                     config.engine.num_blocks, config.engine.block_size));
  }
  return config.engine;
}

std::vector<traces::TraceRecord> trace_records(const Run& run, std::int64_t block_size) {
  std::vector<traces::TraceRecord> records;
  for (std::size_t i = 0; i < run.trace.size(); ++i) {
    const SentRequest& sent = run.trace[i];
    traces::TraceRecord record;
    record.arrival = std::chrono::nanoseconds(std::llround(sent.send_s * 1e9));
    record.prompt_tokens = sent.prompt_tokens;
    record.output_tokens = sent.output_tokens;
    const std::int64_t blocks = (sent.prompt_tokens + block_size - 1) / block_size;
    if (!sent.hash_ids.empty() && static_cast<std::int64_t>(sent.hash_ids.size()) != blocks) {
      throw CalibrateError(
          fmt::format("{}: request {} has {} hash_ids for {} tokens; blocks of {} tokens (the server's "
                      "block_size) are needed",
                      run.files.trace->string(), i, sent.hash_ids.size(), sent.prompt_tokens, block_size));
    }
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(sent.hash_ids.size()); ++j) {
      const auto content = static_cast<traces::ContentId>(sent.hash_ids[static_cast<std::size_t>(j)]) + 1;
      record.prompt.push_back({content, 0, std::min(block_size, sent.prompt_tokens - j * block_size)});
    }
    records.push_back(std::move(record));
  }
  return records;
}

std::vector<engine::FreeBlock> free_queue_of(const Run& run, const std::vector<traces::TraceRecord>& records,
                                             const engine::SchedulerConfig& config) {
  std::vector<engine::FreeBlock> queue;
  if (!run.cache) return queue;
  // Hash ids are names for content up to a block's end; where the trace uses
  // one, it is the key of that block. The others nobody asks for again.
  std::map<std::int64_t, engine::BlockKey> key_of_hash;
  sim::ContentKeys source(config.block_size);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto id = static_cast<engine::RequestId>(i);
    source.add(id, records[i]);
    const std::int64_t full = records[i].prompt_tokens / config.block_size;
    for (std::int32_t j = 0; j < full && !run.trace[i].hash_ids.empty(); ++j) {
      key_of_hash.emplace(run.trace[i].hash_ids[static_cast<std::size_t>(j)], source.block_key(id, j));
    }
  }
  constexpr std::uint64_t kNobodys = 0xa4093822299f31d0ULL;
  for (const auto& [block, hash] : run.cache->free_queue) {
    std::optional<engine::BlockKey> key;
    if (hash) {
      const auto known = key_of_hash.find(*hash);
      key = known != key_of_hash.end() ? known->second
                                       : engine::BlockKey{kNobodys, static_cast<std::uint64_t>(*hash)};
    }
    queue.push_back({block, key});
  }
  return queue;
}

LogReplay replay_log(const Run& run) {
  if (!run.has_log())
    throw CalibrateError(fmt::format("{}: has no log=; there is no step to compare", run.files.name));
  if (run.trace.empty()) {
    throw CalibrateError(fmt::format(
        "{}: has neither trace= nor client=; the lengths of its requests are needed", run.files.name));
  }
  const std::vector<IterationLine> steps = steps_of_run(run);
  check_steps_are_whole(run, steps);
  const engine::SchedulerConfig config = replayable_config(run);
  const std::vector<traces::TraceRecord> records = trace_records(run, config.block_size);
  const std::vector<std::size_t> order = admission_order(run);
  Attempt attempt(config, records, order);
  attempt.restart(free_queue_of(run, records, config));
  LogReplay result = replay_once(attempt, steps, records.size(), config.block_size);

  // Without a cache state, hits that only an earlier run explains are inferred,
  // one at a time, as long as each brings the replay further.
  std::vector<InferredHit> hits;
  bool further = !run.cache && config.enable_prefix_caching;
  while (further && result.mismatch) {
    LogReplay best;
    std::vector<InferredHit> best_hits;
    for (const InferredHit& hit : possible_hits(result, records, config.block_size)) {
      std::vector<InferredHit> more = hits;
      more.push_back(hit);
      attempt.restart(pool_with_hits(more, records, config));
      LogReplay next = replay_once(attempt, steps, records.size(), config.block_size);
      if (next.steps.size() <= std::max(result.steps.size(), best.steps.size())) continue;
      best = std::move(next);
      best_hits = std::move(more);
      if (!best.mismatch) break;
    }
    further = best.steps.size() > result.steps.size();
    if (further) {
      result = std::move(best);
      hits = std::move(best_hits);
    }
  }
  result.inferred = std::move(hits);
  return result;
}

std::string describe(const IterationLine& step) {
  std::string text =
      fmt::format("{} context requests with {} tokens, {} generation requests with {}", step.context_requests,
                  step.context_tokens, step.generation_requests, step.generation_tokens);
  if (step.kv_usage) text += fmt::format(", KV {:.1f} %", *step.kv_usage * 100);
  return text;
}

std::string describe(const sim::ReplayedStep& step) {
  return fmt::format("{} context requests with {} tokens, {} generation requests with {}, KV {:.1f} %",
                     step.context_requests, step.context_tokens, step.generation_requests,
                     step.generation_tokens, step.kv_usage * 100);
}

}  // namespace kneepoint::calibrate
