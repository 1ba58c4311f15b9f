#include "calibrate/predict_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/normal_distribution.hpp>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "calibrate/calibrate_error.h"
#include "calibrate/log_replay.h"
#include "calibrate/robust_linear.h"
#include "sim/client.h"
#include "sim/event_loop.h"

namespace kneepoint::calibrate {

namespace {

// The run's requests at the times the client meant to send them.
class RecordedWorkload final : public sim::Workload {
 public:
  RecordedWorkload(const std::vector<traces::TraceRecord>& records, const std::vector<double>& arrivals_s) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      sends_.push_back({i, sim::SimTime(sim::to_sim_duration(arrivals_s[i])), records[i]});
    }
    std::stable_sort(sends_.begin(), sends_.end(),
                     [](const sim::Send& a, const sim::Send& b) { return a.arrival < b.arrival; });
  }

  [[nodiscard]] bool next(sim::Send& send) override {
    if (given_ == sends_.size()) return false;
    send = sends_[given_++];
    return true;
  }

 private:
  std::vector<sim::Send> sends_;
  std::size_t given_ = 0;
};

// Collects what the client sees, by request.
class ClientView final : public sim::RunObserver {
 public:
  void on_tokens(const sim::RequestRecord& request, sim::SimTime previous, sim::SimTime at_client,
                 std::int64_t num_tokens) override {
    static_cast<void>(num_tokens);
    RequestTimes& times = seen_[request.index];
    if (previous != sim::kNever) times.itls_s.push_back(sim::to_seconds(at_client - previous));
  }

  void on_request_end(const sim::RequestRecord& request) override {
    RequestTimes& times = seen_[request.index];
    if (!sim::is_completed(request.end)) {
      seen_.erase(request.index);
      return;
    }
    times.index = request.index;
    times.start_s = sim::to_seconds(request.sent);
    times.ttft_s = sim::to_seconds(request.first_token - request.sent);
    times.latency_s = sim::to_seconds(request.last_token - request.sent);
    times.prompt_tokens = request.prompt_tokens;
    times.output_tokens = request.output_tokens;
  }

  [[nodiscard]] std::vector<RequestTimes> take() {
    std::vector<RequestTimes> all;
    for (auto& [index, times] : seen_) all.push_back(std::move(times));
    return all;
  }

 private:
  std::map<std::uint64_t, RequestTimes> seen_;
};

// Step times under a factor that changes after each second of computing. Its
// mean is 1, so that no run becomes slower or faster on the whole.
class RestlessTimes final : public hw::StepTimeModel {
 public:
  RestlessTimes(const hw::StepTimeModel& quiet, const Unrest& unrest)
      : quiet_(quiet), sd_(unrest.sd_per_second), random_(unrest.seed) {}

  [[nodiscard]] hw::StepTime step_time(const hw::StepShape& shape) const override {
    if (left_ <= std::chrono::nanoseconds{0}) {
      factor_ = std::exp(sd_ * normal_(random_) - sd_ * sd_ / 2);
      left_ += std::chrono::seconds(1);
    }
    hw::StepTime time = quiet_.step_time(shape);
    left_ -= time.device;
    time.device = std::chrono::nanoseconds(std::llround(static_cast<double>(time.device.count()) * factor_));
    return time;
  }
  [[nodiscard]] hw::FrontEndTimes front_end() const override { return quiet_.front_end(); }
  [[nodiscard]] std::chrono::nanoseconds turnaround(std::int64_t num_outputs) const override {
    return quiet_.turnaround(num_outputs);
  }
  [[nodiscard]] std::vector<hw::Extrapolation> extrapolations(const hw::StepShape& shape) const override {
    return quiet_.extrapolations(shape);
  }
  [[nodiscard]] std::string provenance() const override { return quiet_.provenance(); }

 private:
  const hw::StepTimeModel& quiet_;
  double sd_;
  // The model is asked once for each step, in order; what it draws is its own.
  mutable boost::random::mt19937_64 random_;
  mutable boost::random::normal_distribution<double> normal_;
  mutable std::chrono::nanoseconds left_{0};
  mutable double factor_ = 1;
};

// When each request's task is made. A closed loop's first requests leave as the
// client got round to them, the others wait for a slot from then on.
std::vector<double> arrival_times(const Run& run) {
  std::vector<double> arrivals;
  std::vector<double> starts;
  for (const ClientRequest& request : run.client->requests) starts.push_back(request.start_s);
  if (!run.client->max_concurrency) return starts;
  std::vector<double> sorted = starts;
  std::sort(sorted.begin(), sorted.end());
  const auto slots = std::min(static_cast<std::size_t>(*run.client->max_concurrency), sorted.size());
  const double filled = slots > 0 ? sorted[slots - 1] : 0;
  for (const ClientRequest& request : run.client->requests) {
    const double made = std::max(request.start_s - request.queue_s, 0.0);
    arrivals.push_back(request.start_s <= filled ? request.start_s : std::max(made, filled));
  }
  return arrivals;
}

void add_summary(const std::string& name, std::vector<double> values, std::vector<RunMetric>& metrics) {
  double sum = 0;
  for (double& value : values) sum += (value *= 1e3);
  const double mean = values.empty() ? 0 : sum / static_cast<double>(values.size());
  metrics.push_back({fmt::format("mean_{}_ms", name), mean});
  metrics.push_back({fmt::format("median_{}_ms", name), quantile(values, 0.5)});
  metrics.push_back({fmt::format("p90_{}_ms", name), quantile(values, 0.9)});
  metrics.push_back({fmt::format("p99_{}_ms", name), quantile(std::move(values), 0.99)});
}

}  // namespace

std::vector<RunMetric> metrics_of(const std::vector<RequestTimes>& requests, double duration_s) {
  std::vector<double> ttfts, tpots, itls, e2els;
  double inputs = 0, outputs = 0;
  for (const RequestTimes& request : requests) {
    ttfts.push_back(request.ttft_s);
    e2els.push_back(request.latency_s);
    if (request.output_tokens > 1) {
      tpots.push_back((request.latency_s - request.ttft_s) / static_cast<double>(request.output_tokens - 1));
    }
    itls.insert(itls.end(), request.itls_s.begin(), request.itls_s.end());
    inputs += static_cast<double>(request.prompt_tokens);
    outputs += static_cast<double>(request.output_tokens);
  }
  const double per_second = duration_s > 0 ? 1 / duration_s : 0;
  std::vector<RunMetric> metrics{{"completed", static_cast<double>(requests.size())},
                                 {"duration", duration_s},
                                 {"request_throughput", static_cast<double>(requests.size()) * per_second},
                                 {"output_throughput", outputs * per_second},
                                 {"total_token_throughput", (inputs + outputs) * per_second}};
  add_summary("ttft", std::move(ttfts), metrics);
  add_summary("tpot", std::move(tpots), metrics);
  if (!itls.empty()) add_summary("itl", std::move(itls), metrics);
  add_summary("e2el", std::move(e2els), metrics);
  return metrics;
}

std::vector<RequestTimes> measured_requests(const ClientRun& client) {
  std::vector<RequestTimes> requests;
  for (const ClientRequest& request : client.requests) {
    requests.push_back({requests.size(), request.start_s, request.ttft_s, request.latency_s, request.itls_s,
                        request.prompt_tokens, request.output_tokens});
  }
  return requests;
}

std::vector<RunMetric> measured_metrics(const ClientRun& client) {
  return metrics_of(measured_requests(client), client.duration_s);
}

RunPrediction predict_run(const Run& run, const hw::MeasuredServer& server, const Unrest& unrest) {
  const std::unique_ptr<hw::StepTimeModel> quiet = hw::make_measured_step_time_model(server);
  if (unrest.sd_per_second <= 0) return predict_run(run, *quiet, nullptr, server.turnaround_s.value);
  return predict_run(run, RestlessTimes(*quiet, unrest), nullptr, server.turnaround_s.value);
}

RunPrediction predict_run(const Run& run, const hw::StepTimeModel& times, const hw::GraphSizes* graphs,
                          double turnaround_s) {
  if (!run.client) {
    throw CalibrateError(
        fmt::format("{}: has no client=; there is nothing measured to predict", run.files.name));
  }
  const engine::SchedulerConfig config = replayable_config(run);
  sim::RunConfig run_config;
  run_config.engine = config;
  run_config.client.max_concurrency = run.client->max_concurrency;
  const std::vector<traces::TraceRecord> records = trace_records(run, config.block_size);

  std::unique_ptr<sim::Client> client =
      std::make_unique<sim::OpenLoopClient>(std::make_unique<RecordedWorkload>(records, arrival_times(run)));
  if (run.client->max_concurrency) {
    const sim::SimDuration turnaround = sim::to_sim_duration(turnaround_s);
    client = std::make_unique<sim::SemaphoreClient>(std::move(client), *run.client->max_concurrency,
                                                    [turnaround] { return turnaround; });
  }
  sim::ContentKeys keys(config.block_size);
  const std::unique_ptr<engine::Scheduler> scheduler = engine::find_scheduler("vllm-v1")->make(config, keys);
  const std::vector<engine::FreeBlock> queue = free_queue_of(run, records, config);
  if (!queue.empty()) static_cast<void>(scheduler->preset_free_queue(queue));
  ClientView view;
  sim::EventLoop loop(run_config, {.client = *client,
                                   .engine = *scheduler,
                                   .keys = keys,
                                   .times = times,
                                   .graphs = graphs,
                                   .observers = {&view}});
  RunPrediction prediction;
  prediction.summary = loop.run();
  prediction.requests = view.take();
  double first = 0, last = 0;
  for (const RequestTimes& request : prediction.requests) {
    first = std::min(first, request.start_s);
    last = std::max(last, request.start_s + request.latency_s);
  }
  prediction.metrics = metrics_of(prediction.requests, last - first);
  return prediction;
}

}  // namespace kneepoint::calibrate
