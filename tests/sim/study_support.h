// What the tests of matrices, studies and comparisons share: a folder of their
// own, a tiny trace, the tool.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "traces/trace_file.h"

namespace kneepoint::testing_support {

/// A folder nobody else has; goes with the object.
class OwnFolder {
 public:
  OwnFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kneepoint-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~OwnFolder() { std::filesystem::remove_all(path_); }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;

  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::string write(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }
  /// `num_requests` of 64 to 127 tokens and 8 to answer, one every 50 ms.
  std::string write_trace(std::string_view name, int num_requests) const {
    traces::TraceWriter writer(path_ / name, "test");
    for (int i = 0; i < num_requests; ++i) {
      traces::TraceRecord record;
      record.arrival = std::chrono::milliseconds(50) * i;
      record.prompt_tokens = 64 + i % 64;
      record.output_tokens = 8;
      writer.add(record);
    }
    writer.finish();
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

[[nodiscard]] inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace kneepoint::testing_support
