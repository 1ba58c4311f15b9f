// Random configurations and workloads for the engine, small enough that every
// queue is short, every pool tight and every rule met often.
//
// Everything follows from the seed. Prompts are cut from a few stories, some
// fork off into tokens of their own, and answers go on with the story: so later
// prompts hit blocks of earlier prompts and answers, also off block edges.
#pragma once

#include <boost/random/mersenne_twister.hpp>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/block_keys.h"
#include "engine/request.h"
#include "engine/scheduler_config.h"
#include "engine/step_plan.h"

namespace kneepoint::laws {

/// A named stream of small random numbers.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  /// Numbers from `bytes` as long as they last, two for each; then random ones. For a fuzzer, which steers by them.
  explicit Dice(std::span<const std::uint8_t> bytes) : engine_(bytes.size()), bytes_(bytes) {}
  [[nodiscard]] std::int64_t between(std::int64_t low, std::int64_t high);  ///< Both included.
  [[nodiscard]] bool one_in(std::int64_t n) { return between(1, n) == 1; }
  template <typename T>
  [[nodiscard]] T pick(const std::vector<T>& options) {
    return options[static_cast<std::size_t>(between(0, std::ssize(options) - 1))];
  }

 private:
  boost::random::mt19937_64 engine_;
  std::span<const std::uint8_t> bytes_;  // Not used up yet.
};

/// A configuration that validate() accepts; all policies, depths, drafts and windows occur.
[[nodiscard]] engine::SchedulerConfig random_config(Dice& dice);

/// Who arrives and who leaves early, and what the model answers. Names the blocks, as only it has tokens.
class RandomWorkload final : public engine::BlockKeySource {
 public:
  RandomWorkload(const engine::SchedulerConfig& config, Dice& dice);

  struct Event {
    std::int64_t turn = 0;
    engine::NewRequest request;
    bool aborts = false;  ///< The request of that id goes; else it comes.
  };
  /// In order of turns.
  [[nodiscard]] const std::vector<Event>& events() const { return events_; }

  /// Runs a step; the result names a request only where the plan does not say it all.
  [[nodiscard]] engine::StepResult run(const std::vector<engine::ScheduledRequest>& step);

  /// Whether the step samples for the request, as the runner sees it: the known end is reached.
  [[nodiscard]] bool reaches_end(const engine::ScheduledRequest& share) const;

  [[nodiscard]] engine::BlockKey block_key(engine::RequestId id, std::int32_t index) override;

 private:
  struct Sequence {
    std::vector<std::int64_t> tokens;
    std::int64_t story = 0;  // 0: goes on with tokens of its own.
    std::vector<std::uint64_t> prefixes;
  };

  void add_request(std::int64_t turn);
  [[nodiscard]] std::int64_t next_token(const Sequence& sequence);

  engine::SchedulerConfig config_;
  Dice& dice_;
  std::vector<Event> events_;
  std::map<engine::RequestId, Sequence> sequences_;
  std::map<std::pair<std::uint64_t, std::vector<std::int64_t>>, std::uint64_t> nodes_;
  std::int64_t next_own_token_ = 1'000'000;
};

}  // namespace kneepoint::laws
