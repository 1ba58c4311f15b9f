#include "sim/workload.h"

#include <fmt/format.h>

#include <boost/assert.hpp>
#include <cmath>
#include <utility>

#include "sim/usage_error.h"
#include "traces/random_stream.h"

namespace kneepoint::sim {

TraceWorkload::TraceWorkload(const RunConfig& config)
    : reader_(config.trace),
      file_name_(config.trace.string()),
      max_model_len_(config.engine.max_model_len),
      strict_(config.strict) {}

bool TraceWorkload::next(Send& send) {
  if (!reader_.next(send.record)) {
    return false;
  }
  send.index = given_++;
  send.arrival = SimTime(send.record.arrival);
  if (strict_ && send.record.prompt_tokens >= max_model_len_) {
    throw CannotRun(fmt::format("{}: record {}: prompt of {} tokens where max_model_len is {}; the server would refuse "
                                 "it (without --strict it is counted as rejected)",
                                 file_name_, send.index, send.record.prompt_tokens, max_model_len_));
  }
  return true;
}

std::string TraceWorkload::sha256() {
  traces::TraceRecord rest;
  while (reader_.next(rest)) {
  }
  return reader_.sha256();
}

// One gamma interval after the other, in seconds, mean 1 / rate.
struct RatedWorkload::Intervals {
  Intervals(double rate, double burstiness, std::uint64_t seed)
      : stream(seed, "arrival intervals"), shape(burstiness), scale_s(1.0 / (rate * burstiness)) {}

  double next_s() { return stream.gamma(shape) * scale_s; }

  traces::RandomStream stream;
  double shape;
  double scale_s;
};

RatedWorkload::RatedWorkload(std::unique_ptr<Workload> inner, std::uint64_t num_requests, double rate,
                             double burstiness, std::uint64_t seed)
    : inner_(std::move(inner)) {
  BOOST_ASSERT(rate > 0 && burstiness > 0);
  if (std::isinf(rate)) {
    return;
  }
  Intervals first_pass(rate, burstiness, seed);
  double sum_s = 0;
  for (std::uint64_t i = 0; i < num_requests; ++i) {
    sum_s += first_pass.next_s();
  }
  if (sum_s > 0) {
    scale_ = static_cast<double>(num_requests) / rate / sum_s;
  }
  intervals_ = std::make_unique<Intervals>(rate, burstiness, seed);
}

RatedWorkload::~RatedWorkload() = default;

bool RatedWorkload::next(Send& send) {
  if (!inner_->next(send)) {
    return false;
  }
  if (intervals_ != nullptr) {
    elapsed_s_ += intervals_->next_s();
  }
  send.arrival = SimTime(to_sim_duration(elapsed_s_ * scale_));
  return true;
}

}  // namespace kneepoint::sim
