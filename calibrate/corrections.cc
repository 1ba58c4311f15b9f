#include "calibrate/corrections.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace kneepoint::calibrate {

namespace {

using Eigen::Index;

// The priors: operator tables and data sheets are off by tens of percent inside a
// server (the recorded H100 servers needed 0.9 to 1.35), a step's bookkeeping by
// a millisecond or two, HTTP and tokenisation by some milliseconds.
constexpr std::array<CorrectionRow, kNumCorrections> kCorrections{
    CorrectionRow{"bandwidth", true, 0.3, 0.2, 5, "factor on a step's time without prefills"},
    CorrectionRow{"compute", true, 0.3, 0.2, 5, "factor on the time that prefill tokens add"},
    CorrectionRow{"step_cpu", false, 1e-3, -20e-3, 20e-3, "time between steps"},
    CorrectionRow{"request_cpu", false, 50e-6, -1e-3, 1e-3, "time between steps for each output of the step before"},
    CorrectionRow{"kv_blocks", true, 0.1, 0.3, 3, "factor on the number of KV blocks"},
    CorrectionRow{"front_end_in", false, 5e-3, -1, 1, "client to scheduler"},
    CorrectionRow{"front_end_out", false, 5e-3, -1, 1, "step's end to client"},
};

struct Part {
  std::string name;
  hw::Measured* value;
};

std::vector<Part> decode_parts(hw::MeasuredServer& server) {
  std::vector<Part> parts{{"base", &server.base_s},
                          {"context_token", &server.context_token_s},
                          {"sequence_beyond", &server.sequence_beyond_s}};
  for (hw::SequencePoint& point : server.sequences) {
    parts.push_back({fmt::format("sequences up to {}", point.count), &point.time_s});
  }
  return parts;
}

std::vector<Part> prefill_parts(hw::MeasuredServer& server) {
  return {{"prefill_token", &server.prefill_token_s}, {"attention_pair", &server.attention_pair_s}};
}

std::vector<std::pair<Index, hw::Measured*>> additive_parts(hw::MeasuredServer& server) {
  return {{kStepCpu, &server.gap_base_s},
          {kRequestCpu, &server.gap_per_output_s},
          {kFrontEndIn, &server.arrival_s},
          {kFrontEndOut, &server.output_s}};
}

}  // namespace

std::span<const CorrectionRow> corrections() {
  return kCorrections;
}

double correction_of(Index index, double theta) {
  const CorrectionRow& row = kCorrections[static_cast<std::size_t>(index)];
  return std::clamp(row.is_factor ? std::exp(row.prior_sd * theta) : row.prior_sd * theta, row.low, row.high);
}

double correction_slope(Index index, double theta) {
  const CorrectionRow& row = kCorrections[static_cast<std::size_t>(index)];
  return row.is_factor ? row.prior_sd * correction_of(index, theta) : row.prior_sd;
}

hw::MeasuredServer corrected(const hw::MeasuredServer& base, const Eigen::VectorXd& theta) {
  hw::MeasuredServer server = base;
  for (const Part& part : decode_parts(server)) part.value->value *= correction_of(kBandwidth, theta(kBandwidth));
  for (const Part& part : prefill_parts(server)) part.value->value *= correction_of(kCompute, theta(kCompute));
  for (const auto& [index, value] : additive_parts(server)) {
    value->value = std::max(value->value + correction_of(index, theta(index)), 0.0);
  }
  return server;
}

void set_errors(const Eigen::VectorXd& theta, const Eigen::MatrixXd& covariance, const std::string& source,
                hw::MeasuredServer& server) {
  const auto sd = [&](Index index) { return std::sqrt(std::max(covariance(index, index), 0.0)); };
  const auto scaled = [&](std::vector<Part> parts, Index index) {
    const double relative = correction_slope(index, theta(index)) * sd(index) / correction_of(index, theta(index));
    for (const Part& part : parts) {
      part.value->standard_error = part.value->value * relative;
      part.value->source = source;
    }
  };
  const std::vector<Part> decodes = decode_parts(server);
  const std::vector<Part> prefills = prefill_parts(server);
  scaled(decodes, kBandwidth);
  scaled(prefills, kCompute);
  for (const auto& [index, value] : additive_parts(server)) {
    value->standard_error = correction_slope(index, theta(index)) * sd(index);
    value->source = source;
  }
  // Numbers under one factor move together; those under the two as the factors do.
  server.correlations.clear();
  const double between = covariance(kBandwidth, kCompute) / std::max(sd(kBandwidth) * sd(kCompute), 1e-300);
  for (std::size_t i = 0; i < decodes.size(); ++i) {
    for (std::size_t j = i + 1; j < decodes.size(); ++j) {
      server.correlations.push_back({decodes[i].name, decodes[j].name, 1});
    }
    for (const Part& prefill : prefills) server.correlations.push_back({decodes[i].name, prefill.name, between});
  }
  server.correlations.push_back({prefills[0].name, prefills[1].name, 1});
}

}  // namespace kneepoint::calibrate
