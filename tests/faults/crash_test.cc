// A run that ends badly leaves the old result or the new one, whole.
//
// A folder holds the result of run A; run B is to replace it and is killed, or
// finds the disk full, or its reader gone. Each file must then be A's or B's to
// the byte, and wherever `simulate verify` calls the folder whole it must be all
// A's or all B's.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "sim/output_files.h"
#include "sim/verify_folder.h"
#include "tests/faults/tool.h"
#include "traces/trace_file.h"

namespace kneepoint::faults {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;

const char* const kFiles[] = {"result.json", "requests.csv", "ttft_cdf.csv"};

bool is_whole(const fs::path& folder) { return sim::verify_folder(folder).problems.empty(); }

// The rule above. `allow_leftovers`: temporary files of a process that could not clean up.
void expect_no_mixture(const fs::path& folder, const Contents& a, const Contents& b, bool allow_leftovers) {
  Contents now = contents(folder);
  for (const char* const name : kFiles) {
    ASSERT_TRUE(now.contains(name)) << name << " is lost";
    EXPECT_TRUE(now[name] == a.at(name) || now[name] == b.at(name)) << name << " is neither the old nor the new one";
  }
  if (is_whole(folder)) {
    EXPECT_TRUE(now == a || now == b) << "a mixture passes for a result";
  }
  if (!allow_leftovers) {
    for (const auto& [name, bytes] : now) {
      EXPECT_TRUE(b.contains(name)) << name << " was left behind";
    }
  }
}

// Results A and B of two traces, in files "a" and "b" of the folder.
class CrashTest : public testing::Test {
 protected:
  void SetUp() override {
    make_trace(folder_ / "a.pb", 300, 1);
    make_trace(folder_ / "b.pb", 300, 2);
    ASSERT_EQ(run(folder_ / "", simulate("a.pb", "a")).status, 0);
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(run(folder_ / "", simulate("b.pb", "b")).status, 0);
    run_time_ = std::min(std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - begin),
                         microseconds(200'000));
    a_ = contents(folder_ / "a");
    b_ = contents(folder_ / "b");
    ASSERT_NE(a_, b_);
    ASSERT_TRUE(is_whole(folder_ / "a"));
    ASSERT_TRUE(is_whole(folder_ / "b"));
  }

  static std::vector<std::string> simulate(const std::string& trace, const std::string& out) {
    return {simulate_tool(), "--trace", trace, "--out", out, "--no-report"};
  }

  // Run B over result A, with `fate`; says how it ended.
  Outcome replace(const Fate& fate, const std::string& out = "out") {
    restore(folder_ / out, a_);
    return run(folder_ / "", simulate("b.pb", out), fate);
  }

  TestFolder folder_;
  Contents a_, b_;
  microseconds run_time_{0};
};

TEST_F(CrashTest, KilledAtRandomMoments) {
  std::minstd_rand random(1);  // Moments need no better.
  int killed = 0;
  for (const int signal : {SIGKILL, SIGTERM}) {
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(testing::Message() << "signal " << signal << ", attempt " << i);
      const microseconds after(static_cast<std::int64_t>(random() % 1000) * run_time_.count() * 11 / 10 / 1000);
      const Outcome outcome = replace({.prepare = {}, .signal_after = after, .signal = signal});
      EXPECT_TRUE(outcome.signal == signal || outcome.status == 0);
      killed += outcome.signal == signal ? 1 : 0;
      expect_no_mixture(folder_ / "out", a_, b_, signal == SIGKILL);
    }
  }
  EXPECT_GT(killed, 20) << "hardly any run was killed";
}

// A process that replaces A by B and stops at every system call.
pid_t start_traced_replacement(const fs::path& out, const Contents& b) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) {
      ::_exit(99);
    }
    ::raise(SIGSTOP);
    sim::OutputFiles files(out);
    for (const char* const name : kFiles) {
      files.create(name).write(b.at(name));
    }
    files.commit();
    ::_exit(0);
  }
  return child;
}

// Lets the child go through `calls` entries and exits of system calls, then kills
// it. Says whether it was still there to be killed.
bool kill_after(pid_t child, int calls) {
  int status = 0;
  ::waitpid(child, &status, 0);
  for (int i = 0; i < calls && WIFSTOPPED(status); ++i) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
  }
  if (!WIFSTOPPED(status)) {
    return false;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return true;
}

TEST_F(CrashTest, KilledAtEachSystemCallOfTheReplacement) {
  int moments = 0;
  int whole = 0;
  for (bool alive = true; alive; ++moments) {
    SCOPED_TRACE(testing::Message() << "moment " << moments);
    ASSERT_LT(moments, 2000);
    restore(folder_ / "out", a_);
    const pid_t child = start_traced_replacement(folder_ / "out", b_);
    alive = kill_after(child, moments);
    if (moments == 1 && !alive) {
      GTEST_SKIP() << "needs ptrace";
    }
    expect_no_mixture(folder_ / "out", a_, b_, true);
    whole += is_whole(folder_ / "out") ? 1 : 0;
  }
  EXPECT_EQ(contents(folder_ / "out"), b_) << "the last one, which was not killed";
  EXPECT_GT(moments, 40);
  EXPECT_GT(whole, 0);
}

// A limit on the size of a file stands for a disk that is full: the write fails at the same place.
TEST_F(CrashTest, DiskFullAtEverySize) {
  std::size_t largest = 0;
  for (const char* const name : kFiles) {
    largest = std::max(largest, b_.at(name).size());
  }
  int failed = 0;
  for (std::size_t size = 0; size < largest + 2000; size += 1500) {
    SCOPED_TRACE(testing::Message() << size << " bytes");
    const Outcome outcome = replace({.prepare = [size] {
                                       std::signal(SIGXFSZ, SIG_IGN);
                                       const rlimit limit{size, size};
                                       ::setrlimit(RLIMIT_FSIZE, &limit);
                                       // Its standard streams are files here, and not what is tried.
                                       ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
                                       ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
                                     },
                                     .signal_after = {},
                                     .signal = 0});
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 2);
    expect_no_mixture(folder_ / "out", a_, b_, false);
    EXPECT_TRUE(is_whole(folder_ / "out"));
    EXPECT_EQ(contents(folder_ / "out"), outcome.status == 0 ? b_ : a_);
    failed += outcome.status == 2 ? 1 : 0;
  }
  EXPECT_GT(failed, 5);
}

// A file system in memory of so many KiB at `path`, for this process and its children only where possible.
bool mount_small_disk(const fs::path& path, int kib) {
  fs::create_directories(path);
  return ::mount("tmpfs", path.c_str(), "tmpfs", 0, ("size=" + std::to_string(kib) + "k").c_str()) == 0;
}

TEST_F(CrashTest, ASmallDiskThatIsReallyFull) {
  const fs::path disk = folder_ / "disk";
  int failed = 0;
  for (const int kib : {64, 68, 72, 80, 96, 128, 160, 200, 256}) {
    SCOPED_TRACE(testing::Message() << kib << " KiB");
    if (!mount_small_disk(disk, kib)) {
      GTEST_SKIP() << "needs the right to mount a tmpfs";
    }
    const Outcome outcome = replace({}, "disk/out");
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 2);
    EXPECT_EQ(contents(disk / "out"), outcome.status == 0 ? b_ : a_) << outcome.err;
    failed += outcome.status == 2 ? 1 : 0;
    ::umount(disk.c_str());
  }
  EXPECT_GT(failed, 0);
}

TEST_F(CrashTest, AFolderThatCannotBeWrittenTo) {
  const fs::path disk = folder_ / "disk";
  if (!mount_small_disk(disk, 1024)) {
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  }
  restore(disk / "out", a_);
  ASSERT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const Outcome outcome = run(folder_ / "", simulate("b.pb", "disk/out"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, testing::HasSubstr("Read-only file system"));
  EXPECT_EQ(contents(disk / "out"), a_);
  ::umount(disk.c_str());
}

// The table goes nowhere; the files are the new ones, and whoever called it is told.
TEST_F(CrashTest, AReaderThatIsGone) {
  const Outcome outcome = replace({.prepare = [] {
                                     int ends[2] = {-1, -1};
                                     if (::pipe(ends) == 0) {
                                       ::close(ends[0]);
                                       ::dup2(ends[1], STDOUT_FILENO);
                                     }
                                   },
                                   .signal_after = {},
                                   .signal = 0});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "simulate: standard output: cannot be written: Broken pipe\n");
  EXPECT_EQ(contents(folder_ / "out"), b_);
}

TEST(TraceCrash, ATraceIsTheOldOneOrTheNewOne) {
  const TestFolder folder;
  make_trace(folder / "old.pb", 50, 1);
  const std::string old = contents(folder / "")["old.pb"];
  const std::vector<std::string> command = {traces_tool(),  "generate",      "--arrivals", "poisson", "--rate",
                                            "10",           "--requests",    "200000",     "--seed",  "5",
                                            "--prompt-tokens", "100",        "--output-tokens", "10", "t.pb"};
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run(folder / "", command).status, 0);
  const auto run_time = std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - begin);
  const std::string fresh = contents(folder / "")["t.pb"];
  int killed = 0;
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(testing::Message() << "attempt " << i);
    restore(folder / "", {{"t.pb", old}});
    const int signal = i % 2 == 0 ? SIGTERM : SIGKILL;
    const Outcome outcome =
        run(folder / "", command, {.prepare = {}, .signal_after = run_time * i / 20, .signal = signal});
    killed += outcome.signal == signal ? 1 : 0;
    const Contents now = contents(folder / "");
    EXPECT_TRUE(now.at("t.pb") == old || now.at("t.pb") == fresh);
    if (signal == SIGTERM) {
      EXPECT_EQ(now.size(), 1U) << "a temporary file was left behind";
    }
  }
  EXPECT_GT(killed, 4);
}

}  // namespace
}  // namespace kneepoint::faults
