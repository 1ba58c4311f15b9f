// Files that appear together or not at all, and the files themselves.
#include "sim/output_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "sim/progress.h"
#include "sim/requests_csv.h"
#include "sim/step_log.h"

namespace kneepoint::sim {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// An empty folder of the test's own.
class OutputFilesTest : public testing::Test {
 protected:
  OutputFilesTest() {
    std::string name = (fs::temp_directory_path() / "kneepoint-output-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~OutputFilesTest() override { fs::remove_all(root_); }

  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::string error_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const OutputError& error) {
      return error.what();
    }
    return "";
  }

  fs::path root_;
};

// SHA-256 of "abc" and of the empty message: FIPS 180-4's own examples.
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

TEST_F(OutputFilesTest, AppearTogetherWithTheirChecksums) {
  const fs::path out = root_ / "a" / "b";
  OutputFiles files(out);
  OutputFile& result = files.create("result.json");
  static_cast<void>(files.create("empty.csv"));
  result.write("a");
  result.write("bc");
  EXPECT_FALSE(fs::exists(out / "result.json"));
  files.commit();
  EXPECT_THAT(names_in(out), ElementsAre("checksums.sha256", "empty.csv", "result.json"));
  EXPECT_EQ(read(out / "result.json"), "abc");
  EXPECT_EQ(read(out / "checksums.sha256"), std::string(kEmpty) + "  empty.csv\n" + kAbc + "  result.json\n");
}

TEST_F(OutputFilesTest, ManyBytesGoThroughWhole) {
  std::string expected;
  {
    OutputFiles files(root_);
    OutputFile& file = files.create("big");
    for (int i = 0; i < 50'000; ++i) {
      const std::string line = std::to_string(i) + "\n";
      expected += line;
      file.write(line);
    }
    const std::string huge(300'000, 'x');
    expected += huge;
    file.write(huge);
    files.commit();
  }
  EXPECT_EQ(read(root_ / "big"), expected);
}

TEST_F(OutputFilesTest, WithoutCommitNothingIsLeftAndOldFilesStay) {
  write(root_ / "result.json", "old");
  {
    OutputFiles files(root_);
    files.create("result.json").write("half");
    OutputFiles fresh(root_ / "x" / "y");
    fresh.create("result.json").write("half");
  }
  EXPECT_THAT(names_in(root_), ElementsAre("result.json"));
  EXPECT_EQ(read(root_ / "result.json"), "old");
}

TEST_F(OutputFilesTest, ReplacesAnOlderRun) {
  write(root_ / "result.json", "old");
  write(root_ / "requests.csv", "old");
  write(root_ / "checksums.sha256", "old");
  write(root_ / "notes.txt", "the user's");
  OutputFiles files(root_);
  files.replaces({"result.json", "requests.csv"});
  files.create("result.json").write("abc");
  files.commit();
  EXPECT_THAT(names_in(root_), ElementsAre("checksums.sha256", "notes.txt", "result.json"));
  EXPECT_EQ(read(root_ / "checksums.sha256"), std::string(kAbc) + "  result.json\n");
}

TEST_F(OutputFilesTest, AFileElsewhereIsNotInTheChecksums) {
  const fs::path out = root_ / "out";
  OutputFiles files(out);
  files.create_at(root_ / "steps.log").write("abc");
  files.create_at(out / "inside.log").write("abc");
  files.commit();
  EXPECT_EQ(read(root_ / "steps.log"), "abc");
  EXPECT_EQ(read(out / "checksums.sha256"), std::string(kAbc) + "  inside.log\n");
}

TEST_F(OutputFilesTest, OneClearLineForEachWrongPlace) {
  const fs::path file = root_ / "file";
  write(file, "");
  fs::create_directory(root_ / "folder");
  EXPECT_EQ(error_of([&] { OutputFiles files(file); }), file.string() + ": is a file; --out takes a folder");
  EXPECT_EQ(error_of([&] { OutputFiles files(file / "x" / "y"); }),
            file.string() + ": is a file; --out takes a folder");
  OutputFiles none{fs::path()};
  EXPECT_EQ(error_of([&] { static_cast<void>(none.create_at(root_ / "folder")); }),
            (root_ / "folder").string() + ": is a folder; name a file");
  EXPECT_EQ(error_of([&] { static_cast<void>(none.create_at("/dev/null")); }),
            "/dev/null: is no regular file and cannot be replaced; name a file");
  EXPECT_EQ(error_of([&] { static_cast<void>(none.create_at(root_ / "absent" / "steps.log")); }),
            (root_ / "absent" / "steps.log").string() + ": cannot be written: No such file or directory");
  OutputFiles twice(root_);
  static_cast<void>(twice.create("result.json"));
  EXPECT_THAT(error_of([&] { static_cast<void>(twice.create_at(root_ / "result.json")); }),
              HasSubstr("would be written twice"));
}

TEST_F(OutputFilesTest, AFolderThatMayNotBeWrittenTo) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root may write anywhere";
  }
  fs::create_directory(root_ / "locked");
  fs::permissions(root_ / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(error_of([&] { OutputFiles files(root_ / "locked"); }),
            (root_ / "locked").string() + ": cannot be written to: Permission denied");
}

// A limit on the size of files stands for a full disk: the write fails in the same
// place. Runs in a process of its own: the limit cannot be taken back.
[[noreturn]] void fill_the_disk(const fs::path& out) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = 100'000;
  ::setrlimit(RLIMIT_FSIZE, &limit);
  try {
    OutputFiles files(out);
    files.create("small").write("abc");
    OutputFile& file = files.create("requests.csv");
    for (int i = 0; i < 20'000; ++i) {
      file.write("0123456789");
    }
    files.commit();
  } catch (const OutputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(fs::exists(out) ? 1 : 0);
}

TEST_F(OutputFilesTest, AFullDiskIsOneLineAndLeavesNothing) {
  EXPECT_EXIT(fill_the_disk(root_ / "out"), testing::ExitedWithCode(0),
              "^[^\n]*requests.csv: cannot be written: File too large\n$");
}

// What write_stdout() says after `spoil` has been at standard output.
[[noreturn]] void write_to_spoiled_stdout(const std::function<void()>& spoil) {
  spoil();
  try {
    write_stdout("result");
  } catch (const OutputError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(0);
  }
  std::exit(1);
}

TEST(StandardStreams, AClosedPipeIsAnErrorNotASignal) {
  const auto break_pipe = [] {
    guard_process();
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    ::close(ends[0]);
    ::dup2(ends[1], STDOUT_FILENO);
  };
  EXPECT_EXIT(write_to_spoiled_stdout(break_pipe), testing::ExitedWithCode(0),
              "^standard output: cannot be written: Broken pipe\n$");
}

TEST(StandardStreams, AClosedStdoutIsNotTheNextFile) {
  const auto close_it = [] {
    ::close(STDOUT_FILENO);
    guard_process();
  };
  EXPECT_EXIT(write_to_spoiled_stdout(close_it), testing::ExitedWithCode(0),
              "^standard output: cannot be written: Bad file descriptor\n$");
}

// ---- what stands in them

RequestRecord completed() {
  RequestRecord record;
  record.index = 7;
  record.arrival = SimTime(SimDuration(1'000'000'001));
  record.sent = record.arrival;
  record.queued = SimTime(SimDuration(1'002'000'000));
  record.scheduled = SimTime(SimDuration(1'100'000'000));
  record.first_token = SimTime(SimDuration(12'000'000'000));
  record.last_token = SimTime(SimDuration(12'345'678'901));
  record.prompt_tokens = 241;
  record.output_tokens = 49;
  record.cached_tokens = 224;
  record.preemptions = 1;
  record.end = RequestEnd::kStop;
  return record;
}

TEST_F(OutputFilesTest, RequestsCsv) {
  OutputFiles files(root_);
  RequestsCsv csv(files.create("requests.csv"));
  csv.on_request_end(completed());
  RequestRecord refused;
  refused.index = 8;
  refused.arrival = refused.sent = refused.last_token = SimTime(std::chrono::seconds(13));
  refused.prompt_tokens = 9000;
  refused.end = RequestEnd::kPromptTooLong;
  csv.on_request_end(refused);
  files.commit();
  EXPECT_EQ(read(root_ / "requests.csv"),
            "index,arrival_s,sent_s,queued_s,scheduled_s,first_token_s,last_token_s,"
            "prompt_tokens,output_tokens,cached_tokens,preemptions,end\n"
            "7,1.000000001,1.000000001,1.002000000,1.100000000,12.000000000,12.345678901,241,49,224,1,stop\n"
            "8,13.000000000,13.000000000,,,,13.000000000,9000,0,0,0,prompt_too_long\n");
}

TEST(TtftCdf, OneLineAQuantile) {
  EXPECT_EQ(ttft_cdf_csv({10, 15.5, 40}),
            "quantile,ttft_ms\n0.000,10.000000\n0.500,15.500000\n1.000,40.000000\n");
  EXPECT_EQ(ttft_cdf_csv({}), "quantile,ttft_ms\n");
}

// The line is a recorded one of vLLM 0.32.0 but for its source number's stamp and
// the word GPU: 1 prompt of 241 tokens, 76.62 ms, 1.3 %. The next step began when that
// one ended: 100 - 95 = 5 ms. The engine counts an empty step before the third; the log does not.
TEST_F(OutputFilesTest, StepLog) {
  OutputFiles files(root_);
  StepLog log(files.create("steps.log"));
  const SimDuration new_year_to_march = std::chrono::hours(24 * (31 + 29));
  StepRecord step;
  step.step = 6269;
  step.planned = SimTime(std::chrono::microseconds(18'000));
  step.begin = SimTime(std::chrono::microseconds(18'380));
  step.end = SimTime(std::chrono::milliseconds(95));
  step.context_requests = 1;
  step.context_tokens = 241;
  step.kv_usage = 8.0 / 600;
  log.on_step(step);
  step = {};
  step.step = 6270;
  step.planned = SimTime(std::chrono::milliseconds(20));
  step.begin = SimTime(std::chrono::milliseconds(95));
  step.end = SimTime(std::chrono::milliseconds(100));
  step.generation_requests = 3;
  step.generation_tokens = 3;
  log.on_step(step);
  step.step = 6272;
  step.planned = SimTime(new_year_to_march + std::chrono::seconds(3'723));
  step.begin = step.planned;
  step.end = step.planned + std::chrono::milliseconds(1);
  log.on_step(step);
  files.commit();
  EXPECT_EQ(read(root_ / "steps.log"),
            "INFO 01-01 00:00:00 [loggers.py:199] Engine 000: Iteration(6269): 1 context requests, 241 "
            "context tokens, "
            "0 generation requests, 0 generation tokens, iteration elapsed time: 76.62 ms, GPU KV cache "
            "usage: 1.3%\n"
            "INFO 01-01 00:00:00 [loggers.py:199] Engine 000: Iteration(6270): 0 context requests, 0 context "
            "tokens, "
            "3 generation requests, 3 generation tokens, iteration elapsed time: 5.00 ms, GPU KV cache "
            "usage: 0.0%\n"
            "INFO 03-01 01:02:03 [loggers.py:199] Engine 000: Iteration(6271): 0 context requests, 0 context "
            "tokens, "
            "3 generation requests, 3 generation tokens, iteration elapsed time: 1.00 ms, GPU KV cache "
            "usage: 0.0%\n");
}

// ---- the bar

// A clock that moves 100 ms a request: drawn at most five times a second, so every other one.
TEST(ProgressBar, DrawsWhatIsOverAndWhatIsLeft) {
  std::vector<std::string> drawn;
  Progress::Clock::time_point now{};
  {
    Progress progress(
        8, [&](const std::string& line) { drawn.push_back(line); }, [&] { return now; });
    for (int i = 0; i < 4; ++i) {
      now += std::chrono::milliseconds(100);
      progress.on_request_end({});
    }
  }
  EXPECT_THAT(drawn,
              ElementsAre("\r\033[K[######..................]  25 %  2 of 8 requests, 1 s left",
                          "\r\033[K[############............]  50 %  4 of 8 requests, 0 s left", "\r\033[K"));
}

TEST(ProgressBar, TellsLongTimesInMinutesAndHours) {
  std::vector<std::string> drawn;
  Progress::Clock::time_point now{};
  Progress progress(
      100, [&](const std::string& line) { drawn.push_back(line); }, [&] { return now; });
  now += std::chrono::seconds(2);
  progress.on_request_end({});  // 1 of 100 in 2 s: 198 s.
  now += std::chrono::minutes(10);
  progress.on_request_end({});  // 2 of 100 in 602 s: 29498 s.
  EXPECT_THAT(drawn[0], HasSubstr("3:18 min left"));
  EXPECT_THAT(drawn[1], HasSubstr("8:11 h left"));
}

TEST(ProgressBar, IsSilentWhereThereIsNoTerminal) {
  Progress progress(1, nullptr, [] { return Progress::Clock::time_point{}; });
  progress.on_request_end({});
  progress.clear();
}

}  // namespace
}  // namespace kneepoint::sim
