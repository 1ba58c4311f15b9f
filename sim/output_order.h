// In which order a step's outputs reach their clients, without listing them.
//
// The outputs of a step leave the server one after the other: the request in
// place p of a step that ends at t has its token at
//
//     t + output + p * output_per_request
//
// The engine lists only some of a step's outputs: first tokens, last tokens, those
// of requests that it walked. The cohort between them (engine/cohort.h) is a
// number. Its members keep their order from step to step, so that their places
// follow from who entered and who left:
//
//     step before   a b c d e        b has ended: it leaves place 1
//     this step     a c X d e        X enters at place 2
//     places        0 1   3 4        c moved by -1, d and e by 0, a by 0
//
// A member's gap is the time between the two steps plus its move; so a step gives
// the cohort as many different gaps as there are stretches of equal moves, few.
//
// What entered and left is remembered as long as somebody who saw it is under
// way: a request that fails in the end has its tokens withdrawn, and a member that
// is preempted between two steps has to be told when its last token came.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "sim/observer.h"
#include "sim/sim_time.h"

namespace kneepoint::sim {

class OutputOrder {
 public:
  explicit OutputOrder(SimDuration per_request) : per_request_(per_request) {}

  /// A listed output of the step.
  struct Listed {
    engine::RequestId id = engine::kNoRequest;
    std::int64_t place = 0;
    bool enters = false;  ///< It had none in the step before.
    SimTime previous{};   ///< Filled in, unless it enters: when its output before reached the client.
  };

  /// The outputs of the next step: `num_outputs` of them, the first of which is at its client at `first`; `listed` by
  /// place; `left`, in any order: places in the step before of those who have none now.
  void next_step(SimTime first, std::int64_t num_outputs, std::span<Listed> listed, std::span<const std::int64_t> left);

  /// The outputs of the next step are those of the newest, and none is listed. Before: all_go_on().
  void next_like_before(SimTime first);
  /// Whether nobody was listed in the newest step, so that the next can be like it.
  [[nodiscard]] bool all_go_on() const { return !steps_.empty() && cohort_.count == num_outputs(); }
  [[nodiscard]] std::int64_t num_outputs() const { return cohort_.num_outputs; }

  /// What those of the newest step got that are not listed.
  [[nodiscard]] const CohortTokens& cohort() const { return cohort_; }

  /// Steps so far.
  [[nodiscard]] std::int64_t num_steps() const { return first_kept_ + static_cast<std::int64_t>(steps_.size()); }

  /// Where the output of a request was in each step from `since`, in which it was in `place`, until it left or until
  /// now. Calls `visit(number of the step, place, time at the client)`.
  using Visit = std::function<void(std::int64_t, std::int64_t, SimTime)>;
  void follow(engine::RequestId id, std::int64_t since, std::int64_t place, const Visit& visit) const;

  /// Step `number` and all after it may be asked for, until release()d as often.
  void hold(std::int64_t number) { ++steps_[static_cast<std::size_t>(number - first_kept_)].holders; }
  void release(std::int64_t number) { --steps_[static_cast<std::size_t>(number - first_kept_)].holders; }

  [[nodiscard]] SimTime time_at(SimTime first, std::int64_t place) const { return first + place * per_request_; }

 private:
  struct Entered {
    std::int64_t place = 0;
    engine::RequestId id = engine::kNoRequest;
  };
  struct Step {
    SimTime first{};
    std::vector<std::int64_t> left;  // By place in the step before.
    std::vector<Entered> entered;    // By place.
    std::int64_t holders = 0;
  };

  void compare_with_step_before(SimTime first, std::int64_t num_outputs, std::span<Listed> listed, const Step& step);

  void forget_unheld();

  SimDuration per_request_;
  std::deque<Step> steps_;
  std::int64_t first_kept_ = 0;
  CohortTokens cohort_;
};

}  // namespace kneepoint::sim
