#include "traces/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "traces/closest_name.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::optional<int> parse_arguments(CLI::App& app, const Arguments& arguments) {
  const std::vector<std::string> names = option_names(app);
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name.starts_with("--") && name != "--" && std::ranges::find(names, name) == names.end()) {
      throw TraceError(fmt::format("unknown option {}{}", name, did_you_mean(name, names)));
    }
  }
  Arguments reversed = arguments;  // CLI11 takes a vector last argument first.
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(reversed);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help.
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    throw TraceError(fmt::format("{} (`{} --help` says more)", line, app.get_name()));
  }
  return std::nullopt;
}

std::string given_options(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    text += fmt::format("{}--{}", text.empty() ? "" : " ", option->get_lnames().front());
    if (option->get_items_expected_max() == 0) continue;
    for (const std::string& value : option->results()) {
      text.push_back(' ');
      text.append(value, value.rfind('/') + 1);
    }
  }
  return text;
}

}  // namespace kneepoint::traces
