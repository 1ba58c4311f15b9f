// The tool `calibrate`: measures a GPU, fits the rates hw/ uses, learns from a
// real server's run, and checks both.
#include <fmt/format.h>

#include <array>
#include <boost/assert.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "calibrate/subcommands.h"
#include "traces/one_line.h"
#include "traces/temporary_files.h"

namespace boost {

void assertion_failed_msg(char const* expr, char const* msg, char const* function, char const* file,
                          long line) {
  fmt::print(stderr, "calibrate: broken invariant: {}\n  {} in {} ({}:{})\n", msg, expr, function, file,
             line);
  std::abort();
}

void assertion_failed(char const* expr, char const* function, char const* file, long line) {
  assertion_failed_msg(expr, "assertion", function, file, line);
}

}  // namespace boost

namespace kneepoint::calibrate {
namespace {

constexpr std::array kSubcommands{
    Subcommand{"check-ops", "how well rates predict measured operators", &run_check_ops},
    Subcommand{"check-rates", "refits the bundled rates from measured operators and compares", &run_check_rates},
    Subcommand{"check-serving", "how well measured servers are predicted, with their own clients", &run_check_serving},
    Subcommand{"check-steps", "whether a server's logged steps follow from our rules, step for step",
               &run_check_steps},
    Subcommand{"fit-ops", "a GPU's rates from measured operators", &run_fit_ops},
    Subcommand{"fit-run", "corrects a time model by what clients of a real server measured", &run_fit_run},
    Subcommand{"fit-steps", "a measured server from the step logs of real runs", &run_fit_steps},
    Subcommand{"read-log", "what a vLLM server's log says, as a run configuration", &run_read_log},
    Subcommand{"validate", "predicts runs that were not fitted, and says how wrong", &run_validate},
};

void print_usage(std::FILE* out) {
  fmt::print(out, "calibrate SUBCOMMAND [options]; `calibrate SUBCOMMAND --help` says more\n\n");
  for (const Subcommand& subcommand : kSubcommands) {
    fmt::print(out, "  {:<14} {}\n", subcommand.name, subcommand.summary);
  }
}

int run(int argc, char** argv) {
  traces::remove_temporaries_on_signals();
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "--help" || name == "-h" || name == "help") {
    print_usage(name.empty() ? stderr : stdout);
    return name.empty() ? 2 : 0;
  }
  for (const Subcommand& subcommand : kSubcommands) {
    if (subcommand.name == name) return subcommand.run(Arguments(argv + 2, argv + argc));
  }
  fmt::print(stderr, "calibrate: unknown subcommand '{}'\n\n", name);
  print_usage(stderr);
  return 2;
}

}  // namespace
}  // namespace kneepoint::calibrate

int main(int argc, char** argv) {
  try {
    const int status = kneepoint::calibrate::run(argc, argv);
    if (std::fflush(stdout) != 0) throw std::runtime_error("standard output: cannot be written");
    return status;
  } catch (const std::exception& error) {
    fmt::print(stderr, "calibrate: {}\n", kneepoint::traces::one_line(error.what()));
    return 2;
  }
}
