// What `calibrate check-serving` prints (serving_accuracy.h).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "calibrate/serving_accuracy.h"

namespace kneepoint::calibrate {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kPercent = 100;

std::string milliseconds(std::optional<double> ms) { return ms ? fmt::format("{:.1f}", *ms) : "-"; }

std::string percent(std::optional<double> error) {
  return error ? fmt::format("{:+.1f}", kPercent * *error) : "-";
}

std::size_t name_width(const std::vector<CheckedRow>& rows) {
  std::size_t width = 10;
  for (const CheckedRow& row : rows) {
    width = std::max(width, row.row.name.size());
  }
  return width;
}

bool was_run(const CheckedRow& row) { return row.predicted && !row.row.num_gpu_blocks; }

std::string latency_rows(const std::vector<CheckedRow>& rows) {
  if (std::none_of(rows.begin(), rows.end(), &was_run)) {
    return "";
  }
  const std::size_t width = name_width(rows);
  std::string text =
      fmt::format("{:<{}} {:>33} {:>25} {:>27}\n{:<{}} {:>10} {:>10} {:>6}  {:>9} {:>9} {:>6}   {:>9} {:>9} {:>6}\n", "",
                  width, "mean TTFT, ms", "mean TPOT, ms", "p99 TTFT, ms", "server and load", width, "measured",
                  "predicted", "%", "measured", "predicted", "%", "measured", "predicted", "%");
  for (const CheckedRow& checked : rows) {
    if (!was_run(checked)) {
      continue;
    }
    const ServingRow& row = checked.row;
    const ServingPrediction& p = *checked.predicted;
    const auto error = [](std::optional<double> predicted, std::optional<double> measured) {
      return percent(relative_error(predicted, measured));
    };
    text += fmt::format("{:<{}} {:>10} {:>10} {:>6}  {:>9} {:>9} {:>6}   {:>9} {:>9} {:>6}{}\n", row.name, width,
                        milliseconds(row.mean_ttft_ms), milliseconds(p.mean_ttft_ms),
                        error(p.mean_ttft_ms, row.mean_ttft_ms), milliseconds(row.mean_tpot_ms),
                        milliseconds(p.mean_tpot_ms), error(p.mean_tpot_ms, row.mean_tpot_ms),
                        milliseconds(row.p99_ttft_ms), row.p99_ttft_ms ? milliseconds(p.p99_ttft_ms) : "-",
                        error(p.p99_ttft_ms, row.p99_ttft_ms), kv_limited(checked) ? "  KV-limited" : "");
  }
  return text + "\n";
}

std::string block_rows(const std::vector<CheckedRow>& rows) {
  std::string text;
  for (const CheckedRow& checked : rows) {
    if (!checked.predicted || !checked.row.num_gpu_blocks) {
      continue;
    }
    const auto measured = static_cast<double>(*checked.row.num_gpu_blocks);
    const auto predicted = static_cast<double>(checked.predicted->num_gpu_blocks);
    text += fmt::format("{:<{}} {:>10} {:>10} {:>6}\n", checked.row.name, name_width(rows), *checked.row.num_gpu_blocks,
                        checked.predicted->num_gpu_blocks, percent(relative_error(predicted, measured)));
  }
  return text.empty() ? "" : fmt::format("{:<{}} {:>10} {:>10} {:>6}\n{}\n", "KV blocks", name_width(rows), "measured", "predicted", "%", text);
}

std::string group_rows(const std::vector<CheckedRow>& rows) {
  std::string text = fmt::format("{:<44} {:<18} {:>4} {:>8} {:>8} {:>8} {:>8}\n", "|error|, %", "", "rows", "median",
                                 "p90", "worst", "bias");
  for (const ServingGroup& group : summarise_groups(rows)) {
    const std::pair<const char*, const ErrorSummary*> lines[] = {{"TPOT", &group.tpot},
                                                                 {"TTFT", &group.ttft},
                                                                 {"TTFT, KV-limited", &group.ttft_kv_limited},
                                                                 {"p99 TTFT", &group.p99_ttft},
                                                                 {"KV blocks", &group.kv_blocks}};
    std::string name = group.name;
    for (const auto& [what, errors] : lines) {
      if (errors->count > 0) {
        text += fmt::format("{:<44} {:<18} {:>4} {:>8.1f} {:>8.1f} {:>8.1f} {:>+8.1f}\n", name, what, errors->count,
                            kPercent * errors->median, kPercent * errors->p90, kPercent * errors->worst,
                            kPercent * errors->bias);
        name.clear();
      }
    }
  }
  return text + "\n";
}

std::string_view verdict_name(KneeVerdict verdict) {
  return verdict == KneeVerdict::kRight ? "right" : verdict == KneeVerdict::kWrong ? "wrong" : "not graded";
}

std::string knee_rows(const std::vector<CheckedRow>& rows) {
  const std::vector<Knee> knees = find_knees(rows);
  if (knees.empty()) {
    return "";
  }
  const auto count = [&](KneeVerdict verdict) {
    return std::count_if(knees.begin(), knees.end(), [&](const Knee& knee) { return knee.verdict == verdict; });
  };
  std::string text = fmt::format(
      "knees: {} steps from one concurrency to the next; {} right, {} wrong, {} between a ratio of 2.1 and 8\n",
      knees.size(), count(KneeVerdict::kRight), count(KneeVerdict::kWrong), count(KneeVerdict::kUngraded));
  for (const Knee& knee : knees) {
    if (knee.measured_ratio > 2.1 || knee.verdict == KneeVerdict::kWrong) {
      text += fmt::format("  {:<60} from x{:<4} TTFT x {:.1f}, predicted x {:.1f}: {}\n", knee.name, knee.from,
                          knee.measured_ratio, knee.predicted_ratio, verdict_name(knee.verdict));
    }
  }
  return text + "\n";
}

std::string rows_not_run(const std::vector<CheckedRow>& rows) {
  std::string text;
  std::int64_t count = 0;
  for (const CheckedRow& checked : rows) {
    if (checked.predicted) {
      continue;
    }
    ++count;
    const ServingRow& row = checked.row;
    text += fmt::format("  {}{}: {}: {}\n", row.file.string(), row.line > 0 ? fmt::format(":{}", row.line) : "",
                        row.name, row.not_run);
  }
  return count == 0 ? "" : fmt::format("{} of {} rows not predicted\n{}", count, rows.size(), text);
}

Json error_json(const ErrorSummary& errors) {
  return errors.count == 0 ? Json()
                           : Json{{"rows", errors.count},
                                  {"median", errors.median},
                                  {"p90", errors.p90},
                                  {"worst", errors.worst},
                                  {"bias", errors.bias}};
}

Json value_json(std::optional<double> value) { return value ? Json(*value) : Json(); }

Json row_json(const CheckedRow& checked) {
  const ServingRow& row = checked.row;
  Json json{{"file", row.file.string()}, {"line", row.line}, {"name", row.name}, {"group", row.group}};
  if (!checked.predicted) {
    json["not_predicted"] = row.not_run;
    return json;
  }
  const ServingPrediction& p = *checked.predicted;
  if (row.num_gpu_blocks) {
    json["num_gpu_blocks"] = {{"measured", *row.num_gpu_blocks}, {"predicted", p.num_gpu_blocks}};
    return json;
  }
  const auto pair = [](std::optional<double> measured, std::optional<double> predicted) {
    return Json{{"measured", value_json(measured)},
                {"predicted", value_json(predicted)},
                {"error", value_json(relative_error(predicted, measured))}};
  };
  json["mean_ttft_ms"] = pair(row.mean_ttft_ms, p.mean_ttft_ms);
  json["mean_tpot_ms"] = pair(row.mean_tpot_ms, p.mean_tpot_ms);
  json["p99_ttft_ms"] = pair(row.p99_ttft_ms, p.p99_ttft_ms);
  json["kv_limited"] = kv_limited(checked);
  json["num_gpu_blocks"] = {{"predicted", p.num_gpu_blocks}};
  json["notices"] = p.notices;
  return json;
}

}  // namespace

std::string serving_table(const std::vector<CheckedRow>& rows, int seeds) {
  std::set<std::string> notices;
  for (const CheckedRow& checked : rows) {
    if (checked.predicted) {
      notices.insert(checked.predicted->notices.begin(), checked.predicted->notices.end());
    }
  }
  std::string text = latency_rows(rows) + block_rows(rows) + group_rows(rows) + knee_rows(rows) + rows_not_run(rows);
  text += fmt::format("predictions are means over {} seeds of the client's random numbers\n", seeds);
  for (const std::string& notice : notices) {
    text += notice + "\n";
  }
  return text;
}

std::string serving_json(const std::vector<CheckedRow>& rows, int seeds) {
  Json json;
  json["seeds"] = seeds;
  json["rows"] = Json::array();
  for (const CheckedRow& row : rows) {
    json["rows"].push_back(row_json(row));
  }
  json["groups"] = Json::array();
  for (const ServingGroup& group : summarise_groups(rows)) {
    json["groups"].push_back({{"name", group.name},
                              {"mean_tpot", error_json(group.tpot)},
                              {"mean_ttft", error_json(group.ttft)},
                              {"mean_ttft_kv_limited", error_json(group.ttft_kv_limited)},
                              {"p99_ttft", error_json(group.p99_ttft)},
                              {"num_gpu_blocks", error_json(group.kv_blocks)}});
  }
  json["knees"] = Json::array();
  for (const Knee& knee : find_knees(rows)) {
    json["knees"].push_back({{"name", knee.name},
                             {"from_concurrency", knee.from},
                             {"to_concurrency", knee.to},
                             {"measured_ttft_ratio", knee.measured_ratio},
                             {"predicted_ttft_ratio", knee.predicted_ratio},
                             {"verdict", verdict_name(knee.verdict)}});
  }
  return json.dump(2) + "\n";
}

}  // namespace kneepoint::calibrate
