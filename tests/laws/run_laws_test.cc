// Laws that hold in every run, each against something computed another way.
// Random small servers and workloads, seeded; a failure prints its seed.
#include <gtest/gtest.h>

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/toy_run.h"

namespace kneepoint {
namespace {

using namespace std::chrono_literals;
using sim::RequestRecord;
using sim::SimDuration;
using sim::SimTime;

// Counts and integrates on its own, from the load alone.
class Accountant final : public sim::RunObserver {
 public:
  void on_send(const RequestRecord&) override { ++sent; }
  void on_request_end(const RequestRecord& record) override {
    ++ended[record.end];
    records.push_back(record);
  }
  void on_load(SimTime now, const engine::EngineLoad& load) override {
    EXPECT_GE(now, last_) << "CLOCK_FORWARD";
    EXPECT_GE(load.free_blocks, 0);
    EXPECT_LE(load.free_blocks, load.usable_blocks) << "CONSERVE_BLOCKS";
    request_time += (now - last_) * (load_.num_running + load_.num_waiting);
    last_ = now;
    load_ = load;
  }
  void on_tokens(const RequestRecord&, SimTime previous, SimTime at_client, std::int64_t num_tokens) override {
    EXPECT_TRUE(previous == sim::kNever || previous < at_client);
    tokens += num_tokens;
  }

  std::int64_t sent = 0;
  std::int64_t tokens = 0;
  std::map<sim::RequestEnd, std::int64_t> ended;
  std::vector<RequestRecord> records;
  SimDuration request_time{0};  // Integral of the number of requests in the engine.
  engine::EngineLoad load_;

 private:
  SimTime last_{};
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : generator_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return boost::random::uniform_int_distribution<std::int64_t>(low, high)(generator_);
  }
  bool coin() { return between(0, 1) == 1; }

 private:
  boost::random::mt19937_64 generator_;
};

sim::RunConfig random_config(Random& random, std::string_view scheduler) {
  sim::RunConfig config = testing_support::toy_config(random.between(12, 120));
  config.engine.max_model_len = random.between(80, 400);
  config.engine.max_num_batched_tokens = random.between(16, 256);
  config.engine.max_num_seqs = random.between(1, 12);
  config.engine.enable_prefix_caching = random.coin();
  config.engine.async_scheduling = random.coin();
  config.engine.scheduler_reserve_full_isl = random.coin();
  config.scheduler = scheduler;
  if (scheduler != "vllm-v1") {  // The others plan one step at a time.
    config.engine.async_scheduling = false;
    config.engine.enable_prefix_caching = scheduler == "vllm-v0" && config.engine.enable_prefix_caching;
    config.engine.enable_chunked_prefill = random.coin();
    config.engine.preemption_mode_swap = random.coin();
    config.engine.num_cpu_blocks = 10'000;
  }
  if (random.between(0, 3) == 0) {
    config.client.max_concurrency = random.between(1, 6);
  }
  if (random.between(0, 3) == 0) {
    config.client.timeout = random.between(1, 60) * 1ms;
  }
  if (random.between(0, 4) == 0) {
    config.admission.max_num_queued_reqs = random.between(1, 8);
  }
  return config;
}

std::vector<traces::TraceRecord> random_workload(Random& random) {
  std::vector<traces::TraceRecord> records;
  std::chrono::nanoseconds arrival{0};
  const std::int64_t n = random.between(1, 60);
  for (std::int64_t i = 0; i < n; ++i) {
    arrival += random.between(0, 4000) * 1us;
    traces::TraceRecord record =
        testing_support::request_at(arrival, random.between(1, 120), random.between(1, 60));
    if (random.coin()) {
      record.ends_by = traces::EndsBy::kEos;
    }
    if (random.coin()) {  // A shared prefix and a tail of its own.
      const std::int64_t shared = random.between(1, record.prompt_tokens);
      record.prompt.push_back({static_cast<std::uint64_t>(random.between(1, 3)), 0, shared});
      if (shared < record.prompt_tokens) {
        record.prompt.push_back({1000 + static_cast<std::uint64_t>(i), 0, record.prompt_tokens - shared});
      }
    }
    records.push_back(record);
  }
  return records;
}

class RunLaws : public testing::TestWithParam<engine::SchedulerRow> {};

TEST_P(RunLaws, HoldOnRandomServersAndWorkloads) {
  std::int64_t preemptions = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const sim::RunConfig config = random_config(random, GetParam().name);
    const std::vector<traces::TraceRecord> workload = random_workload(random);
    testing_support::ToyStepTimes times;
    times.fixed = random.between(1, 2000) * 1us;
    times.per_token = random.between(0, 20) * 1us;
    times.host = random.between(0, 300) * 1us;
    Accountant books;
    const sim::RunSummary summary = testing_support::run_toy(config, times, workload, {&books});
    preemptions += summary.preemptions;

    // CONSERVE_REQUESTS: requests in = completed + failed, each by reason + running at the end (none).
    EXPECT_EQ(books.sent, static_cast<std::int64_t>(workload.size()));
    std::int64_t ended = 0;
    for (const auto& [end, count] : books.ended) {
      ended += count;
    }
    EXPECT_EQ(ended, books.sent);
    EXPECT_EQ(summary.unfinished, 0);

    // CONSERVE_BLOCKS: an empty server has every block back.
    EXPECT_EQ(books.load_.free_blocks, books.load_.usable_blocks);
    EXPECT_EQ(books.load_.num_running + books.load_.num_waiting, 0);

    // CAUSAL_TIMES, and every completed request got what it was to get.
    std::int64_t tokens = 0;
    SimDuration residence{0};
    for (const RequestRecord& r : books.records) {
      EXPECT_LE(r.arrival, r.sent);
      tokens += r.output_tokens;
      if (sim::is_completed(r.end)) {
        EXPECT_LE(r.sent, r.queued);
        EXPECT_LE(r.queued, r.scheduled);
        EXPECT_LT(r.scheduled, r.first_token);
        EXPECT_LE(r.first_token, r.last_token);
        EXPECT_EQ(r.output_tokens, std::min(r.wanted_output_tokens, config.engine.max_model_len - r.prompt_tokens));
        residence += r.last_token - r.queued;
      } else if (r.queued != sim::kNever) {
        residence += r.last_token - r.queued;  // Front end of no delay: aborted when the client gave up.
      }
    }
    EXPECT_EQ(tokens, books.tokens);

    // Little's law, to the nanosecond: the number in the system integrated over
    // time is the sum of the times in it.
    EXPECT_EQ(books.request_time, residence);
  }
  if (GetParam().name != "orca") {  // Which reserves, so that it never has to.
    EXPECT_GT(preemptions, 100) << "the random servers must be tight enough to preempt";
  }
}

INSTANTIATE_TEST_SUITE_P(, RunLaws, testing::ValuesIn(engine::schedulers().begin(), engine::schedulers().end()),
                         [](const auto& row) {
                           std::string name(row.param.name);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace kneepoint
