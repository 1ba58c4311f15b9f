#include "hw/server_costs.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include <array>
#include <cmath>
#include <string>

#include "hw/embedded_text.h"
#include "hw/server_costs.pb.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {

namespace {

using C = ServerCosts;
constexpr std::array<ParameterSpec<C>, 15> kParameters{{
    {"device_step", "us", &C::device_step_s, 0, 2000, 250, "starting a step and taking its tokens out"},
    {"device_sequence", "us", &C::device_sequence_s, 0, 50, 8, "a sequence's sampling and block table"},
    {"device_layer", "us", &C::device_layer_s, 0, 20, 2, "gaps between a layer's kernels"},
    {"unrecorded_step", "us", &C::unrecorded_step_s, 0, 5000, 800, "a step that no full CUDA graph covers"},
    {"mixed_attention", "1", &C::mixed_attention, 1, 3, 1,
     "decode attention beside a prefill, over it alone"},
    {"sustained_bf16", "1", &C::sustained_bf16, 0.5, 1, 0.7,
     "share of the bf16 peak that the power limit lets large products of real operands reach"},
    {"sustained_fp8", "1", &C::sustained_fp8, 0.4, 1, 0.57, "the same of the fp8 peak"},
    {"decode_attention_bf16", "1", &C::decode_attention_bf16, 1, 1.5, 1.08,
     "decode attention over bf16 KV, over the same of even contexts"},
    {"decode_attention_fp8", "1", &C::decode_attention_fp8, 1, 1.5, 1.3, "the same over fp8 KV"},
    {"host_step", "us", &C::host_step_s, 0, 5000, 1100, "scheduling a step and preparing its inputs"},
    {"host_sequence", "us", &C::host_sequence_s, 0, 200, 35, "the same for a sequence, and its output"},
    {"host_kernel", "us", &C::host_kernel_s, 0, 20, 4, "launching a kernel outside a CUDA graph"},
    {"arrival", "us", &C::arrival_s, 0, 20000, 2200, "from the client's send until the scheduler sees it"},
    {"output", "us", &C::output_s, 0, 20000, 2200, "from a step's end to its first token at the client"},
    {"output_per_request", "us", &C::output_per_request_s, 0, 200, 10, "each further token of the step"},
}};

constexpr const char* kLabel = "hw/server/costs.textproto";

double value_of(const pb::ServerCosts& costs, const ParameterSpec<C>& row) {
  for (const pb::ServerCost& cost : costs.cost()) {
    if (cost.name() != row.name) continue;
    const std::string where = fmt::format("{}: cost '{}'", kLabel, row.name);
    if (cost.unit() != row.unit)
      throw SpecError(fmt::format("{}: unit '{}', need '{}'", where, cost.unit(), row.unit));
    if (cost.source().empty()) throw SpecError(where + ": has no source; write where the number comes from");
    if (!(cost.value() >= row.lower && cost.value() <= row.upper)) {
      throw SpecError(fmt::format("{}: {} lies outside {} to {}", where, cost.value(), row.lower, row.upper));
    }
    return row.unit == "us" ? cost.value() * 1e-6 : cost.value();
  }
  throw SpecError(fmt::format("{}: cost '{}' is missing", kLabel, row.name));
}

}  // namespace

std::span<const ParameterSpec<ServerCosts>> server_cost_parameters() {
  return kParameters;
}

ServerCosts load_server_costs() {
  pb::ServerCosts costs;
  if (!google::protobuf::TextFormat::ParseFromString(std::string(bundled::server_costs().front().text),
                                                     &costs)) {
    throw SpecError(fmt::format("{}: not a text protobuf of ServerCosts", kLabel));
  }
  ServerCosts result;
  for (const ParameterSpec<C>& row : kParameters) result.*(row.member) = value_of(costs, row);
  return result;
}

}  // namespace kneepoint::hw
