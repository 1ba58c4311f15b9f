#include "calibrate/predict_serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>

#include "calibrate/calibrate_error.h"
#include "calibrate/serving_clients.h"
#include "sim/observer.h"
#include "sim/options.h"
#include "sim/percentiles.h"
#include "sim/simulation.h"

namespace kneepoint::calibrate {
namespace {

constexpr VllmRelease kAsynchronousSince{0, 14};
constexpr VllmRelease kGraphsSubtractedSince{0, 21};
constexpr VllmRelease kWholePromptsReservedSince{0, 21};

// Latencies as the measuring client took them: of the requests of one stage, if
// the row is of one.
class ServingView final : public sim::RunObserver {
 public:
  ServingView(std::uint64_t first, std::uint64_t end, bool from_queue, sim::SimDuration way_out)
      : first_(first), end_(end), from_queue_(from_queue), way_out_(way_out) {}

  void on_request_end(const sim::RequestRecord& request) override {
    if (request.index < first_ || request.index >= end_ || !sim::is_completed(request.end)) {
      return;
    }
    const sim::SimTime begin = from_queue_ ? request.queued + way_out_ : request.sent;
    ttft_.add(request.first_token - begin);
    if (request.output_tokens > 1) {
      tpot_.add((request.last_token - request.first_token) / (request.output_tokens - 1));
    }
  }

  void fill(ServingPrediction& prediction) {
    const sim::LatencyStats ttft = ttft_.stats();
    const sim::LatencyStats tpot = tpot_.stats();
    if (!ttft.empty()) {
      prediction.mean_ttft_ms = ttft.mean_ms;
      prediction.p99_ttft_ms = ttft.p99_ms;
    }
    if (!tpot.empty()) {
      prediction.mean_tpot_ms = tpot.mean_ms;
    }
  }

  [[nodiscard]] double total_ttft_s() {
    const sim::LatencyStats stats = ttft_.stats();
    return static_cast<double>(stats.count) * stats.mean_ms * 1e-3;
  }

 private:
  std::uint64_t first_;
  std::uint64_t end_;
  bool from_queue_;
  sim::SimDuration way_out_;
  sim::LatencySample ttft_, tpot_;
};

std::string kv_type(const std::string& written) {
  return written == "bf16" ? "bfloat16" : written == "fp16" ? "float16" : written.empty() ? "auto" : written;
}

// The requests that the row's figures are of: [first, end).
std::pair<std::uint64_t, std::uint64_t> measured_requests(const ServingRow& row) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  if (!row.open_loop || row.open_loop->stage < 0) {
    return {0, kAll};
  }
  std::uint64_t first = 0;
  const auto stage = static_cast<std::size_t>(row.open_loop->stage);
  for (std::size_t i = 0; i < stage; ++i) {
    first += requests_of_stage(*row.open_loop, i);
  }
  return {first, first + requests_of_stage(*row.open_loop, stage)};
}

std::unique_ptr<sim::Client> client_of(const ServingRow& row, std::uint64_t seed) {
  if (row.closed_loop) {
    return make_client(*row.closed_loop, seed);
  }
  return row.open_loop ? make_client(*row.open_loop) : make_client(*row.recorded);
}

double mean_of(const std::vector<ServingPrediction>& all, std::optional<double> ServingPrediction::* member) {
  double sum = 0;
  for (const ServingPrediction& one : all) {
    sum += *(one.*member);
  }
  return sum / static_cast<double>(all.size());
}

}  // namespace

VllmRelease parse_release(const std::string& text) {
  if (text.empty()) {
    return kReleaseOfUnnamed;
  }
  VllmRelease release;
  std::array<std::int64_t*, 2> parts{&release.major, &release.minor};
  std::size_t at = text.front() == 'v' ? 1 : 0;
  for (std::int64_t* part : parts) {
    const std::size_t begin = at;
    while (at < text.size() && at < begin + 6 && std::isdigit(static_cast<unsigned char>(text[at])) != 0) {
      *part = 10 * *part + (text[at++] - '0');
    }
    if (at == begin || (part == parts.front() && (at == text.size() || text[at++] != '.'))) {
      throw CalibrateError(fmt::format("vLLM release '{}': write it as 0.15.1", text));
    }
  }
  return release;
}

sim::RunConfig run_config_of(const ServingRow& row) {
  const ServingSetup& setup = row.setup;
  const VllmRelease release = parse_release(setup.vllm_version);
  sim::pb::RunConfig asked;
  asked.set_model(setup.model);
  asked.set_gpu(setup.gpu);
  asked.set_tensor_parallel_size(setup.tensor_parallel_size);
  if (!setup.weights.empty()) {
    asked.set_quantization(setup.weights == "fp8" && setup.static_scales ? "modelopt" : setup.weights);
  }
  asked.set_kv_cache_dtype(kv_type(setup.kv_cache_dtype));
  asked.set_gpu_memory_utilization(
      setup.gpu_memory_utilization.value_or(release >= kGraphsSubtractedSince ? 0.92 : 0.9));
  asked.set_subtract_cuda_graphs(release >= kGraphsSubtractedSince);
  asked.set_scheduler_reserve_full_isl(release >= kWholePromptsReservedSince);
  asked.set_async_scheduling(setup.async_scheduling.value_or(release >= kAsynchronousSince));
  asked.set_max_model_len(setup.max_model_len.value_or(-1));
  if (setup.max_num_seqs) {
    asked.set_max_num_seqs(*setup.max_num_seqs);
  }
  if (setup.max_num_batched_tokens) {
    asked.set_max_num_batched_tokens(*setup.max_num_batched_tokens);
  }
  if (setup.block_size) {
    asked.set_block_size(*setup.block_size);
  }
  if (setup.prefix_caching) {
    asked.set_enable_prefix_caching(*setup.prefix_caching);
  }
  return sim::resolve(asked);
}

ServingPrediction predict_serving(const ServingRow& row, std::uint64_t seed) {
  sim::RunConfig config = run_config_of(row);
  ServingPrediction prediction;
  prediction.num_gpu_blocks = config.engine.num_blocks;
  if (row.num_gpu_blocks) {
    return prediction;
  }
  config.seed = seed;
  const std::unique_ptr<sim::Client> client = client_of(row, seed);
  const auto [first, end] = measured_requests(row);
  const sim::SimDuration way_out = row.recorded ? sim::make_step_times(config)->front_end().output : sim::SimDuration{0};
  ServingView view(first, end, row.recorded.has_value(), way_out);
  sim::RunObserver* const observers[] = {&view};
  const sim::SimulationResult result = sim::simulate(config, *client, observers);
  view.fill(prediction);
  prediction.notices = result.summary.notices;
  for (const sim::WaitCause& wait : result.summary.wait_causes) {
    if (wait.cause == "kv_blocks" || wait.cause == "preempted") {
      prediction.kv_wait_share += sim::to_seconds(wait.time) / std::max(view.total_ttft_s(), 1e-9);
    }
  }
  return prediction;
}

bool draws_random_numbers(const ServingRow& row) {
  return row.closed_loop && (row.closed_loop->min_fraction < 1 || row.closed_loop->jitter_ms > 0);
}

ServingPrediction mean_of(const std::vector<ServingPrediction>& predictions) {
  ServingPrediction mean = predictions.front();
  for (const auto member :
       {&ServingPrediction::mean_ttft_ms, &ServingPrediction::p99_ttft_ms, &ServingPrediction::mean_tpot_ms}) {
    const bool everywhere = std::all_of(predictions.begin(), predictions.end(),
                                        [&](const ServingPrediction& one) { return (one.*member).has_value(); });
    mean.*member = everywhere ? std::optional<double>(mean_of(predictions, member)) : std::nullopt;
  }
  mean.kv_wait_share = 0;
  for (const ServingPrediction& one : predictions) {
    mean.kv_wait_share += one.kv_wait_share / static_cast<double>(predictions.size());
  }
  return mean;
}

}  // namespace kneepoint::calibrate
