#include "hw/memory_terms.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include <array>
#include <string>

#include "hw/embedded_text.h"
#include "hw/server_costs.pb.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

using T = MemoryTerms;
constexpr std::array<ParameterSpec<T>, 6> kParameters{{
    {"hidden_copies", "1", &T::hidden_copies, 2, 14, 4,
     "residual, normed input, output and what compiled pieces pin"},
    {"intermediate_copies", "1", &T::intermediate_copies, 2, 4, 3, "gate, up and their product"},
    {"sampler_bytes_per_logit", "byte", &T::sampler_bytes_per_logit, 6, 64, 50, "of the trial sampler run"},
    {"context", "GiB", &T::context_bytes, 0.05, 0.6, 0.2, "CUDA context, kernel code, workspaces"},
    {"peers", "GiB", &T::peers_bytes, 0.1, 2, 0.4, "NCCL and all-reduce buffers of a rank with peers"},
    {"graph_layer", "MiB", &T::graph_layer_bytes, 0.02, 0.6, 0.17, "one layer in one CUDA graph"},
}};

constexpr const char* kLabel = "hw/server/memory.textproto";

double in_base_units(std::string_view unit) {
  return unit == "GiB" ? 1073741824.0 : unit == "MiB" ? 1048576.0 : 1.0;
}

double value_of(const pb::ServerCosts& terms, const ParameterSpec<T>& row) {
  for (const pb::ServerCost& term : terms.cost()) {
    if (term.name() != row.name) {
      continue;
    }
    const std::string where = fmt::format("{}: '{}'", kLabel, row.name);
    if (term.unit() != row.unit) {
      throw SpecError(fmt::format("{}: unit '{}', need '{}'", where, term.unit(), row.unit));
    }
    if (term.source().empty()) {
      throw SpecError(where + ": has no source; write where the number comes from");
    }
    if (!(term.value() >= row.lower && term.value() <= row.upper)) {
      throw SpecError(fmt::format("{}: {} lies outside {} to {}", where, term.value(), row.lower, row.upper));
    }
    return term.value() * in_base_units(row.unit);
  }
  throw SpecError(fmt::format("{}: '{}' is missing", kLabel, row.name));
}

}  // namespace

std::span<const ParameterSpec<MemoryTerms>> memory_term_parameters() {
  return kParameters;
}

MemoryTerms load_memory_terms() {
  pb::ServerCosts proto;
  if (!google::protobuf::TextFormat::ParseFromString(std::string(bundled::memory_terms().front().text),
                                                     &proto)) {
    throw SpecError(fmt::format("{}: not a text protobuf of ServerCosts", kLabel));
  }
  MemoryTerms terms;
  for (const ParameterSpec<T>& row : kParameters) {
    terms.*(row.member) = value_of(proto, row);
  }
  return terms;
}

}  // namespace kneepoint::hw
