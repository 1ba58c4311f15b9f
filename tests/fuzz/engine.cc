// The structure-aware fuzzer: bytes are the dice of tests/laws.
//
// The first byte chooses. Even: the engine runs beside the obvious model, and
// every decision and list must agree. Odd: a small server under the event loop
// with any scheduler, drafts, windows, time-outs and limits; whatever the dice
// say, every invariant holds (BOOST_ASSERT), the paired accounts agree, and each
// request that was sent is over or, where a limit stopped the run, unfinished.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/laws/engine/side_by_side.h"
#include "tests/support/toy_run.h"

namespace kneepoint::fuzz {
namespace {

using namespace std::chrono_literals;
using laws::Dice;

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "fuzz_engine: %s\n", why.c_str());
  std::abort();
}

void run_beside_the_model(std::span<const std::uint8_t> bytes) {
  laws::Seen ignored;
  if (const auto difference = laws::SideBySide(Dice(bytes), laws::Mutation::kNone, ignored).run()) {
    stop(*difference);
  }
}

sim::RunConfig any_config(Dice& dice) {
  sim::RunConfig config;
  config.engine = laws::random_config(dice);
  config.engine.num_blocks = dice.between(2, 120);
  config.engine.max_model_len = dice.between(8, 400);
  const engine::SchedulerRow& row = engine::schedulers()[static_cast<std::size_t>(
      dice.between(0, static_cast<std::int64_t>(engine::schedulers().size()) - 1))];
  config.scheduler = row.name;
  if (row.name != "vllm-v1") {  // The others plan one step at a time and know no drafts or windows.
    engine::SchedulerConfig plain;
    plain.block_size = config.engine.block_size;
    plain.num_blocks = config.engine.num_blocks;
    plain.max_model_len = config.engine.max_model_len;
    plain.max_num_seqs = dice.between(1, 12);
    plain.max_num_batched_tokens = dice.between(16, 512);
    plain.async_scheduling = false;
    plain.enable_prefix_caching = row.name == "vllm-v0" && dice.one_in(2);
    plain.enable_chunked_prefill = dice.one_in(2);
    plain.preemption_mode_swap = dice.one_in(2);
    plain.num_cpu_blocks = dice.between(0, 200);
    config.engine = plain;
  }
  if (dice.one_in(4)) {
    config.client.max_concurrency = dice.between(1, 6);
  }
  if (dice.one_in(4)) {
    config.client.timeout = dice.between(1, 60) * 1ms;
  }
  if (dice.one_in(5)) {
    config.admission.max_num_queued_reqs = dice.between(0, 8);
  }
  if (dice.one_in(5)) {
    config.admission.max_num_queued_tokens = dice.between(0, 500);
  }
  if (dice.one_in(6)) {
    config.limits.sim_time = dice.between(1, 300) * 1ms;
  }
  if (dice.one_in(6)) {
    config.limits.requests = dice.between(1, 20);
  }
  return config;
}

std::vector<traces::TraceRecord> any_workload(Dice& dice) {
  std::vector<traces::TraceRecord> records;
  std::chrono::nanoseconds arrival{0};
  const std::int64_t n = dice.between(1, 24);
  for (std::int64_t i = 0; i < n; ++i) {
    arrival += dice.between(0, 4000) * 1us;
    traces::TraceRecord record = testing_support::request_at(arrival, dice.between(1, 120), dice.between(1, 60));
    if (dice.one_in(2)) {
      record.ends_by = traces::EndsBy::kEos;
    }
    if (dice.one_in(2)) {  // A shared prefix and a tail of its own.
      const std::int64_t shared = dice.between(1, record.prompt_tokens);
      record.prompt.push_back({static_cast<std::uint64_t>(dice.between(1, 3)), 0, shared});
      if (shared < record.prompt_tokens) {
        record.prompt.push_back({1000 + static_cast<std::uint64_t>(i), 0, record.prompt_tokens - shared});
      }
    }
    record.priority = static_cast<std::int32_t>(dice.between(-1, 1));
    record.adapter = static_cast<std::uint32_t>(dice.between(0, 3));
    records.push_back(record);
  }
  return records;
}

void run_any_server(std::span<const std::uint8_t> bytes) {
  Dice dice(bytes);
  const sim::RunConfig config = any_config(dice);
  const std::vector<traces::TraceRecord> workload = any_workload(dice);
  engine::validate(config.engine);
  testing_support::ToyStepTimes times;
  times.fixed = dice.between(1, 2000) * 1us;
  times.per_token = dice.between(0, 20) * 1us;
  times.host = dice.between(0, 300) * 1us;
  times.front.arrival = dice.between(0, 300) * 1us;
  times.front.output = dice.between(0, 300) * 1us;
  testing_support::Records records;
  const sim::RunSummary summary = testing_support::run_toy(config, times, workload, {&records});
  const auto over = static_cast<std::int64_t>(records.all.size());
  if (summary.stopped_by.empty() && over != std::ssize(workload)) {
    stop(fmt::format("{} requests of {} are over", over, workload.size()));
  }
  if (over + summary.unfinished != summary.sent) {
    stop(fmt::format("{} sent, {} over, {} unfinished", summary.sent, over, summary.unfinished));
  }
}

// Not every combination is a server, and some run out of swap space on their way: a ConfigError, too.
void run_a_server(std::span<const std::uint8_t> bytes) {
  try {
    run_any_server(bytes);
  } catch (const engine::ConfigError&) {
  }
}

}  // namespace

void fuzz_engine(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) {
    return;
  }
  const auto rest = bytes.subspan(1);
  bytes.front() % 2 == 0 ? run_beside_the_model(rest) : run_a_server(rest);
}

}  // namespace kneepoint::fuzz
