// The rooms and doors of the house: engine, hw and traces know nothing of ours,
// sim composes the three, calibrate fits. The test reads every #include.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "tests/support/shared_data.h"

namespace kneepoint {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"engine", {}},
    {"hw", {}},
    {"traces", {}},
    {"sim", {"engine", "hw", "traces"}},
    {"calibrate", {"hw", "traces", "sim"}},
};

// The folder an include line names, or "" if the line includes nothing of ours.
std::string included_folder(const std::string& line) {
  const std::string start = "#include \"";
  if (line.rfind(start, 0) != 0) {
    return "";
  }
  const std::string path = line.substr(start.size());
  const std::string folder = path.substr(0, path.find('/'));
  return kMayInclude.contains(folder) || folder == "tests" ? folder : "";
}

TEST(IncludeEdges, OnlyDrawnOnesExist) {
  const fs::path root = testing_support::test_file("").parent_path().parent_path();
  int files = 0;
  for (const auto& [folder, allowed] : kMayInclude) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cc" && extension != ".cu") {
        continue;
      }
      ++files;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        const std::string other = included_folder(line);
        if (!other.empty() && other != folder) {
          EXPECT_TRUE(allowed.contains(other)) << entry.path() << " includes " << line;
        }
      }
    }
  }
  EXPECT_GT(files, 20) << "the walk found too few sources below " << root;
}

}  // namespace
}  // namespace kneepoint
