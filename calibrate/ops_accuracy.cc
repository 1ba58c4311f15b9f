#include "calibrate/ops_accuracy.h"

#include <map>
#include <tuple>

#include "calibrate/ops_claims.h"

namespace kneepoint::calibrate {

namespace {

constexpr double kUsPerSecond = 1e6;

struct Seconds {
  const hw::FittedTimes& times;
  hw::CacheState cache;
  double operator()(const hw::GemmShape& s) const { return times.gemm(s, cache).seconds; }
  double operator()(const hw::DecodeAttentionShape& s) const {
    return times.decode_attention(s, cache).seconds;
  }
  double operator()(const hw::PrefillAttentionShape& s) const {
    return times.prefill_attention(s, cache).seconds;
  }
  double operator()(const hw::MoeShape& s) const { return times.moe(s, cache).seconds; }
  double operator()(const hw::CollectiveShape& s) const { return times.collective(s).seconds; }
  double operator()(const hw::ElementwiseShape& s) const { return times.elementwise(s).seconds; }
};

}  // namespace

double predicted_us(const hw::FittedTimes& times, const OperatorRow& row) {
  return std::visit(Seconds{times, row.cache}, row.shape) * kUsPerSecond;
}

std::vector<OpsAccuracy> ops_accuracy(const OpsTable& table, const hw::FittedTimes& times) {
  std::map<std::tuple<bool, std::string, std::string>, std::vector<double>> errors;
  std::string gpu;
  for (const OperatorRow& row : table) {
    gpu = row.gpu;
    const std::string reason(claim_of(row).reason);
    errors[{!reason.empty(), row.family, reason}].push_back(predicted_us(times, row) / row.us - 1);
  }
  std::vector<OpsAccuracy> result;
  for (const auto& [key, values] : errors) {
    result.push_back({gpu, std::get<1>(key), std::get<2>(key), summarise(values)});
  }
  return result;
}

}  // namespace kneepoint::calibrate
