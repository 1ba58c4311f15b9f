#include "calibrate/ops_accuracy.h"

#include <map>
#include <tuple>

#include "calibrate/ops_claims.h"

namespace kneepoint::calibrate {

namespace {

constexpr double kUsPerSecond = 1e6;

struct Seconds {
  const hw::FittedTimes& times;
  static constexpr auto kWarm = hw::CacheState::kWarm;
  double operator()(const hw::GemmShape& s) const { return times.gemm(s, kWarm).seconds; }
  double operator()(const hw::DecodeAttentionShape& s) const {
    return times.decode_attention(s, kWarm).seconds;
  }
  double operator()(const hw::PrefillAttentionShape& s) const {
    return times.prefill_attention(s, kWarm).seconds;
  }
  double operator()(const hw::MoeShape& s) const { return times.moe(s, kWarm).seconds; }
  double operator()(const hw::CollectiveShape& s) const { return times.collective(s).seconds; }
};

}  // namespace

double predicted_us(const hw::FittedTimes& times, const OperatorShape& shape) {
  return std::visit(Seconds{times}, shape) * kUsPerSecond;
}

std::vector<OpsAccuracy> ops_accuracy(const OpsTable& table, const hw::FittedTimes& times) {
  std::map<std::tuple<bool, std::string, std::string>, std::vector<double>> errors;
  std::string gpu;
  for (const OperatorRow& row : table) {
    gpu = row.gpu;
    const std::string reason(claim_of(row).reason);
    errors[{!reason.empty(), row.family, reason}].push_back(predicted_us(times, row.shape) / row.us - 1);
  }
  std::vector<OpsAccuracy> result;
  for (const auto& [key, values] : errors) {
    result.push_back({gpu, std::get<1>(key), std::get<2>(key), summarise(values)});
  }
  return result;
}

}  // namespace kneepoint::calibrate
