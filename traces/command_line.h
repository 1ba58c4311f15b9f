// Parsing a subcommand's own arguments with CLI11: wrong use is one line.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "traces/subcommands.h"

namespace kneepoint::traces {

/// Parses `arguments`. 0 if the subcommand is done already (--help); throws
/// TraceError, naming the nearest known option, for wrong use.
[[nodiscard]] std::optional<int> parse_arguments(CLI::App& app, const Arguments& arguments);

/// The options that were given, as they would be typed, in the order of --help;
/// positionals and folders left out, so that a trace does not depend on where it lies.
[[nodiscard]] std::string given_options(const CLI::App& app);

}  // namespace kneepoint::traces
