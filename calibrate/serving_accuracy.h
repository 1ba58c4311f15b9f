// Predictions of measured servers beside what was measured: errors row by row, by
// group, and whether knees are where they were.
//
// A knee is a jump of the mean TTFT from one concurrency to the next one that was
// measured, all else equal. A measured ratio of 8 or more is a knee, one of 2.1 or
// less is none, and those between are neither; a prediction calls it a knee from 4 on.
// So a knee can be blunt, but must not be at another concurrency.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/error_summary.h"
#include "calibrate/predict_serving.h"
#include "calibrate/serving_rows.h"

namespace kneepoint::calibrate {

struct CheckedRow {
  ServingRow row;
  std::optional<ServingPrediction> predicted;  ///< Nothing: row.not_run says why.
};

/// predicted / measured - 1, where both are there.
[[nodiscard]] std::optional<double> relative_error(std::optional<double> predicted, std::optional<double> measured);

/// Rows whose requests waited for KV blocks for more than a tenth of their TTFT: there an error in the
/// number of blocks is amplified.
[[nodiscard]] bool kv_limited(const CheckedRow& row);

struct ServingGroup {
  std::string name;
  ErrorSummary tpot;
  ErrorSummary ttft;             ///< Of rows that are not KV-limited.
  ErrorSummary ttft_kv_limited;
  ErrorSummary p99_ttft;
  ErrorSummary kv_blocks;
};

/// In order of first appearance; rows that were not run are left out.
[[nodiscard]] std::vector<ServingGroup> summarise_groups(const std::vector<CheckedRow>& rows);

enum class KneeVerdict { kRight, kWrong, kUngraded };

struct Knee {
  std::string name;  ///< Of the row with the larger concurrency.
  std::int64_t from = 0;
  std::int64_t to = 0;
  double measured_ratio = 0;
  double predicted_ratio = 0;
  KneeVerdict verdict = KneeVerdict::kUngraded;
};

[[nodiscard]] KneeVerdict judge_knee(double measured_ratio, double predicted_ratio);

/// Every step from one measured concurrency to the next, closed loops only.
[[nodiscard]] std::vector<Knee> find_knees(const std::vector<CheckedRow>& rows);

[[nodiscard]] std::string serving_table(const std::vector<CheckedRow>& rows, int seeds);
[[nodiscard]] std::string serving_json(const std::vector<CheckedRow>& rows, int seeds);

}  // namespace kneepoint::calibrate
