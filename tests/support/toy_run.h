// A run small enough to work by hand: a list of requests, a server whose steps
// take round times, the real engine and the real event loop in between.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "hw/step_time_model.h"
#include "sim/client.h"
#include "sim/content_keys.h"
#include "sim/event_loop.h"
#include "sim/run_config.h"

namespace kneepoint::testing_support {

/// Step time = fixed + per token computed + per token of context read by decodes.
class ToyStepTimes final : public hw::StepTimeModel {
 public:
  std::chrono::nanoseconds fixed{0};
  std::chrono::nanoseconds per_token{0};
  std::chrono::nanoseconds per_context_token{0};
  std::chrono::nanoseconds host{0};
  hw::FrontEndTimes front;

  [[nodiscard]] hw::StepTime step_time(const hw::StepShape& shape) const override {
    return {host, fixed + per_token * shape.num_tokens + per_context_token * shape.decodes.context_sum};
  }
  [[nodiscard]] hw::FrontEndTimes front_end() const override { return front; }
  [[nodiscard]] std::vector<hw::Extrapolation> extrapolations(const hw::StepShape&) const override { return {}; }
  [[nodiscard]] std::string provenance() const override { return "toy"; }
};

class ListWorkload final : public sim::Workload {
 public:
  explicit ListWorkload(std::vector<traces::TraceRecord> records) : records_(std::move(records)) {}
  [[nodiscard]] bool next(sim::Send& send) override {
    if (next_ == records_.size()) {
      return false;
    }
    send.index = next_;
    send.record = records_[next_++];
    send.arrival = sim::SimTime(send.record.arrival);
    return true;
  }

 private:
  std::vector<traces::TraceRecord> records_;
  std::size_t next_ = 0;
};

/// A request that shares nothing; its answer ends by length.
[[nodiscard]] inline traces::TraceRecord request_at(std::chrono::nanoseconds arrival, std::int64_t prompt_tokens,
                                                    std::int64_t output_tokens) {
  traces::TraceRecord record;
  record.arrival = arrival;
  record.prompt_tokens = prompt_tokens;
  record.output_tokens = output_tokens;
  return record;
}

/// Keeps every record, in the order in which requests ended.
class Records final : public sim::RunObserver {
 public:
  void on_request_end(const sim::RequestRecord& record) override { all.push_back(record); }
  std::vector<sim::RequestRecord> all;
};

/// A config with `num_blocks` blocks of 16 tokens and everything else at rest.
[[nodiscard]] inline sim::RunConfig toy_config(std::int64_t num_blocks = 1001) {
  sim::RunConfig config;
  config.engine.num_blocks = num_blocks;
  config.engine.enable_prefix_caching = false;
  return config;
}

/// Keys that say of no request that its keys are its own, so that each goes through the pool's table.
class OpenKeys final : public sim::ContentKeys {
 public:
  using sim::ContentKeys::ContentKeys;
  [[nodiscard]] bool is_private(engine::RequestId) const override { return false; }
};

/// Runs `records` and tells `observers`; adds to `use` how the steps were planned.
inline sim::RunSummary run_toy(const sim::RunConfig& config, const hw::StepTimeModel& times,
                               std::vector<traces::TraceRecord> records, std::vector<sim::RunObserver*> observers,
                               engine::CohortUse* use = nullptr, bool open_keys = false) {
  std::unique_ptr<sim::Client> client =
      std::make_unique<sim::OpenLoopClient>(std::make_unique<ListWorkload>(std::move(records)));
  if (config.client.max_concurrency) {
    client = std::make_unique<sim::SemaphoreClient>(std::move(client), *config.client.max_concurrency);
  }
  sim::ContentKeys own_keys(config.engine.block_size);
  OpenKeys all_open(config.engine.block_size);
  sim::ContentKeys& keys = open_keys ? all_open : own_keys;
  const auto engine = engine::find_scheduler(config.scheduler)->make(config.engine, keys);
  sim::EventLoop loop(config, {.client = *client,
                               .engine = *engine,
                               .keys = keys,
                               .times = times,
                               .graphs = nullptr,
                               .observers = std::move(observers)});
  sim::RunSummary summary = loop.run();
  if (use != nullptr) {
    const engine::CohortUse more = engine->cohort_use();
    for (auto field : {&engine::CohortUse::steady, &engine::CohortUse::unwalked, &engine::CohortUse::walked,
                       &engine::CohortUse::for_budget, &engine::CohortUse::for_blocks, &engine::CohortUse::for_pipeline,
                       &engine::CohortUse::for_throttle, &engine::CohortUse::for_abort, &engine::CohortUse::for_result}) {
      use->*field += more.*field;
    }
  }
  return summary;
}

}  // namespace kneepoint::testing_support
