#include "sim/output_order.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <limits>
#include <utility>

namespace kneepoint::sim {

void OutputOrder::next_step(SimTime first, std::int64_t num_outputs, std::span<Listed> listed,
                            std::span<const std::int64_t> left) {
  Step step;
  step.first = first;
  step.left.assign(left.begin(), left.end());
  std::ranges::sort(step.left);
  for (const Listed& output : listed) {
    if (output.enters) {
      step.entered.push_back({output.place, output.id});
    }
  }
  compare_with_step_before(first, num_outputs, listed, step);
  steps_.push_back(std::move(step));
  forget_unheld();
}

// Walks the outputs that both steps have, in stretches of equal moves.
void OutputOrder::compare_with_step_before(SimTime first, std::int64_t num_outputs, std::span<Listed> listed,
                                           const Step& step) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  cohort_.first = first;
  cohort_.spacing = per_request_;
  cohort_.num_outputs = num_outputs;
  cohort_.count = 0;
  cohort_.stretches.clear();
  cohort_.listed.clear();
  const SimTime before = steps_.empty() ? SimTime{} : steps_.back().first;
  auto left = step.left.begin();
  auto entered = step.entered.begin();
  auto next = listed.begin();
  std::int64_t was = 0;  // Place in the step before, and in this one.
  std::int64_t is = 0;
  while (is < num_outputs) {
    if (left != step.left.end() && *left == was) {
      ++left, ++was;
      continue;
    }
    if (entered != step.entered.end() && entered->place == is) {
      cohort_.listed.push_back(is);
      ++entered, ++is, ++next;
      continue;
    }
    const std::int64_t until_left = left == step.left.end() ? kNone : *left - was;
    const std::int64_t until_entered = entered == step.entered.end() ? kNone : entered->place - is;
    const std::int64_t length = std::min({until_left, until_entered, num_outputs - is});
    std::int64_t unlisted = length;
    for (; next != listed.end() && next->place < is + length; ++next) {
      next->previous = time_at(before, next->place - is + was);
      cohort_.listed.push_back(next->place);
      --unlisted;
    }
    if (unlisted > 0) {
      cohort_.count += unlisted;
      cohort_.stretches.push_back({unlisted, first - before + (is - was) * per_request_});
    }
    was += length;
    is += length;
  }
}

void OutputOrder::next_like_before(SimTime first) {
  cohort_.stretches.assign(1, {cohort_.count, first - steps_.back().first});
  cohort_.first = first;
  cohort_.listed.clear();
  steps_.push_back({first, {}, {}});
  forget_unheld();
}

void OutputOrder::follow(engine::RequestId id, std::int64_t since, std::int64_t place, const Visit& visit) const {
  BOOST_ASSERT_MSG(since >= first_kept_, "CAUSAL_TIMES: a step was forgotten that somebody still asks for");
  bool away = false;
  for (std::int64_t number = since; number < num_steps(); ++number) {
    const Step& step = steps_[static_cast<std::size_t>(number - first_kept_)];
    if (number > since) {
      const auto behind = std::ranges::lower_bound(step.left, place);
      if (!away && behind != step.left.end() && *behind == place) {
        away = true;
      }
      place -= behind - step.left.begin();
      for (const Entered& entered : step.entered) {
        if (entered.id == id) {
          place = entered.place;
          away = false;
        } else if (!away && entered.place <= place) {
          ++place;
        }
      }
    }
    if (!away) {
      visit(number, place, time_at(step.first, place));
    }
  }
}

// Steps that nobody asks for, but for the newest, with which the next is compared.
void OutputOrder::forget_unheld() {
  while (steps_.size() > 1 && steps_.front().holders == 0) {
    steps_.pop_front();
    ++first_kept_;
  }
}

}  // namespace kneepoint::sim
