// All seeds at a growing list of loads, and what their runs say.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/knee_lab.h"
#include "sim/knee_search.h"
#include "sim/saturation.h"

namespace kneepoint::sim {

/// All seeds at one load.
struct Column {
  double load = 0;
  std::int64_t requests = 0;
  std::size_t warm_up = 0;
  std::vector<RunLog> logs;                    ///< By seed.
  TrendTest trend;                             ///< Of all seeds together.
  std::vector<std::optional<double>> margins;  ///< By seed; empty without an SLO.

  [[nodiscard]] bool keeps_up() const { return trend.keeps_up; }
};

class Sweep {
 public:
  /// `options` must outlive it.
  Sweep(KneeLab& lab, const SearchOptions& options, std::int64_t requests);

  /// Runs all seeds at each of `loads` that it has not run yet.
  void add(const std::vector<double>& loads);
  [[nodiscard]] const std::vector<Column>& columns() const { return columns_; }

  /// One more run of a seed, at any load; not kept.
  [[nodiscard]] RunLog run(double load, std::size_t seed, bool may_stop);
  [[nodiscard]] TrendTest trend_of(const RunLog& log) const;
  /// Before  an SLO was asked for.
  [[nodiscard]] std::optional<double> margin_of(const RunLog& log, double slowdown = 1) const;
  [[nodiscard]] LogView view(const RunLog& log, double slowdown = 1) const;

  [[nodiscard]] bool closed() const { return lab_.axis() == LoadAxis::kConcurrency; }
  [[nodiscard]] std::int64_t requests_at(double load) const;
  /// The cut of the next column up that settles; without columns what set_warm_up() says.
  [[nodiscard]] std::size_t warm_up_at(double load) const;
  void set_warm_up(std::size_t requests) { warm_up_ = requests; }
  /// The client's lag at the lowest load; without columns what set_lag_at_rest() says.
  [[nodiscard]] double lag_at_rest() const { return columns_.empty() ? lag_at_rest_ : columns_.front().trend.lag; }
  void set_lag_at_rest(double lag) { lag_at_rest_ = lag; }

 private:
  void judge(Column& column) const;
  [[nodiscard]] std::size_t detect_warm_up(const Column& column) const;

  KneeLab& lab_;
  const SearchOptions& options_;
  std::int64_t requests_;
  std::size_t warm_up_ = 0;
  double lag_at_rest_ = 1;
  std::vector<Column> columns_;  // By load.
};

}  // namespace kneepoint::sim
