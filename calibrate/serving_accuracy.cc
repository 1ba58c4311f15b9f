#include "calibrate/serving_accuracy.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace kneepoint::calibrate {
namespace {

constexpr double kLimitedShare = 0.1;
constexpr double kMeasuredKnee = 8;
constexpr double kMeasuredNone = 2.1;
constexpr double kPredictedKnee = 4;

struct GroupErrors {
  std::vector<double> tpot, ttft, ttft_kv_limited, p99_ttft, kv_blocks;
};

void add(std::optional<double> error, std::vector<double>& errors) {
  if (error) {
    errors.push_back(*error);
  }
}

void add_row(const CheckedRow& checked, GroupErrors& errors) {
  const ServingRow& row = checked.row;
  const ServingPrediction& predicted = *checked.predicted;
  add(relative_error(predicted.mean_tpot_ms, row.mean_tpot_ms), errors.tpot);
  add(relative_error(predicted.mean_ttft_ms, row.mean_ttft_ms),
      kv_limited(checked) ? errors.ttft_kv_limited : errors.ttft);
  add(relative_error(predicted.p99_ttft_ms, row.p99_ttft_ms), errors.p99_ttft);
  if (row.num_gpu_blocks) {
    add(relative_error(static_cast<double>(predicted.num_gpu_blocks), static_cast<double>(*row.num_gpu_blocks)),
        errors.kv_blocks);
  }
}

// Rows that differ in concurrency alone.
auto series_of(const ServingRow& row) {
  return std::tuple(row.group, row.setup.gpu, row.setup.tensor_parallel_size, row.setup.vllm_version,
                    row.setup.kv_cache_dtype, row.closed_loop->input_tokens, row.closed_loop->output_tokens,
                    row.setup.max_num_batched_tokens);
}

}  // namespace

std::optional<double> relative_error(std::optional<double> predicted, std::optional<double> measured) {
  if (!predicted || !measured || *measured == 0) {
    return std::nullopt;
  }
  return *predicted / *measured - 1;
}

bool kv_limited(const CheckedRow& row) { return row.predicted && row.predicted->kv_wait_share > kLimitedShare; }

std::vector<ServingGroup> summarise_groups(const std::vector<CheckedRow>& rows) {
  std::vector<std::string> names;
  std::map<std::string, GroupErrors> errors;
  for (const CheckedRow& row : rows) {
    if (!row.predicted) {
      continue;
    }
    if (!errors.contains(row.row.group)) {
      names.push_back(row.row.group);
    }
    add_row(row, errors[row.row.group]);
  }
  std::vector<ServingGroup> groups;
  for (const std::string& name : names) {
    const GroupErrors& of = errors[name];
    groups.push_back({name, summarise(of.tpot), summarise(of.ttft), summarise(of.ttft_kv_limited),
                      summarise(of.p99_ttft), summarise(of.kv_blocks)});
  }
  return groups;
}

KneeVerdict judge_knee(double measured_ratio, double predicted_ratio) {
  const bool predicted = predicted_ratio >= kPredictedKnee;
  if (measured_ratio >= kMeasuredKnee) {
    return predicted ? KneeVerdict::kRight : KneeVerdict::kWrong;
  }
  if (measured_ratio <= kMeasuredNone) {
    return predicted ? KneeVerdict::kWrong : KneeVerdict::kRight;
  }
  return KneeVerdict::kUngraded;
}

std::vector<Knee> find_knees(const std::vector<CheckedRow>& rows) {
  using Series = decltype(series_of(rows.front().row));
  std::map<Series, std::map<std::int64_t, const CheckedRow*>> series;
  for (const CheckedRow& row : rows) {
    if (row.row.closed_loop && row.predicted && row.row.mean_ttft_ms && row.predicted->mean_ttft_ms) {
      series[series_of(row.row)][row.row.closed_loop->concurrency] = &row;
    }
  }
  std::vector<Knee> knees;
  for (const auto& [key, by_concurrency] : series) {
    const CheckedRow* before = nullptr;
    for (const auto& [concurrency, row] : by_concurrency) {
      if (before != nullptr) {
        Knee knee{.name = row->row.name, .from = before->row.closed_loop->concurrency, .to = concurrency};
        knee.measured_ratio = *row->row.mean_ttft_ms / *before->row.mean_ttft_ms;
        knee.predicted_ratio = *row->predicted->mean_ttft_ms / *before->predicted->mean_ttft_ms;
        knee.verdict = judge_knee(knee.measured_ratio, knee.predicted_ratio);
        knees.push_back(knee);
      }
      before = row;
    }
  }
  return knees;
}

}  // namespace kneepoint::calibrate
