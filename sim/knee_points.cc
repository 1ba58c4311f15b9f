#include "sim/knee_points.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "sim/interval.h"
#include "sim/kneedle.h"

namespace kneepoint::sim {
namespace {

// A figure of each run that has it, as a mean over the runs.
class Runs {
 public:
  void add(double value) {
    if (std::isfinite(value)) {
      values_.push_back(value);
    }
  }
  [[nodiscard]] MaybeEstimate estimate() const {
    return values_.empty() ? std::nullopt : MaybeEstimate(mean_with_interval(values_));
  }
  [[nodiscard]] double mean() const { return values_.empty() ? 0 : mean_with_interval(values_).value; }

 private:
  std::vector<double> values_;
};

LatencyEstimates latencies(const Column& column, SloMetric metric) {
  Runs mean, p50, p95, p99;
  for (const RunLog& log : column.logs) {
    const std::vector<double> values = sorted_ms({log, column.warm_up, 1, 0}, metric);
    if (!values.empty()) {
      mean.add(mean_of(values));
      p50.add(percentile_of(values, 50));
      p95.add(percentile_of(values, 95));
      p99.add(percentile_of(values, 99));
    }
  }
  return {mean.estimate(), p50.estimate(), p95.estimate(), p99.estimate()};
}

KeepsUp keeps_up_of(const Column& column, bool closed) {
  KeepsUp result;
  for (const RunLog& log : column.logs) {
    result.runs_with_trend += test_together({&log, 1}, column.warm_up, closed).keeps_up ? 0 : 1;
  }
  result.trend_t = column.trend.t;
  result.throughput_share = column.trend.throughput_share;
  result.keeps_up = column.keeps_up();
  return result;
}

void fill_throughput(const Column& column, LoadPoint& point) {
  Runs requests, tokens, failed;
  for (const RunLog& log : column.logs) {
    double completed = 0;
    double output = 0;
    double over = 0;
    for (const RequestLine& line : log.lines) {
      over += line.over ? 1 : 0;
      completed += line.completed() ? 1 : 0;
      output += line.completed() ? line.output_tokens : 0;
    }
    const double seconds = to_seconds(log.summary.end - log.summary.first_send);
    if (seconds > 0 && over > 0) {
      requests.add(completed / seconds);
      tokens.add(output / seconds);
      failed.add(1 - completed / over);
    }
  }
  point.requests_per_s = requests.estimate().value_or(Estimate{});
  point.output_tokens_per_s = tokens.estimate().value_or(Estimate{});
  point.failed_share = failed.mean();
}

void fill_server(const Column& column, LoadPoint& point) {
  Runs running, waiting, peak_waiting, kv, peak_kv, preemptions, busy, tokens_a_step, steps_per_s;
  Runs decodes, prompts, prompt_tokens;
  for (const RunLog& log : column.logs) {
    const RunSummary& s = log.summary;
    const double seconds = to_seconds(s.end - s.first_send);
    running.add(s.mean_running);
    waiting.add(s.mean_waiting);
    peak_waiting.add(static_cast<double>(s.peak_waiting));
    kv.add(log.steps.kv_usage);
    decodes.add(log.steps.decodes);
    prompts.add(log.steps.prompts);
    prompt_tokens.add(log.steps.prompt_tokens);
    peak_kv.add(s.num_blocks > 1
                    ? static_cast<double>(s.peak_used_blocks) / static_cast<double>(s.num_blocks - 1)
                    : 0);
    preemptions.add(static_cast<double>(s.preemptions) / static_cast<double>(log.requests));
    if (seconds > 0 && s.steps > 0) {
      busy.add(std::min(1.0, to_seconds(s.device_busy) / seconds));
      tokens_a_step.add(static_cast<double>(s.scheduled_tokens) / static_cast<double>(s.steps));
      steps_per_s.add(static_cast<double>(s.steps) / seconds);
    }
  }
  point.mean_running = running.mean();
  point.mean_waiting = waiting.mean();
  point.peak_waiting = peak_waiting.mean();
  point.mean_kv_usage = kv.mean();
  point.peak_kv_usage = peak_kv.mean();
  point.preemptions_a_request = preemptions.mean();
  point.device_busy_share = busy.mean();
  point.tokens_a_step = tokens_a_step.mean();
  point.steps_per_s = steps_per_s.mean();
  point.decodes_a_step = decodes.mean();
  point.prompts_a_step = prompts.mean();
  point.prompt_tokens_a_step = prompt_tokens.mean();
}

void fill_waits(const Column& column, LoadPoint& point) {
  std::map<std::string, double> ms;
  double all = 0;
  double requests = 0;
  for (const RunLog& log : column.logs) {
    requests += static_cast<double>(log.requests);
    for (const WaitCause& cause : log.summary.wait_causes) {
      ms[cause.cause] += to_ms(cause.time);
      all += to_ms(cause.time);
    }
  }
  for (const auto& [cause, time] : ms) {
    point.waits.push_back({cause, time / all, time / requests});
  }
  std::stable_sort(point.waits.begin(), point.waits.end(),
                   [](const WaitShare& a, const WaitShare& b) { return a.share > b.share; });
}

bool meets(const Column& column) {
  double sum = 0;
  for (const std::optional<double>& margin : column.margins) {
    if (!margin) {
      return false;
    }
    sum += *margin;
  }
  return !column.margins.empty() && sum <= 0;
}

// Percent of p99 TTFT for one percent of step time. The run at s x in slow motion is
// the run at x of a server s times as slow, its front end as fast as ever, so with
// f the front end's part of the p99
//
//     d ln p99 / d ln s = 1 - f / p99 + d ln p99 / d ln x
//
// and the slope over load is read off the same seed's other loads. In a closed loop
// load is no rate: nothing but the first two terms.
void fill_elasticity(const KneeLab& lab, const Sweep& sweep, std::vector<LoadPoint>& points) {
  const std::vector<Column>& columns = sweep.columns();
  std::vector<Runs> found(columns.size());
  for (std::size_t seed = 0; seed < lab.seeds(); ++seed) {
    std::vector<CurvePoint> curve;
    std::vector<std::size_t> place;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::vector<double> ttft =
          sorted_ms({columns[i].logs[seed], columns[i].warm_up, 1, 0}, SloMetric::kTtft);
      const double p99 = ttft.empty() ? 0 : percentile_of(ttft, 99);
      if (p99 > 0 && std::isfinite(p99) && (sweep.closed() || !points[i].beyond_saturation)) {
        curve.push_back({std::log(columns[i].load), std::log(p99)});
        place.push_back(i);
      }
    }
    const std::vector<double> slopes =
        curve.size() > 1 && !sweep.closed() ? monotone_slopes(curve) : std::vector<double>(curve.size(), 0.0);
    for (std::size_t k = 0; k < place.size(); ++k) {
      const double front_end = static_cast<double>(lab.front_end_ns()) / 1e6 / std::exp(curve[k].y);
      found[place[k]].add(1 - front_end + slopes[k]);
    }
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    points[i].elasticity = found[i].estimate();
  }
}

}  // namespace

std::vector<LoadPoint> make_points(const KneeLab& lab, const Sweep& sweep, const SearchOptions& options,
                                   const Knee& saturation) {
  std::vector<LoadPoint> points;
  for (const Column& column : sweep.columns()) {
    LoadPoint point;
    point.load = column.load;
    point.runs = static_cast<int>(column.logs.size());
    point.requests_a_run = column.requests;
    point.warm_up_requests = static_cast<std::int64_t>(column.warm_up);
    point.stopped_early = static_cast<int>(
        std::count_if(column.logs.begin(), column.logs.end(), [](const RunLog& log) { return log.stopped; }));
    point.keeps_up = keeps_up_of(column, sweep.closed());
    point.beyond_saturation = !column.keeps_up() || (saturation.found() && column.load > saturation.load);
    point.meets_slo = meets(column) && (sweep.closed() || !point.beyond_saturation);
    point.ttft = latencies(column, SloMetric::kTtft);
    point.tpot = latencies(column, SloMetric::kTpot);
    point.e2el = latencies(column, SloMetric::kE2el);
    if (options.slo.good.any()) {
      Runs good;
      for (const RunLog& log : column.logs) {
        good.add(good_share({log, column.warm_up, 1, 0}, options.slo.good));
      }
      point.good_share = good.estimate();
    }
    fill_throughput(column, point);
    fill_server(column, point);
    fill_waits(column, point);
    points.push_back(std::move(point));
  }
  fill_elasticity(lab, sweep, points);
  return points;
}

}  // namespace kneepoint::sim
