// The tool `simulate`.
#include <fmt/format.h>

#include <array>
#include <boost/assert.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "sim/capacity_command.h"
#include "sim/compare_command.h"
#include "sim/crash_context.h"
#include "sim/explain_command.h"
#include "sim/knee_command.h"
#include "sim/matrix_command.h"
#include "sim/output_files.h"
#include "sim/reproduce.h"
#include "sim/run_command.h"
#include "sim/study_cluster.h"
#include "sim/study_command.h"
#include "sim/usage_error.h"
#include "sim/verify_folder.h"
#include "traces/one_line.h"

namespace {

// For the handler below, which is handed no argument of ours.
int num_arguments = 0;
char** arguments_given = nullptr;

// The command line with every argument in quotes, fit to be pasted into a shell.
std::string quoted_command() {
  std::string text = "simulate";
  for (int i = 1; i < num_arguments; ++i) {
    text += " '";
    for (const char* c = arguments_given[i]; *c != '\0'; ++c) {
      text += *c == '\'' ? std::string("'\\''") : std::string(1, *c);
    }
    text += '\'';
  }
  return text;
}

}  // namespace

namespace boost {

void assertion_failed_msg(char const* expr, char const* msg, char const* function, char const* file, long line) {
  fmt::print(stderr, "simulate: broken invariant: {}\n  {} in {} ({}:{})\n  {}\n  again with: {}\n", msg, expr, function,
             file, line, kneepoint::sim::CrashContext::describe(), quoted_command());
  std::abort();
}

void assertion_failed(char const* expr, char const* function, char const* file, long line) {
  assertion_failed_msg(expr, "assertion", function, file, line);
}

}  // namespace boost

namespace kneepoint::sim {
namespace {

/// A word after `simulate` that does something else than run.
struct Subcommand {
  std::string_view name;
  int (*run)(std::span<const std::string> arguments);
};

int run_study_here(std::span<const std::string> arguments) { return run_study(arguments, &make_cluster); }

constexpr std::array kSubcommands{
    Subcommand{"capacity", &run_capacity},
    Subcommand{"compare", &run_compare},
    Subcommand{"explain", &run_explain},
    Subcommand{"knee", &run_knee},
    Subcommand{"matrix", &run_matrix_command},
    Subcommand{"study", &run_study_here},
    Subcommand{"verify", &run_verify},
};

int run(int argc, char** argv) {
  guard_process();
  num_arguments = argc;
  arguments_given = argv;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const Subcommand& subcommand : kSubcommands) {
    if (!arguments.empty() && arguments.front() == subcommand.name) {
      return subcommand.run(std::span(arguments).subspan(1));
    }
  }
  return asks_to_reproduce(arguments) ? run_reproduce(arguments) : run_simulation(arguments);
}

}  // namespace
}  // namespace kneepoint::sim

int main(int argc, char** argv) {
  try {
    return kneepoint::sim::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulate: {}\n", kneepoint::traces::one_line(error.what()));
    return 2;
  }
}
