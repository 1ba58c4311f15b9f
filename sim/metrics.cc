#include "sim/metrics.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <utility>

namespace kneepoint::sim {
namespace {

constexpr std::int64_t kTtftQuantileParts = 1000;

}  // namespace

std::optional<double> MetricsReport::error_rate() const {
  return requests() > 0 ? std::optional(static_cast<double>(failed) / static_cast<double>(requests()))
                        : std::nullopt;
}

Metrics::Metrics(const RunConfig& config)
    : limits_(config.report.goodput),
      client_queues_(config.client.max_concurrency.has_value()),
      keep_detailed_(config.report.save_detailed),
      wants_quantiles_(!config.report.out_dir.empty()) {}

void Metrics::on_send(const RequestRecord& request) {
  if (!first_send_) {
    first_send_ = request.sent;
  }
  counts_.peak_in_flight = std::max(counts_.peak_in_flight, ++in_flight_);
}

void Metrics::on_tokens(const RequestRecord& request, SimTime previous, SimTime at_client, std::int64_t) {
  if (previous == kNever) {
    if (free_places_.empty()) {
      free_places_.push_back(gaps_.size());
      gaps_.emplace_back();
    }
    place_of_.insert(request.index, free_places_.back());
    free_places_.pop_back();
    return;
  }
  const std::size_t* const place = place_of_.find(request.index);
  BOOST_ASSERT_MSG(place != nullptr, "CONSERVE_REQUESTS: a later chunk of a request that had no first one");
  const std::int64_t gap = (at_client - previous).count();
  gaps_[*place].push_back(gap);
  itl_.add(gap);
}

void Metrics::on_request_end(const RequestRecord& request) {
  static const std::vector<std::int64_t> kNoGaps;
  --in_flight_;
  last_end_ = std::max(last_end_, request.last_token);
  ++counts_.ended[static_cast<std::size_t>(request.end)];

  const std::size_t* const place = place_of_.find(request.index);
  const std::vector<std::int64_t>& gaps = place != nullptr ? gaps_[*place] : kNoGaps;
  if (is_completed(request.end)) {
    ++counts_.completed;
    add_completed(request, gaps);
  } else {
    ++counts_.failed;
    take_out(gaps);
  }
  if (keep_detailed_) {
    detailed_.push_back({request, gaps});
  }
  if (place != nullptr) {
    gaps_[*place].clear();
    free_places_.push_back(*place);
    place_of_.erase(request.index);
  }
}

void Metrics::take_out(const std::vector<std::int64_t>& gaps) {
  for (const std::int64_t gap : gaps) {
    itl_.remove(gap);
  }
}

void Metrics::add_completed(const RequestRecord& request, const std::vector<std::int64_t>& gaps) {
  const SimDuration ttft = request.first_token - request.sent;
  const SimDuration e2el = request.last_token - request.sent;
  counts_.total_input_tokens += request.prompt_tokens;
  counts_.total_output_tokens += request.output_tokens;
  ttft_.add(ttft);
  e2el_.add(e2el);
  if (request.output_tokens > 1) {
    const std::int64_t intervals = request.output_tokens - 1;
    tpot_.add(
        SimDuration(((e2el - ttft).count() + intervals / 2) / intervals));  // To the nearest nanosecond.
  }
  queue_.add(request.scheduled - request.queued);
  prefill_.add(request.first_token - request.scheduled);
  if (client_queues_) {
    client_queue_.add(request.sent - request.arrival);
    e2el_with_client_queue_.add(request.last_token - request.arrival);
  }
  good_ += is_good(request) ? 1 : 0;
  count_chunks(request, gaps);
}

// Limits hold up to and including their value. A single token has a TPOT of 0.
bool Metrics::is_good(const RequestRecord& request) const {
  const SimDuration decode = request.last_token - request.first_token;
  return (!limits_.ttft || request.first_token - request.sent <= *limits_.ttft) &&
         (!limits_.e2el || request.last_token - request.sent <= *limits_.e2el) &&
         (!limits_.tpot || decode.count() <= limits_.tpot->count() * (request.output_tokens - 1));
}

std::int64_t Metrics::second_of(SimTime time) const {
  return (time - *first_send_) / std::chrono::seconds(1);
}

void Metrics::count_chunks(const RequestRecord& request, const std::vector<std::int64_t>& gaps) {
  BOOST_ASSERT_MSG(first_send_, "CONSERVE_REQUESTS: a request ended that was not sent");
  ++concurrency_change_[second_of(request.sent)];
  --concurrency_change_[second_of(request.last_token) + 1];

  SimTime time = request.first_token;
  std::int64_t second = second_of(time);
  SimTime next_second = *first_send_ + std::chrono::seconds(second + 1);
  std::int64_t in_second = 1;
  for (const std::int64_t gap : gaps) {
    time += SimDuration(gap);
    if (time >= next_second) {
      chunks_[second] += std::exchange(in_second, 0);
      second = second_of(time);
      next_second = *first_send_ + std::chrono::seconds(second + 1);
    }
    ++in_second;
  }
  chunks_[second] += in_second;
}

MetricsReport Metrics::finish(const RunSummary& summary) {
  for (std::vector<std::int64_t>& gaps : gaps_) {  // Of requests that a cut run left under way.
    take_out(gaps);
    gaps.clear();
  }
  MetricsReport report = counts_;
  report.duration = (summary.unfinished > 0 ? summary.end : last_end_) - SimTime{};
  if (report.duration.count() > 0) {
    const double seconds = to_seconds(report.duration);
    report.request_throughput = static_cast<double>(report.completed) / seconds;
    report.output_throughput = static_cast<double>(report.total_output_tokens) / seconds;
    report.total_token_throughput =
        static_cast<double>(report.total_input_tokens + report.total_output_tokens) / seconds;
    if (limits_.any()) {
      report.request_goodput = static_cast<double>(good_) / seconds;
    }
  }
  for (const auto& [second, chunks] : chunks_) {
    report.max_chunks_per_s = std::max(report.max_chunks_per_s, chunks);
  }
  std::int64_t concurrent = 0;
  for (const auto& [second, change] : concurrency_change_) {
    concurrent += change;
    report.max_concurrent_requests = std::max(report.max_concurrent_requests, concurrent);
  }

  report.ttft = ttft_.stats();
  report.tpot = tpot_.stats();
  report.itl = itl_.stats();
  report.itl_exact = itl_.exact();
  report.e2el = e2el_.stats();
  report.client_queue = client_queue_.stats();
  report.e2el_with_client_queue = e2el_with_client_queue_.stats();
  report.queue = queue_.stats();
  report.prefill = prefill_.stats();
  if (wants_quantiles_) {
    for (const double ns : ttft_.quantiles_ns(kTtftQuantileParts)) {
      report.ttft_quantiles_ms.push_back(ns / 1e6);
    }
  }
  report.detailed = detailed_;
  std::sort(
      report.detailed.begin(), report.detailed.end(),
      [](const DetailedRequest& a, const DetailedRequest& b) { return a.record.index < b.record.index; });
  return report;
}

}  // namespace kneepoint::sim
