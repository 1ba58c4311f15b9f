#include "calibrate/serving_clients.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "traces/random_stream.h"

namespace kneepoint::calibrate {
namespace {

class ListedWorkload final : public sim::Workload {
 public:
  explicit ListedWorkload(std::vector<traces::TraceRecord> records) : records_(std::move(records)) {}

  bool next(sim::Send& send) override {
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

std::int64_t draw_length(traces::RandomStream& random, std::int64_t longest, double min_fraction) {
  const auto shortest = static_cast<std::int64_t>(std::ceil(min_fraction * static_cast<double>(longest)));
  return random.integer(std::max<std::int64_t>(1, shortest), longest);
}

constexpr traces::ContentId kSystemPrompt = 1;

}  // namespace

std::unique_ptr<sim::Client> make_client(const ClosedLoopClient& client, std::uint64_t seed) {
  std::vector<traces::TraceRecord> records(static_cast<std::size_t>(client.requests));
  traces::RandomStream lengths(seed, "serving lengths");
  for (traces::TraceRecord& record : records) {
    record.prompt_tokens = draw_length(lengths, client.input_tokens, client.min_fraction);
  }
  for (traces::TraceRecord& record : records) {
    record.output_tokens = draw_length(lengths, client.output_tokens, client.min_fraction);
  }
  std::function<sim::SimDuration()> think;
  if (client.jitter_ms > 0) {
    think = [random = traces::RandomStream(seed, "client jitter"), jitter_s = client.jitter_ms * 1e-3]() mutable {
      return sim::to_sim_duration(jitter_s * random.uniform());
    };
  }
  return std::make_unique<sim::SemaphoreClient>(
      std::make_unique<sim::OpenLoopClient>(std::make_unique<ListedWorkload>(std::move(records))), client.concurrency,
      std::move(think));
}

std::unique_ptr<sim::Client> make_client(const OpenLoopClient& client) {
  std::vector<traces::TraceRecord> records;
  for (std::size_t stage = 0; stage < client.rates_per_s.size(); ++stage) {
    const double rate = client.rates_per_s[stage];
    const double begin_s = static_cast<double>(stage) * client.stage_s;
    const std::uint64_t count = requests_of_stage(client, stage);
    for (std::uint64_t i = 0; i < count; ++i) {
      traces::TraceRecord record;
      record.arrival = sim::to_sim_duration(begin_s + static_cast<double>(i) / rate);
      record.prompt_tokens = client.prompt_tokens;
      record.output_tokens = client.output_tokens;
      const auto question = static_cast<std::uint64_t>(records.size()) % static_cast<std::uint64_t>(client.distinct_prompts);
      if (client.shared_prefix_tokens > 0) {
        record.prompt.push_back({kSystemPrompt, 0, client.shared_prefix_tokens});
      }
      if (client.prompt_tokens > client.shared_prefix_tokens) {
        record.prompt.push_back({kSystemPrompt + 1 + question, 0, client.prompt_tokens - client.shared_prefix_tokens});
      }
      records.push_back(std::move(record));
    }
  }
  return std::make_unique<sim::OpenLoopClient>(std::make_unique<ListedWorkload>(std::move(records)));
}

std::uint64_t requests_of_stage(const OpenLoopClient& client, std::size_t stage) {
  return static_cast<std::uint64_t>(std::llround(client.rates_per_s.at(stage) * client.stage_s));
}

std::unique_ptr<sim::Client> make_client(const RecordedClient& client) {
  std::vector<traces::TraceRecord> records;
  for (const RecordedClient::Request& request : client.requests) {
    traces::TraceRecord record;
    record.arrival = sim::to_sim_duration(request.arrival_s);
    record.prompt_tokens = request.prompt_tokens;
    record.output_tokens = request.output_tokens;
    records.push_back(std::move(record));
  }
  return std::make_unique<sim::OpenLoopClient>(std::make_unique<ListedWorkload>(std::move(records)));
}

}  // namespace kneepoint::calibrate
