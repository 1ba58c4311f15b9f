// The tool `traces`: makes, converts and looks at workloads.
#include <fmt/format.h>

#include <array>
#include <boost/assert.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "traces/closest_name.h"
#include "traces/one_line.h"
#include "traces/subcommands.h"
#include "traces/temporary_files.h"

namespace boost {

void assertion_failed_msg(char const* expr, char const* msg, char const* function, char const* file,
                          long line) {
  fmt::print(stderr, "traces: broken invariant: {} ({}) in {} ({}:{})\n", msg, expr, function, file, line);
  std::abort();
}

void assertion_failed(char const* expr, char const* function, char const* file, long line) {
  assertion_failed_msg(expr, "assertion", function, file, line);
}

}  // namespace boost

namespace kneepoint::traces {
namespace {

constexpr std::array kSubcommands{
    Subcommand{"convert", "other formats into ours, and back", &run_convert},
    Subcommand{"fit", "the process and the lengths that describe a trace", &run_fit},
    Subcommand{"generate", "a workload from distributions", &run_generate},
    Subcommand{"info", "what a trace holds", &run_info},
    Subcommand{"transform", "scaled, cut, thinned, repeated and mixed workloads", &run_transform},
    Subcommand{"verify", "whether a trace is whole", &run_verify},
};

void print_usage(std::FILE* out) {
  fmt::print(out, "traces SUBCOMMAND [options]; `traces SUBCOMMAND --help` says more\n\n");
  for (const Subcommand& subcommand : kSubcommands) {
    fmt::print(out, "  {:<10} {}\n", subcommand.name, subcommand.summary);
  }
}

int run(int argc, char** argv) {
  remove_temporaries_on_signals();
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") {
    print_usage(stdout);
    return 0;
  }
  if (name.empty()) {
    fmt::print(stderr, "traces: name a subcommand; `traces --help` lists them\n");
    return 2;
  }
  std::vector<std::string> names;
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.name == name) return subcommand.run(Arguments(argv + 2, argv + argc));
    names.emplace_back(subcommand.name);
  }
  fmt::print(stderr, "traces: unknown subcommand '{}'{}\n", name, did_you_mean(name, names));
  return 2;
}

}  // namespace
}  // namespace kneepoint::traces

int main(int argc, char** argv) {
  try {
    const int status = kneepoint::traces::run(argc, argv);
    if (std::fflush(stdout) != 0) throw std::runtime_error("standard output: cannot be written");
    return status;
  } catch (const std::exception& error) {
    fmt::print(stderr, "traces {}: {}\n", argc > 1 ? argv[1] : "",
               kneepoint::traces::one_line(error.what()));
    return 2;
  }
}
