// The subcommands of the tool `calibrate`. The table is the registration: a new
// one is a row in calibrate_main.cc and a function here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kneepoint::calibrate {

/// Arguments behind the subcommand's name.
using Arguments = std::vector<std::string>;

struct Subcommand {
  std::string_view name;
  std::string_view summary;  ///< One line, printed by `calibrate --help`.
  /// Exit status. Wrong input throws; main alone catches (exit 2).
  int (*run)(const Arguments& arguments);
};

int run_check_ops(const Arguments& arguments);
int run_check_rates(const Arguments& arguments);
int run_check_serving(const Arguments& arguments);
int run_check_steps(const Arguments& arguments);
int run_fit_ops(const Arguments& arguments);
int run_fit_run(const Arguments& arguments);
int run_fit_steps(const Arguments& arguments);
int run_read_log(const Arguments& arguments);
int run_validate(const Arguments& arguments);

}  // namespace kneepoint::calibrate
