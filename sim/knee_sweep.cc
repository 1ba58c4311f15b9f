#include "sim/knee_sweep.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "sim/warm_up.h"

namespace kneepoint::sim {
namespace {

constexpr std::int64_t kFewestOfClosedLoop = 50;

}  // namespace

Sweep::Sweep(KneeLab& lab, const SearchOptions& options, std::int64_t requests)
    : lab_(lab), options_(options), requests_(requests) {}

std::int64_t Sweep::requests_at(double load) const {
  return closed() ? std::max(options_.requests_a_slot * std::lround(load), kFewestOfClosedLoop) : requests_;
}

void Sweep::add(const std::vector<double>& loads) {
  std::vector<double> fresh;
  for (const double load : loads) {
    const bool known =
        std::any_of(columns_.begin(), columns_.end(), [&](const Column& c) { return c.load == load; });
    if (!known && std::find(fresh.begin(), fresh.end(), load) == fresh.end()) {
      fresh.push_back(load);
    }
  }
  if (fresh.empty()) {
    return;
  }
  lab_.prepare(requests_at(*std::max_element(fresh.begin(), fresh.end())));
  std::vector<RunOrder> orders;
  for (const double load : fresh) {
    for (std::size_t seed = 0; seed < lab_.seeds(); ++seed) {
      orders.push_back({load, seed, requests_at(load), std::nullopt});
    }
  }
  std::vector<RunLog> logs = lab_.run_all(orders);
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    Column column;
    column.load = fresh[i];
    column.requests = requests_at(fresh[i]);
    const auto first = logs.begin() + static_cast<std::ptrdiff_t>(i * lab_.seeds());
    column.logs.assign(std::make_move_iterator(first),
                       std::make_move_iterator(first + static_cast<std::ptrdiff_t>(lab_.seeds())));
    columns_.push_back(std::move(column));
  }
  std::sort(columns_.begin(), columns_.end(),
            [](const Column& a, const Column& b) { return a.load < b.load; });
  for (Column& column : columns_) {  // First all, as a cut may come from a neighbour.
    column.warm_up = detect_warm_up(column);
  }
  for (Column& column : columns_) {
    judge(column);
  }
  for (Column& column : columns_) {
    column.trend.keeps_up = column.trend.keeps_up && !outlasts(column.trend, lag_at_rest());
  }
}

// The start as all seeds share it: the mean of the i-th requests' TTFT.
std::size_t Sweep::detect_warm_up(const Column& column) const {
  std::size_t length = column.logs.front().lines.size();
  for (const RunLog& log : column.logs) {
    length = std::min(length, log.lines.size());
  }
  std::vector<double> series;
  for (std::size_t i = 0; i < length; ++i) {
    double sum = 0;
    double count = 0;
    for (const RunLog& log : column.logs) {
      if (log.lines[i].completed()) {
        sum += static_cast<double>(log.lines[i].ttft_ns);
        count += 1;
      }
    }
    if (count > 0) {
      series.push_back(sum / count);
    }
  }
  // In a closed loop the first of each client came all at one instant, which never happens again.
  const std::size_t burst = closed() ? static_cast<std::size_t>(std::lround(column.load)) : 0;
  return std::max(warm_up_length(series), burst);
}

void Sweep::judge(Column& column) const {
  column.trend = test_together(column.logs, column.warm_up, closed());
  column.margins.clear();
  for (const RunLog& log : column.logs) {
    if (options_.slo.any()) {
      column.margins.push_back(slo_margin({log, column.warm_up, 1, lab_.front_end_ns()}, options_.slo));
    }
  }
}

std::size_t Sweep::warm_up_at(double load) const {
  std::size_t cut = warm_up_;
  for (const Column& column : columns_) {
    cut = column.keeps_up() || closed() ? column.warm_up : cut;
    if (column.load >= load) {
      break;
    }
  }
  return closed() ? std::max(cut, static_cast<std::size_t>(std::lround(load))) : cut;
}

RunLog Sweep::run(double load, std::size_t seed, bool may_stop) {
  const std::int64_t requests = requests_at(load);
  return lab_.run({load, seed, requests, may_stop ? options_.slo.stop_rule(requests) : std::nullopt});
}

LogView Sweep::view(const RunLog& log, double slowdown) const {
  return {log, warm_up_at(log.load), slowdown, lab_.front_end_ns()};
}

TrendTest Sweep::trend_of(const RunLog& log) const {
  TrendTest test = test_together({&log, 1}, warm_up_at(log.load), closed());
  test.keeps_up = test.keeps_up && !outlasts(test, lag_at_rest());
  return test;
}

std::optional<double> Sweep::margin_of(const RunLog& log, double slowdown) const {
  return slo_margin(view(log, slowdown), options_.slo);
}

}  // namespace kneepoint::sim
