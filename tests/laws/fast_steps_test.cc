// The fast way is the plain way, to the last nanosecond.
//
// Twenty thousand small random servers and workloads, each run twice: every running
// request walked in every step and every block key in one table; and with a cohort,
// many steps at once, and private keys left to their requests. All that an observer
// can see must be equal: each request's stamps, each step, the sums, the percentiles.
// And the fast way must have been taken, and left, often enough for that to mean
// something.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sim/metrics.h"
#include "tests/support/toy_run.h"

namespace kneepoint {
namespace {

using namespace std::chrono_literals;
using sim::SimDuration;
using sim::SimTime;

class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return boost::random::uniform_int_distribution<std::int64_t>(low, high)(generator_);
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }

 private:
  boost::random::mt19937_64 generator_;
};

struct Workload {
  sim::RunConfig config;
  testing_support::ToyStepTimes times;
  std::vector<traces::TraceRecord> records;
};

// Mostly the default scheduler, in all the ways it can be asked for.
void choose_engine(Random& random, sim::RunConfig& config) {
  engine::SchedulerConfig& e = config.engine;
  e.num_blocks = random.one_in(3) ? random.between(6, 30) : random.between(30, 400);
  e.block_size = random.one_in(4) ? random.between(1, 8) : 16;
  e.max_model_len = random.between(60, 400);
  e.max_num_batched_tokens = random.one_in(3) ? random.between(4, 40) : random.between(40, 400);
  e.max_num_seqs = random.between(1, 16);
  e.enable_prefix_caching = random.one_in(2);
  e.async_scheduling = random.one_in(2);
  e.use_v2_model_runner = random.one_in(2);
  e.scheduler_reserve_full_isl = random.one_in(2);
  e.enable_chunked_prefill = !random.one_in(5);
  e.long_prefill_token_threshold = random.one_in(4) ? random.between(1, 20) : 0;
  if (random.one_in(6)) {
    e.max_num_scheduled_tokens = random.between(2, 10);
    if (random.one_in(2) && e.enable_chunked_prefill) {  // As others end, a long prompt leaves less to those behind it.
      e.max_num_batched_tokens = *e.max_num_scheduled_tokens;
      e.long_prefill_token_threshold = 1;
      e.long_prefill_token_threshold_adaptive = true;
    }
  }
  e.watermark = random.one_in(4) ? 0.1 : 0;
  e.max_loras = random.between(1, 2);
  e.prefill_schedule_interval = random.one_in(8) ? 3 : 1;
  e.policy = random.one_in(4) ? engine::SchedulingPolicy::kPriority : engine::SchedulingPolicy::kFcfs;
  if (random.one_in(12)) {
    e.spec_method = engine::SpeculativeMethod::kEagle;
    e.num_speculative_tokens = 2;
    config.draft_acceptance_rates = {0.7, 0.4};
  }
  if (random.one_in(16)) {
    e.sliding_window = 32;
  }
  if (random.one_in(16)) {
    e.pipeline_parallel_size = 2;
  }
  if (!e.enable_chunked_prefill) {  // Else a prompt might never fit a step.
    e.max_num_batched_tokens = std::max(e.max_num_batched_tokens, e.max_model_len);
  }
  if (random.one_in(12)) {
    const bool v0 = random.one_in(3);
    config.scheduler = v0 ? "vllm-v0" : random.one_in(2) ? "sarathi" : "orca";
    const engine::SchedulerConfig asked = std::exchange(e, {});
    e.max_num_batched_tokens = 400;
    e.max_num_seqs = 8;
    e.max_model_len = 200;
    e.num_blocks = asked.num_blocks;
    e.enable_prefix_caching = v0 && asked.enable_prefix_caching;
  }
}

traces::TraceRecord random_request(Random& random, SimDuration arrival, const sim::RunConfig& config, bool ends_early) {
  const std::int64_t prompt_tokens = random.between(1, 90);  // One draw after the other, whatever the compiler.
  const std::int64_t output_tokens = random.between(1, 120);
  traces::TraceRecord record = testing_support::request_at(arrival, prompt_tokens, output_tokens);
  if (config.engine.enable_prefix_caching && random.one_in(2)) {
    const std::int64_t shared = random.between(1, record.prompt_tokens);
    record.prompt.push_back({static_cast<traces::ContentId>(random.between(1, 3)), 0, shared});
    if (shared < record.prompt_tokens) {
      record.prompt.push_back({100 + static_cast<traces::ContentId>(random.between(1, 1000)), 0, record.prompt_tokens - shared});
    }
    record.output_content = random.one_in(2) ? static_cast<traces::ContentId>(random.between(1, 3)) : 0;
  }
  if (ends_early && random.one_in(2)) {
    record.ends_by = traces::EndsBy::kEos;
    record.max_tokens = record.output_tokens + random.between(0, 30);
  }
  record.priority = static_cast<std::int32_t>(random.between(0, 2));
  record.adapter = config.engine.max_loras > 1 && random.one_in(4) ? static_cast<std::uint32_t>(random.between(1, 3)) : 0;
  return record;
}

Workload random_workload(std::uint64_t seed) {
  Random random(seed);
  Workload workload;
  sim::RunConfig& config = workload.config;
  config.seed = seed;
  choose_engine(random, config);
  workload.times.fixed = std::chrono::microseconds(random.between(100, 2000));
  workload.times.per_token = std::chrono::nanoseconds(random.between(0, 20000));
  workload.times.per_context_token = std::chrono::nanoseconds(random.between(0, 999));
  workload.times.host = std::chrono::microseconds(random.between(0, 1500));
  workload.times.front.arrival = std::chrono::microseconds(random.between(0, 3000));
  workload.times.front.output = std::chrono::microseconds(random.between(0, 3000));
  workload.times.front.output_per_request = std::chrono::nanoseconds(random.one_in(3) ? 0 : random.between(1, 20000));
  if (random.one_in(4)) {
    config.client.max_concurrency = random.between(1, 10);
  }
  if (random.one_in(8)) {
    config.limits.sim_time = std::chrono::microseconds(random.between(1000, 1'000'000));
  } else if (random.one_in(8)) {
    config.limits.requests = random.between(1, 20);
  }
  const bool ends_early = random.one_in(4);
  const SimDuration mean = std::chrono::microseconds(random.between(1, 60000));
  SimDuration arrival{0};
  for (std::int64_t i = random.between(2, 24); i > 0; --i) {
    workload.records.push_back(random_request(random, arrival, config, ends_early));
    arrival += random.one_in(4) ? SimDuration{0} : random.between(0, 200) * mean / 100;
  }
  return workload;
}

// Everything that can be seen of a run, as text.
class Witness final : public sim::RunObserver {
 public:
  void on_request_end(const sim::RequestRecord& r) override {
    text += fmt::format("request {} {} {} {} {} {} {} {} {} {} {} {}\n", r.index, ns(r.arrival), ns(r.sent), ns(r.queued),
                        ns(r.scheduled), ns(r.first_token), ns(r.last_token), r.prompt_tokens, r.output_tokens,
                        r.cached_tokens, r.preemptions, request_end_name(r.end));
  }
  void on_step(const sim::StepRecord& s) override {
    text += fmt::format("step {} {} {} {} {} {} {} {} {} {}\n", s.step, ns(s.planned), ns(s.begin), ns(s.end),
                        s.context_requests, s.context_tokens, s.generation_requests, s.generation_tokens, s.preempted,
                        s.kv_usage);
  }
  std::string text;

 private:
  static std::int64_t ns(SimTime time) { return time.time_since_epoch().count(); }
};

void add(std::string& text, const sim::RunSummary& s) {
  text += fmt::format("run {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", s.first_send.time_since_epoch().count(),
                      s.end.time_since_epoch().count(), s.steps, s.scheduled_tokens, s.preemptions, s.num_blocks,
                      s.peak_used_blocks, s.prefix_query_tokens, s.prefix_hit_tokens, s.device_busy.count(), s.mean_running,
                      s.mean_waiting, s.peak_running, s.peak_waiting, s.never_fit, s.storm, s.unfinished);
  text += fmt::format("stopped by {}, sent {}\n", s.stopped_by, s.sent);
  for (const sim::AuditLine& line : s.audit) {
    text += fmt::format("{} {} {}\n", line.total, line.first, line.second);
  }
  for (const sim::WaitCause& cause : s.wait_causes) {
    text += fmt::format("wait {} {}\n", cause.cause, cause.time.count());
  }
}

void add(std::string& text, const sim::MetricsReport& m) {
  text += fmt::format("metrics {} {} {} {} {} {} {}\n", m.completed, m.failed, m.duration.count(), m.total_input_tokens,
                      m.total_output_tokens, m.max_chunks_per_s, m.max_concurrent_requests);
  for (const sim::LatencyStats* s : {&m.ttft, &m.tpot, &m.itl, &m.e2el, &m.queue, &m.prefill}) {
    text += fmt::format("{} {} {} {} {} {} {} {}\n", s->count, s->mean_ms, s->std_ms, s->p50_ms, s->p90_ms, s->p95_ms,
                        s->p99_ms, s->max_ms);
  }
}

std::string run(Workload workload, bool plain, engine::CohortUse& use) {
  engine::SchedulerConfig& e = workload.config.engine;
  e.walk_decodes = false;
  e.walk_decodes = plain || workload.config.scheduler != "vllm-v1" || !engine::can_keep_cohort(e);
  e.name_blocks = e.walk_decodes;
  Witness witness;
  sim::Metrics metrics(workload.config);
  const sim::RunSummary summary =
      testing_support::run_toy(workload.config, workload.times, workload.records, {&witness, &metrics}, &use, plain);
  add(witness.text, summary);
  add(witness.text, metrics.finish(summary));
  return witness.text;
}

TEST(FastSteps, AreThePlainStepsInTwentyThousandRandomRuns) {
  engine::CohortUse fast;
  engine::CohortUse none;
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    const Workload workload = random_workload(seed);
    const std::string plain = run(workload, true, none);
    ASSERT_EQ(run(workload, false, fast), plain) << "seed " << seed;
  }
  EXPECT_EQ(none.steady + none.unwalked + none.walked, 0) << "the plain way keeps no cohort";
  fmt::print("steps: {} at once, {} with a cohort, {} walked; dissolved for budget {}, blocks {}, pipeline {}, throttle {}\n",
             fast.steady, fast.unwalked, fast.walked, fast.for_budget, fast.for_blocks, fast.for_pipeline,
             fast.for_throttle);
  EXPECT_GT(fast.steady + fast.unwalked, fast.walked) << "at least half of the steps are fast";
  // Rare: members behind a prompt were admitted with its share of the budget taken, and its share seldom grows.
  EXPECT_GE(fast.for_budget, 1);
  EXPECT_GE(fast.for_blocks, 100);
  EXPECT_GE(fast.for_throttle, 100);
}

}  // namespace
}  // namespace kneepoint
