// The subcommands of the tool `traces`. Each takes the arguments after its own
// name, returns the exit status, and throws TraceError for wrong input.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kneepoint::traces {

using Arguments = std::vector<std::string>;

struct Subcommand {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Arguments&);
};

int run_convert(const Arguments& arguments);
int run_fit(const Arguments& arguments);
int run_generate(const Arguments& arguments);
int run_info(const Arguments& arguments);
int run_transform(const Arguments& arguments);
int run_verify(const Arguments& arguments);

}  // namespace kneepoint::traces
