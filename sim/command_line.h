// Parsing a subcommand's own arguments with CLI11: wrong use is one line.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/output_files.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {

/// Parses `arguments`; false if --help was asked for and given. Throws UsageError opening with `command` for wrong
/// use, which `help` says where to look up.
[[nodiscard]] inline bool parse_arguments(CLI::App& app, std::string_view command, std::span<const std::string> arguments,
                                          std::string_view help = "--help") {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // As CLI11 takes them.
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}: {}; {} says more", command, error.what(), help));
  }
  return true;
}

}  // namespace kneepoint::sim
