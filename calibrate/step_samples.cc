#include "calibrate/step_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace kneepoint::calibrate {

namespace {

constexpr double kUnseen = std::numeric_limits<double>::quiet_NaN();

// When each step's tokens were at the client: of the first request in the
// batch's order, and for all requests their place's delay behind it.
struct StepClock {
  std::vector<double> first_token_s;  // NaN: the client saw no token of this step.
  std::vector<double> output_delays_s;
};

// Client times of a request's tokens; empty if a chunk carried several tokens,
// so that their times are not known.
std::vector<double> token_times(const ClientRequest& request) {
  std::vector<double> times;
  if (static_cast<std::int64_t>(request.itls_s.size()) + 1 != request.output_tokens) return times;
  double at = request.start_s + request.ttft_s;
  times.push_back(at);
  for (const double itl : request.itls_s) times.push_back(at += itl);
  return times;
}

StepClock clock_of(const Run& run, const LogReplay& replay) {
  StepClock clock;
  std::vector<std::vector<double>> times;
  for (const ClientRequest& request : run.client->requests) times.push_back(token_times(request));
  std::vector<std::size_t> next(times.size(), 0);
  for (const AlignedStep& step : replay.steps) {
    double first = kUnseen;
    for (std::size_t place = 0; place < step.ours.emitted.size(); ++place) {
      const std::size_t id = step.ours.emitted[place];
      const std::size_t token = next[id]++;
      if (token >= times[id].size()) continue;
      const double at = times[id][token];
      if (place == 0) {
        first = at;
      } else if (!std::isnan(first)) {
        clock.output_delays_s.push_back((at - first) / static_cast<double>(place));
      }
    }
    clock.first_token_s.push_back(first);
  }
  return clock;
}

void collect_steps(const LogReplay& replay, RunSamples& samples) {
  double outputs_before = 0;
  for (const AlignedStep& step : replay.steps) {
    const sim::ReplayedStep& ours = step.ours;
    StepSample sample;
    sample.prefill_tokens = static_cast<double>(ours.prefill_tokens);
    sample.attention_pairs = ours.attention_pairs;
    sample.sequences = static_cast<double>(ours.sequences);
    sample.context_sum = static_cast<double>(ours.context_sum);
    sample.outputs_before = outputs_before;
    sample.elapsed_s = step.logged.elapsed_s;
    samples.steps.push_back(sample);
    samples.max_prefill_tokens = std::max(samples.max_prefill_tokens, ours.prefill_tokens);
    samples.max_sequences = std::max(samples.max_sequences, ours.sequences);
    samples.max_context_sum = std::max(samples.max_context_sum, ours.context_sum);
    samples.max_chunk_context = std::max(samples.max_chunk_context, ours.max_chunk_context);
    outputs_before = static_cast<double>(ours.emitted.size());
  }
}

void collect_gaps(const LogReplay& replay, const StepClock& clock, RunSamples& samples) {
  std::size_t from = replay.steps.size();  // The last step with a client time; size(): none.
  GapSample sum;
  for (std::size_t k = 0; k < replay.steps.size(); ++k) {
    if (from < replay.steps.size()) {
      sum.gaps += 1;
      sum.outputs_before += samples.steps[k].outputs_before;
      sum.with_prefill += samples.steps[k].prefill_tokens > 0 ? 1 : 0;
      sum.seconds -= samples.steps[k].elapsed_s;
      if (!std::isnan(clock.first_token_s[k])) {
        sum.seconds += clock.first_token_s[k] - clock.first_token_s[from];
        samples.gaps.push_back(sum);
      }
    }
    if (!std::isnan(clock.first_token_s[k])) {
      from = k;
      sum = {};
    }
    if (replay.steps[k].ours.idle_after)
      from = replay.steps.size();  // Then the time is the client's, not the server's.
  }
}

// Whether one more request would have been admitted by the step, had it been there.
bool had_room(const AlignedStep& step, const engine::SchedulerConfig& config) {
  const std::int64_t tokens = step.logged.context_tokens + step.logged.generation_tokens;
  return tokens < config.max_num_scheduled_tokens.value_or(config.max_num_batched_tokens) &&
         step.ours.running + 1 < config.max_num_seqs && step.ours.kv_usage < 0.7 &&
         step.ours.preempted.empty();
}

void collect_arrivals(const Run& run, const LogReplay& replay, const StepClock& clock,
                      const engine::SchedulerConfig& config, RunSamples& samples) {
  for (std::size_t i = 0; i < replay.joined.size(); ++i) {
    const std::size_t k = replay.joined[i];
    if (k >= replay.steps.size()) continue;
    const ClientRequest& request = run.client->requests[i];
    const bool was_idle = k == 0 || replay.steps[k - 1].ours.idle_after;
    if (was_idle) {
      // Alone in the step and done with its prompt by it: its first token tells.
      const sim::ReplayedStep& ours = replay.steps[k].ours;
      if (ours.started.size() == 1 && ours.emitted.size() == 1) {
        samples.idle_arrivals.push_back(
            {request.ttft_s - replay.steps[k].logged.elapsed_s, samples.steps[k].outputs_before});
      }
      continue;
    }
    if (std::isnan(clock.first_token_s[k - 1])) continue;
    BusyArrival arrival;
    arrival.high_s = clock.first_token_s[k - 1] - request.start_s;
    arrival.high_outputs = samples.steps[k].outputs_before;
    const bool busy_before = k >= 2 && !replay.steps[k - 2].ours.idle_after;
    if (busy_before && !std::isnan(clock.first_token_s[k - 2]) && had_room(replay.steps[k - 1], config)) {
      arrival.low_s = clock.first_token_s[k - 2] - request.start_s;
      arrival.low_outputs = samples.steps[k - 1].outputs_before;
    }
    samples.busy_arrivals.push_back(arrival);
  }
}

// With a semaphore, a request that waited for it was sent when another ended.
void collect_turnarounds(const Run& run, RunSamples& samples) {
  if (!run.client->max_concurrency) return;
  std::vector<double> ends;
  for (const ClientRequest& request : run.client->requests)
    ends.push_back(request.start_s + request.latency_s);
  std::sort(ends.begin(), ends.end());
  std::vector<double> starts;
  for (const ClientRequest& request : run.client->requests) starts.push_back(request.start_s);
  std::sort(starts.begin(), starts.end());
  const auto slots = static_cast<std::size_t>(*run.client->max_concurrency);
  for (std::size_t i = slots; i < starts.size(); ++i) {
    // The i-th send follows the (i - slots)-th end.
    const double turnaround = starts[i] - ends[i - slots];
    if (turnaround >= 0) samples.turnarounds_s.push_back(turnaround);
  }
}

}  // namespace

RunSamples samples_of(const Run& run, const LogReplay& replay, const engine::SchedulerConfig& config) {
  RunSamples samples;
  samples.name = run.files.name;
  collect_steps(replay, samples);
  if (!run.client) return samples;
  StepClock clock = clock_of(run, replay);
  collect_gaps(replay, clock, samples);
  collect_arrivals(run, replay, clock, config, samples);
  collect_turnarounds(run, samples);
  samples.output_delays_s = std::move(clock.output_delays_s);
  return samples;
}

std::string fitted_on(std::span<const RunSamples> runs, std::size_t count, const char* what) {
  std::vector<std::string> names;
  for (const RunSamples& run : runs) names.push_back(run.name);
  return fmt::format("fitted on {} {} of {}", count, what, fmt::join(names, ", "));
}

}  // namespace kneepoint::calibrate
