// Parsing a subcommand's own arguments with CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "calibrate/subcommands.h"

namespace kneepoint::calibrate {

/// Parses `arguments`; an exit status if the subcommand is done already (--help: 0, wrong use: 2).
[[nodiscard]] inline std::optional<int> parse_arguments(CLI::App& app, const Arguments& arguments) {
  Arguments reversed = arguments;  // CLI11 takes a vector last argument first.
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace kneepoint::calibrate
