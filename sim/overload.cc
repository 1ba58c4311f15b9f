#include "sim/overload.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/assert.hpp>
#include <cmath>
#include <limits>

namespace kneepoint::sim {
namespace {

constexpr std::size_t kCounters = 4096;
constexpr std::size_t kBlocks = 20;
constexpr std::int64_t kFewestRequests = 40;  // Two to a block.
constexpr std::int64_t kShortestQueue = 10;
// Student's t with 19 degrees of freedom exceeds this once in a hundred (any table).
constexpr double kCriticalT = 2.539;
// So much longer than the arrivals does the queue take to empty that there is nothing to test.
constexpr std::int64_t kHopelessRatio = 100;

// Mean of `values` over its standard error.
double t_statistic(const std::vector<std::int64_t>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const std::int64_t value : values) {
    mean += static_cast<double>(value) / n;
  }
  double squares = 0;
  for (const std::int64_t value : values) {
    squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
  }
  const double standard_error = std::sqrt(squares / (n - 1) / n);
  if (standard_error > 0) {
    return mean / standard_error;
  }
  return mean > 0 ? std::numeric_limits<double>::infinity() : 0;
}

}  // namespace

OverloadDetector::OverloadDetector() : width_ns_(1000), arrived_(kCounters), began_(kCounters) {}

void OverloadDetector::on_send(const RequestRecord& request) {
  ++requests_;
  first_arrival_ = std::min(first_arrival_, request.arrival);
  last_arrival_ = std::max(last_arrival_, request.arrival);
  count(arrived_, request.arrival);
}

void OverloadDetector::on_request_end(const RequestRecord& request) {
  const SimTime began = request.scheduled != kNever ? request.scheduled : request.last_token;
  last_began_ = std::max(last_began_, began);
  count(began_, began);
}

void OverloadDetector::count(std::vector<std::int64_t>& counters, SimTime time) {
  const std::int64_t ns = time.time_since_epoch().count();
  BOOST_ASSERT(ns >= 0);
  while (static_cast<std::size_t>(ns / width_ns_) >= kCounters) {
    double_width();
  }
  ++counters[static_cast<std::size_t>(ns / width_ns_)];
}

void OverloadDetector::double_width() {
  width_ns_ *= 2;
  for (std::vector<std::int64_t>* counters : {&arrived_, &began_}) {
    for (std::size_t i = 0; i < kCounters / 2; ++i) {
      (*counters)[i] = (*counters)[2 * i] + (*counters)[2 * i + 1];
    }
    std::fill(counters->begin() + kCounters / 2, counters->end(), 0);
  }
}

OverloadVerdict OverloadDetector::verdict() const {
  OverloadVerdict verdict;
  if (requests_ < kFewestRequests || first_arrival_ == last_arrival_) {
    return verdict;
  }
  const auto counter_of = [&](SimTime time) {
    return static_cast<std::size_t>(time.time_since_epoch().count() / width_ns_);
  };
  const std::size_t first = counter_of(first_arrival_);
  const std::size_t span = counter_of(last_arrival_) + 1 - first;
  std::vector<std::int64_t> growth(kBlocks);  // The d_i.
  for (std::size_t i = 0; i < span; ++i) {
    const std::int64_t change = arrived_[first + i] - began_[first + i];
    growth[i * kBlocks / span] += change;
    verdict.queue_at_last_arrival += change;
  }
  const SimDuration arrivals = last_arrival_ - first_arrival_;
  const SimDuration emptying = last_began_ - last_arrival_;
  verdict.t = t_statistic(growth);
  const bool hopeless = span < kBlocks && emptying / kHopelessRatio > arrivals;
  const bool drifts = span >= kBlocks && verdict.t > kCriticalT;
  verdict.overloaded = verdict.queue_at_last_arrival >= kShortestQueue && (drifts || hopeless);
  if (verdict.overloaded) {
    verdict.reason = fmt::format(
        "the queue grew to the end of the arrivals: {} of {} requests had not begun when the last one came, "
        "after "
        "{:.3g} s; they took {:.3g} s more to begin",
        verdict.queue_at_last_arrival, requests_, to_seconds(arrivals), to_seconds(emptying));
  }
  return verdict;
}

}  // namespace kneepoint::sim
