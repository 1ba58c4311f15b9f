// Replays the corpora: inputs that reach far into each reader, and every input
// that once broke one. What the fuzzers found stays found, in every test run and
// with any compiler.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/support/shared_data.h"

namespace kneepoint::fuzz {
namespace {

namespace fs = std::filesystem;

void replay(const std::string& name, void (*target)(std::span<const std::uint8_t>)) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(testing_support::test_file("fuzz/corpus/" + name))) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_GT(files.size(), 10U);
  for (const fs::path& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    testing::Test::RecordProperty("last", path.filename().string());
    target({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  }
}

TEST(FuzzCorpus, Parsers) { replay("parsers", &fuzz_parsers); }
TEST(FuzzCorpus, Engine) { replay("engine", &fuzz_engine); }

}  // namespace
}  // namespace kneepoint::fuzz
