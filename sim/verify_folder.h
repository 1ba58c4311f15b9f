// Whether a folder of results is what was written: every file as
// checksums.sha256 says, none missing, none that it does not list.
//
// checksums.sha256 is the last file of a run to come into its place
// (sim/output_files.h), so a run that was killed half-way shows here: without
// checksums, or with files that are not theirs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace kneepoint::sim {

struct FolderCheck {
  std::vector<std::string> problems;  ///< One line each, by file name: "requests.csv: changed". Empty: all is well.
  std::size_t num_files = 0;          ///< Listed and looked at.
};

/// Throws UsageError if `folder` is no folder or cannot be read.
[[nodiscard]] FolderCheck verify_folder(const std::filesystem::path& folder);

/// `simulate verify DIR...`: exit status 1 if anything is wrong.
[[nodiscard]] int run_verify(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
