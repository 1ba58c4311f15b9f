#include "sim/verify_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include "sim/command_line.h"
#include "sim/output_files.h"
#include "sim/usage_error.h"
#include "traces/sha256.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {

namespace fs = std::filesystem;

namespace {

// More than any list of ours; a longer one is none.
constexpr std::uintmax_t kMostListBytes = std::uintmax_t{16} << 20;

constexpr std::size_t kHexDigits = 64;

// Below the folder, and nothing that leads out of it.
bool is_name_inside(const fs::path& name) {
  return !name.empty() && name.is_relative() && name == name.lexically_normal() && *name.begin() != "..";
}

// Lines "HEX  NAME", as sha256sum writes them; else what is wrong with the list.
std::string parse_list(std::string_view text, std::map<std::string, std::string>& hash_of) {
  if (text.empty() || text.back() != '\n') {
    return "was cut";
  }
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    const std::string_view hash = line.substr(0, kHexDigits);
    const bool formed = line.size() > kHexDigits + 2 && line.substr(kHexDigits, 2) == "  " &&
                        hash.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    const std::string name(formed ? line.substr(kHexDigits + 2) : "");
    if (!formed || !is_name_inside(name) || !hash_of.emplace(name, hash).second) {
      return fmt::format("line {} is damaged", number);
    }
  }
  return "";
}

std::string read_small_file(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error || size > kMostListBytes) {
    return "";
  }
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

// Files below `folder` by their names from there, sorted.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->is_directory() || entry->is_symlink()) {
      names.push_back(entry->path().lexically_relative(folder).string());
    }
  }
  if (error) {
    throw UsageError(fmt::format("verify: {}: cannot be read: {}", folder.string(), error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "changed", "missing", "cannot be read", or nothing.
std::optional<std::string_view> problem_of(const fs::path& path, const std::string& hash) {
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(path, ignored);
  if (!fs::exists(status)) {
    return "missing";
  }
  if (!fs::is_regular_file(status)) {
    return "no regular file";
  }
  try {
    return traces::sha256_file(path) == hash ? std::nullopt : std::optional<std::string_view>("changed");
  } catch (const traces::TraceError&) {
    return "cannot be read";
  }
}

}  // namespace

FolderCheck verify_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw UsageError(fmt::format("verify: {}: is no folder; name one that `simulate --out` wrote", folder.string()));
  }
  const std::vector<std::string> names = files_below(folder);
  const std::string list_name(kChecksumsFile);
  FolderCheck check;
  if (!std::binary_search(names.begin(), names.end(), list_name)) {
    check.problems.push_back(
        fmt::format("{}: missing; the run that wrote here did not end, or wrote no result", list_name));
    return check;
  }
  std::map<std::string, std::string> hash_of;
  if (const std::string why = parse_list(read_small_file(folder / list_name), hash_of); !why.empty()) {
    check.problems.push_back(fmt::format("{}: {}", list_name, why));
    return check;
  }
  check.num_files = hash_of.size();
  std::map<std::string, std::string_view> found;  // Both kinds in the order of names.
  for (const auto& [name, hash] : hash_of) {
    if (const auto problem = problem_of(folder / name, hash)) {
      found.emplace(name, *problem);
    }
  }
  for (const std::string& name : names) {
    if (name != list_name && !hash_of.contains(name)) {
      found.emplace(name, "extra; no file of this result");
    }
  }
  for (const auto& [name, problem] : found) {
    check.problems.push_back(fmt::format("{}: {}", name, problem));
  }
  return check;
}

int run_verify(std::span<const std::string> arguments) {
  std::vector<std::string> folders;
  CLI::App app("Checks folders of results against their checksums: files that are missing, changed or extra.",
               "simulate verify");
  app.add_option("DIR", folders, "folder that `simulate --out` wrote")->required();
  app.footer("Example: simulate verify result");
  if (!parse_arguments(app, "verify", arguments)) {
    return 0;
  }
  bool whole = true;
  std::string text;
  for (const std::string& folder : folders) {
    const FolderCheck check = verify_folder(folder);
    whole = whole && check.problems.empty();
    for (const std::string& problem : check.problems) {
      text += fmt::format("{}: {}\n", folder, problem);
    }
    if (check.problems.empty()) {
      text += fmt::format("{}: {} files, whole\n", folder, check.num_files);
    }
  }
  write_stdout(text);
  return whole ? 0 : 1;
}

}  // namespace kneepoint::sim
