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
      keep_gaps_(config.engine.walk_decodes || config.report.save_detailed),
      keep_detailed_(config.report.save_detailed),
      wants_quantiles_(!config.report.out_dir.empty()) {}

void Metrics::on_send(const RequestRecord& request) {
  if (!first_send_) {
    first_send_ = request.sent;
  }
  counts_.peak_in_flight = std::max(counts_.peak_in_flight, ++in_flight_);
}

void Metrics::on_tokens(const RequestRecord& request, SimTime previous, SimTime at_client, std::int64_t) {
  count_chunks(at_client, 1);
  if (previous == kNever) {
    if (keep_gaps_) {
      if (free_places_.empty()) {
        free_places_.push_back(gaps_.size());
        gaps_.emplace_back();
      }
      place_of_.insert(request.index, free_places_.back());
      gaps_[free_places_.back()].first = at_client;
      free_places_.pop_back();
    }
    return;
  }
  const std::int64_t gap = (at_client - previous).count();
  itl_.add(gap);
  if (keep_gaps_) {
    const std::size_t* const place = place_of_.find(request.index);
    BOOST_ASSERT_MSG(place != nullptr, "CONSERVE_REQUESTS: a later chunk of a request that had no first one");
    gaps_[*place].gaps.push_back(gap);
  }
}

void Metrics::on_cohort_tokens(const CohortTokens& tokens) {
  for (const CohortTokens::Stretch& stretch : tokens.stretches) {
    itl_.add(stretch.gap.count(), stretch.count);
  }
  const SimTime last = tokens.first + (tokens.num_outputs - 1) * tokens.spacing;
  if (second_of(tokens.first) == second_of(last)) {
    count_chunks(tokens.first, tokens.count);
    return;
  }
  auto listed = tokens.listed.begin();
  for (std::int64_t place = 0; place < tokens.num_outputs; ++place) {
    if (listed != tokens.listed.end() && *listed == place) {
      ++listed;
    } else {
      count_chunks(tokens.first + place * tokens.spacing, 1);
    }
  }
}

void Metrics::on_tokens_withdrawn(std::span<const SimTime> at_client) {
  for (std::size_t i = 0; i < at_client.size(); ++i) {
    count_chunks(at_client[i], -1);
    if (i > 0) {
      itl_.remove((at_client[i] - at_client[i - 1]).count());
    }
  }
}

void Metrics::on_request_end(const RequestRecord& request) {
  --in_flight_;
  last_end_ = std::max(last_end_, request.last_token);
  ++counts_.ended[static_cast<std::size_t>(request.end)];

  const std::size_t* const place = keep_gaps_ ? place_of_.find(request.index) : nullptr;
  if (is_completed(request.end)) {
    ++counts_.completed;
    add_completed(request);
  } else {
    ++counts_.failed;
    if (place != nullptr) {
      take_out(gaps_[*place].first, gaps_[*place].gaps);
    }
  }
  if (keep_detailed_) {
    detailed_.push_back({request, place != nullptr ? gaps_[*place].gaps : std::vector<std::int64_t>()});
  }
  if (place != nullptr) {
    gaps_[*place].gaps.clear();
    free_places_.push_back(*place);
    place_of_.erase(request.index);
  }
}

void Metrics::take_out(SimTime first_token, const std::vector<std::int64_t>& gaps) {
  SimTime time = first_token;
  count_chunks(time, -1);
  for (const std::int64_t gap : gaps) {
    itl_.remove(gap);
    time += SimDuration(gap);
    count_chunks(time, -1);
  }
}

void Metrics::add_completed(const RequestRecord& request) {
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
  ++concurrency_change_[second_of(request.sent)];
  --concurrency_change_[second_of(request.last_token) + 1];
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

// Most chunks come in the second of the one before.
void Metrics::count_chunks(SimTime at_client, std::int64_t count) {
  constexpr SimDuration kSecond = std::chrono::seconds(1);
  BOOST_ASSERT_MSG(first_send_, "CONSERVE_REQUESTS: a token of a request that was not sent");
  if (chunks_of_second_ == nullptr || at_client < second_begin_ || at_client >= second_begin_ + kSecond) {
    const std::int64_t second = second_of(at_client);
    second_begin_ = *first_send_ + second * kSecond;
    chunks_of_second_ = &chunks_[second];  // A node of a map: it stays where it is.
  }
  *chunks_of_second_ += count;
}

MetricsReport Metrics::finish(const RunSummary& summary) {
  for (const std::size_t place : free_places_) {
    gaps_[place].first = kNever;
  }
  for (Tokens& tokens : gaps_) {  // Of requests that a cut run left under way.
    if (tokens.first != kNever) {
      take_out(tokens.first, tokens.gaps);
      tokens = {kNever, {}};
    }
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
