#include "sim/saturation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace kneepoint::sim {
namespace {

constexpr std::size_t kBlocks = 20;
constexpr std::size_t kFewestRequests = 2 * kBlocks;
constexpr double kGrowthThatMatters = 0.01;  // Of the arrivals,
constexpr double kLeastGrowth = 4;           // and so many requests a run.
constexpr double kWaitingThatMatters = 0.05;
constexpr double kLagThatMatters = 1.1;

// Mean of `values` over its standard error.
double t_of(const std::array<double, kBlocks>& values) {
  const auto n = static_cast<double>(kBlocks);
  double mean = 0;
  for (const double value : values) {
    mean += value / n;
  }
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  const double standard_error = std::sqrt(squares / (n - 1) / n);
  if (standard_error > 0) {
    return mean / standard_error;
  }
  return mean > 0 ? std::numeric_limits<double>::max() : 0;
}

std::size_t requests_sent(const RunLog& log) {
  std::size_t sent = log.lines.size();
  while (sent > 0 && log.lines[sent - 1].sent_ns == kNotKnown) {
    --sent;
  }
  return sent;
}

// How much longer the client took to send its requests than it meant to.
double lag_of(const RunLog& log) {
  std::int64_t last = 0;
  for (const RequestLine& line : log.lines) {
    last = std::max(last, line.sent_ns);
  }
  return static_cast<double>(last) / 1e9 * log.load / static_cast<double>(log.requests);
}

// Moments at which requests were completed, up to `until`, in order.
std::vector<std::int64_t> completions(const RunLog& log, std::int64_t from, std::int64_t until) {
  std::vector<std::int64_t> times;
  for (const RequestLine& line : log.lines) {
    const std::int64_t end = line.sent_ns + line.e2e_ns;
    if (line.completed() && from <= end && end <= until) {
      times.push_back(end);
    }
  }
  std::sort(times.begin(), times.end());
  return times;
}

TrendTest together_open(std::span<const RunLog> logs, std::size_t warm_up) {
  TrendTest test;
  std::array<double, kBlocks> growth{};
  double arrivals = 0;
  double completed = 0;
  double lag = 0;
  bool stopped = false;
  for (const RunLog& log : logs) {
    stopped = stopped || log.stopped;
    lag += lag_of(log) / static_cast<double>(logs.size());
    const std::size_t sent = requests_sent(log);
    if (sent < warm_up + kFewestRequests) {
      continue;
    }
    const std::size_t span = sent - warm_up - 1;
    const auto queue_at = [&](std::size_t edge) {
      return static_cast<double>(log.lines[warm_up + edge * span / kBlocks].waiting);
    };
    for (std::size_t j = 0; j < kBlocks; ++j) {
      growth[j] += queue_at(j + 1) - queue_at(j);
    }
    arrivals += static_cast<double>(span);
    completed +=
        static_cast<double>(completions(log, log.lines[warm_up].sent_ns, log.lines[sent - 1].sent_ns).size());
  }
  test.keeps_up = !stopped;
  if (arrivals == 0) {
    return test;
  }
  double grown = 0;
  for (const double one : growth) {
    grown += one;
  }
  test.t = t_of(growth);
  test.throughput_share = completed / arrivals;
  const bool matters =
      grown > std::max(kGrowthThatMatters * arrivals, kLeastGrowth * static_cast<double>(logs.size()));
  test.keeps_up = !stopped && !(matters && test.t > kTrendCriticalT);
  test.lag = lag;
  return test;
}

TrendTest together_closed(std::span<const RunLog> logs, std::size_t warm_up) {
  TrendTest test;
  double queued = 0;
  double in_server = 0;
  bool stopped = false;
  for (const RunLog& log : logs) {
    stopped = stopped || log.stopped;
    const auto steps = static_cast<double>(std::max<std::int64_t>(log.summary.steps, 1));
    const double step = static_cast<double>((log.summary.end - log.summary.first_send).count()) / steps;
    double own = 0;
    for (std::size_t i = warm_up; i < log.lines.size(); ++i) {
      const RequestLine& line = log.lines[i];
      if (line.completed() && line.queue_ns != kNotKnown) {
        own += static_cast<double>(line.queue_ns) - step;
        in_server += static_cast<double>(line.e2e_ns);
      }
    }
    queued += std::max(own, 0.0);
  }
  test.t = in_server > 0 ? queued / in_server : 0;
  test.keeps_up = !stopped && test.t <= kWaitingThatMatters;
  return test;
}

}  // namespace

TrendTest test_open_loop(const RunLog& log, std::size_t warm_up) {
  return together_open({&log, 1}, warm_up);
}

TrendTest test_closed_loop(const RunLog& log, std::size_t warm_up) {
  return together_closed({&log, 1}, warm_up);
}

TrendTest test_together(std::span<const RunLog> logs, std::size_t warm_up, bool closed) {
  return closed ? together_closed(logs, warm_up) : together_open(logs, warm_up);
}

bool outlasts(const TrendTest& test, double at_rest) {
  return test.lag > kLagThatMatters * at_rest;
}

std::optional<double> completion_rate(const RunLog& log) {
  const std::size_t sent = requests_sent(log);
  if (sent < kFewestRequests) {
    return std::nullopt;
  }
  std::vector<std::int64_t> sends;
  for (std::size_t i = 0; i < sent; ++i) {
    if (log.lines[i].sent_ns != kNotKnown) {
      sends.push_back(log.lines[i].sent_ns);
    }
  }
  std::sort(sends.begin(), sends.end());  // Later turns of sessions are sent when their time comes.
  const std::vector<std::int64_t> times = completions(log, sends[sends.size() / 2], sends.back());
  if (times.size() < 2 || times.back() == times.front()) {
    return std::nullopt;
  }
  // Those of the first instant began the clock and are not counted: a step may complete many.
  const auto after_first = std::upper_bound(times.begin(), times.end(), times.front());
  return static_cast<double>(times.end() - after_first) * 1e9 /
         static_cast<double>(times.back() - times.front());
}

}  // namespace kneepoint::sim
