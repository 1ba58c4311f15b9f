// Every byte of a trace and of a result counts: change one in any way, or cut the
// file anywhere, and it is noticed.
#include <gtest/gtest.h>

#include "sim/verify_folder.h"
#include "tests/faults/tool.h"
#include "traces/trace_file.h"

namespace kneepoint::faults {
namespace {

namespace fs = std::filesystem;

// Each bit, all bits, and a digit into its neighbour (which bit 0 is): every kind of damage to one byte.
constexpr int kMasks[] = {1, 2, 4, 8, 16, 32, 64, 128, 255};

bool reads_whole(const fs::path& path) {
  try {
    traces::TraceReader reader(path);
    for (traces::TraceRecord record; reader.next(record);) {
    }
    return true;
  } catch (const traces::TraceError&) {
    return false;
  }
}

TEST(FlippedBytes, InATrace) {
  const TestFolder folder;
  const fs::path path = folder / "t.pb";
  make_trace(path, 40, 3);
  const std::string whole = contents(folder / "")["t.pb"];
  ASSERT_TRUE(reads_whole(path));
  ASSERT_GT(whole.size(), 200U);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int mask : kMasks) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
      write_file(path, bytes);
      EXPECT_FALSE(reads_whole(path)) << "byte " << at << " xor " << mask;
    }
    write_file(path, whole.substr(0, at));
    EXPECT_FALSE(reads_whole(path)) << "cut to " << at << " bytes";
  }
  write_file(path, whole + '\0');
  EXPECT_FALSE(reads_whole(path)) << "a byte too many";
}

TEST(FlippedBytes, InAResult) {
  const TestFolder folder;
  make_trace(folder / "t.pb", 12, 3);
  ASSERT_EQ(run(folder / "", {simulate_tool(), "--trace", "t.pb", "--out", "out", "--no-report"}).status, 0);
  const fs::path out = folder / "out";
  const Contents whole = contents(out);
  ASSERT_EQ(whole.size(), 4U);
  const auto passes = [&] { return sim::verify_folder(out).problems.empty(); };
  ASSERT_TRUE(passes());
  // Every byte of each file, and every kind of damage to the list itself. Of the long ttft_cdf.csv every 13th
  // byte stands for all: it is hashed like the others.
  for (const auto& [name, bytes] : whole) {
    const bool is_list = name == "checksums.sha256";
    for (std::size_t at = 0; at < bytes.size(); at += name == "ttft_cdf.csv" ? 13 : 1) {
      for (const int mask : kMasks) {
        if (!is_list && mask != 1 << (at % 8)) {
          continue;
        }
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ mask);
        write_file(out / name, damaged);
        ASSERT_FALSE(passes()) << name << " byte " << at << " xor " << mask;
      }
      write_file(out / name, bytes.substr(0, at));
      ASSERT_FALSE(passes()) << name << " cut to " << at << " bytes";
    }
    write_file(out / name, bytes);
    ASSERT_TRUE(passes());
  }
}

TEST(VerifyFolder, SaysWhatIsWrongByName) {
  const TestFolder folder;
  make_trace(folder / "t.pb", 12, 3);
  ASSERT_EQ(run(folder / "", {simulate_tool(), "--trace", "t.pb", "--out", "out", "--no-report"}).status, 0);
  const Outcome whole = run(folder / "", {simulate_tool(), "verify", "out"});
  EXPECT_EQ(whole.status, 0);
  EXPECT_EQ(whole.out, "out: 3 files, whole\n");
  write_file(folder / "out/requests.csv", "");
  write_file(folder / "out/notes.txt", "");
  fs::remove(folder / "out/ttft_cdf.csv");
  const Outcome damaged = run(folder / "", {simulate_tool(), "verify", "out"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_EQ(damaged.out,
            "out: notes.txt: extra; no file of this result\n"
            "out: requests.csv: changed\n"
            "out: ttft_cdf.csv: missing\n");
  fs::remove(folder / "out/checksums.sha256");
  EXPECT_EQ(run(folder / "", {simulate_tool(), "verify", "out"}).status, 1);
  const Outcome absent = run(folder / "", {simulate_tool(), "verify", "nowhere"});
  EXPECT_EQ(absent.status, 2);
  EXPECT_EQ(absent.err, "simulate: verify: nowhere: is no folder; name one that `simulate --out` wrote\n");
  // A list that leads elsewhere is damaged, whatever lies there.
  write_file(folder / "out/checksums.sha256", std::string(64, '0') + "  ../t.pb\n");
  EXPECT_EQ(sim::verify_folder(folder / "out").problems.front(), "checksums.sha256: line 1 is damaged");
}

}  // namespace
}  // namespace kneepoint::faults
