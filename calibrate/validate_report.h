// What `calibrate validate` found out about one run, and its pictures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "calibrate/predict_run.h"

namespace kneepoint::calibrate {

struct ValidatedMetric {
  std::string name;
  double measured = 0;
  double predicted = 0;
  double low = 0, high = 0;  ///< The band: 5 % and 95 % of the drawn servers.
  [[nodiscard]] double error() const { return measured != 0 ? predicted / measured - 1 : 0; }
};

struct ValidatedRun {
  std::string name;
  std::vector<ValidatedMetric> metrics;
  std::vector<RequestTimes> measured;   ///< In the client's order.
  std::vector<RequestTimes> predicted;  ///< Completed ones, in that order.
};

/// Writes into `folder`, made if it is not there:
///
///     NAME.requests.csv       each request's times, measured and predicted
///     NAME.windows.csv        TTFT over the run: mean and largest of every 1/50 of it
///     NAME.distribution.csv   quantiles of TTFT and TPOT
///     NAME.gnuplot            draws NAME.svg from the latter two
///
/// Throws CalibrateError if it cannot.
void write_pictures(const ValidatedRun& run, const std::filesystem::path& folder);

}  // namespace kneepoint::calibrate
