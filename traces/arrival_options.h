// The options that say when requests come, for every subcommand that makes times.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "traces/arrivals.h"

namespace kneepoint::traces {

struct ArrivalArguments {
  ArrivalOptions options;
  std::string states, diurnal, ramp;
  std::vector<std::string> spikes;
};

void add_arrival_options(CLI::App& app, ArrivalArguments& arguments);

/// The options with their texts understood. Throws TraceError.
[[nodiscard]] ArrivalOptions arrival_options(const ArrivalArguments& arguments);

/// "a:b:c" as numbers, exactly `count` of them. Throws TraceError naming `option`.
[[nodiscard]] std::vector<double> numbers_of(const std::string& option, std::string_view text,
                                             std::size_t count);

}  // namespace kneepoint::traces
