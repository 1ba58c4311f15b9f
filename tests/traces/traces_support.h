// What the tests of traces/ share: a folder of their own, files made in place.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "traces/record_source.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {

/// A folder that goes when the test ends.
class TempFolder {
 public:
  TempFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("kneepoint_") + test->test_suite_name() + "_" + test->name();
    for (char& c : name) c = c == '/' ? '_' : c;
    path_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  [[nodiscard]] std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

[[nodiscard]] inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

[[nodiscard]] inline TraceRecord plain_record(std::chrono::nanoseconds arrival, std::int64_t prompt,
                                              std::int64_t output) {
  TraceRecord record;
  record.arrival = arrival;
  record.prompt_tokens = prompt;
  record.output_tokens = output;
  return record;
}

inline void write_trace(const std::filesystem::path& path, const std::vector<TraceRecord>& records) {
  TraceWriter writer(path, "test");
  for (const TraceRecord& record : records) writer.add(record);
  writer.finish();
}

[[nodiscard]] inline std::vector<TraceRecord> read_trace(const std::filesystem::path& path) {
  TraceReader reader(path);
  std::vector<TraceRecord> records;
  for (TraceRecord record; reader.next(record);) records.push_back(record);
  return records;
}

[[nodiscard]] inline std::vector<TraceRecord> drain(RecordSource& source) {
  std::vector<TraceRecord> records;
  for (TraceRecord record; source.next(record);) records.push_back(record);
  return records;
}

/// The text of the TraceError that `action` throws, or "" if it throws none.
[[nodiscard]] inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const TraceError& error) {
    return error.what();
  }
  return "";
}

}  // namespace kneepoint::traces
