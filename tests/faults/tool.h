// Runs the tools as a user does, in processes of their own, and does to them
// what happens to users.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kneepoint::faults {

/// Where the build put them.
[[nodiscard]] std::string simulate_tool();
[[nodiscard]] std::string traces_tool();

/// Files of a folder by name: their bytes.
using Contents = std::map<std::string, std::string>;
[[nodiscard]] Contents contents(const std::filesystem::path& folder);
void restore(const std::filesystem::path& folder, const Contents& files);
void write_file(const std::filesystem::path& path, const std::string& bytes);

/// A folder of the test's own, gone with it.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct Outcome {
  std::optional<int> status;  ///< Exit status; nothing if a signal ended it.
  int signal = 0;
  std::string out, err;
};

/// What befalls a run. `prepare` runs in the new process before the tool.
struct Fate {
  std::function<void()> prepare;
  std::optional<std::chrono::microseconds> signal_after;
  int signal = 0;
};

/// In `folder`, where out.txt and err.txt come and go (elsewhere: beside it).
[[nodiscard]] Outcome run(const std::filesystem::path& folder, const std::vector<std::string>& command,
                          const Fate& fate = {});

/// A trace of `requests` short requests.
void make_trace(const std::filesystem::path& path, int requests, int seed);

}  // namespace kneepoint::faults
