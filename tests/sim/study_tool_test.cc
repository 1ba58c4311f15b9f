// `simulate study` from outside: killed and resumed, in shards, over MPI, on any
// number of threads, it writes the same bytes; wrong use is one line and exit 2.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/sim/study_support.h"
#include "traces/random_stream.h"

namespace kneepoint::sim {
namespace {

using testing::HasSubstr;
using testing_support::bytes_of;
using testing_support::OwnFolder;
using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

constexpr int kPoints = 48;

class StudyTool : public testing::Test {
 protected:
  // 2 x 3 x 8 points of 30 requests each, some of which cannot run.
  StudyTool() {
    const std::string trace = folder_.write_trace("t.pb", 30);
    study_ = folder_.write("s.textproto", fmt::format(R"(
        base {{ trace: "{}" request_rate: 20 }}
        grid {{ option: "tensor_parallel_size" value: "1" value: "3" }}
        grid {{ option: "scheduler" value: "vllm-v1" value: "sarathi" value: "orca" }}
        seeds {{ count: 8 }})",
                                                      trace));
  }

  pid_t start(Words words) const {
    words.insert(words.begin(), KNEEPOINT_SIMULATE_TOOL);
    return start_program(words);
  }

  pid_t start_program(const Words& words) const {
    const pid_t child = ::fork();
    if (child == 0) {
      const int out = ::open((folder_ / "stdout").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      const int err = ::open((folder_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      ::dup2(out, 1);
      ::dup2(err, 2);
      std::vector<char*> argv;
      for (const std::string& word : words) {
        argv.push_back(const_cast<char*>(word.c_str()));
      }
      argv.push_back(nullptr);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    return child;
  }

  // Exit status; -1 if a signal ended it.
  static int wait_for(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  int run(const Words& words) const { return wait_for(start(words)); }
  [[nodiscard]] std::string err() const { return bytes_of(folder_ / "stderr"); }
  [[nodiscard]] std::string place(const std::string& name) const { return (folder_ / name).string(); }

  [[nodiscard]] std::string merged(const std::string& out) const {
    return bytes_of(folder_ / (out + "/results.jsonl")) + bytes_of(folder_ / (out + "/results.csv")) +
           bytes_of(folder_ / (out + "/checksums.sha256"));
  }
  [[nodiscard]] std::int64_t lines_in_parts(const std::string& out) const {
    std::int64_t lines = 0;
    for (const auto& part : std::filesystem::directory_iterator(folder_ / (out + "/parts"))) {
      const std::string bytes = bytes_of(part.path());
      lines += std::count(bytes.begin(), bytes.end(), '\n') - 1;  // The header.
    }
    return lines;
  }

  OwnFolder folder_;
  std::string study_;
};

TEST_F(StudyTool, TheSameBytesWhoeverWorks) {
  ASSERT_EQ(run({"study", study_, "--out", place("one"), "--threads", "1"}), 0) << err();
  const std::string expected = merged("one");
  EXPECT_EQ(lines_in_parts("one"), kPoints);
  EXPECT_THAT(expected, HasSubstr("\"cannot_run\""));
  for (const char* threads : {"2", "8"}) {
    ASSERT_EQ(run({"study", study_, "--out", place(threads), "--threads", threads}), 0) << err();
    EXPECT_TRUE(merged(threads) == expected) << threads << " threads";
  }
  for (const char* shard : {"3/3", "1/3", "2/3"}) {
    ASSERT_EQ(run({"study", study_, "--out", place("shards"), "--shard", shard}), 0) << err();
  }
  EXPECT_EQ(run({"study", "--verify", place("shards")}), 0);
  ASSERT_EQ(run({"study", "--merge", place("shards")}), 0) << err();
  EXPECT_TRUE(merged("shards") == expected);
  EXPECT_EQ(lines_in_parts("shards"), kPoints);
  ASSERT_EQ(run({"study", study_, "--out", place("shards")}), 0) << "all is there already";
  EXPECT_THAT(err(), HasSubstr("48 of 48 points are there already"));
  EXPECT_EQ(lines_in_parts("shards"), kPoints);
  EXPECT_EQ(run({"study", "--verify", place("shards")}), 0);
}

TEST_F(StudyTool, TheSameBytesOverMpi) {
#ifndef KNEEPOINT_HAS_MPI
  GTEST_SKIP() << "built without MPI";
#endif
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no mpirun";
  }
  // For Open MPI: containers run as root, and two ranks may share one core.
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  ::setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);
  ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // MPI libraries keep what they took until the end.
  ASSERT_EQ(run({"study", study_, "--out", place("one")}), 0) << err();
  ASSERT_EQ(wait_for(start_program({"mpirun", "-n", "2", KNEEPOINT_SIMULATE_TOOL, "study", study_, "--out",
                                    place("mpi"), "--threads", "2"})),
            0)
      << err();
  EXPECT_TRUE(merged("mpi") == merged("one"));
  EXPECT_EQ(lines_in_parts("mpi"), kPoints);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "mpi/parts/part-1-of-1.rank-1-of-2.jsonl"));
  // Points of one rank's part are gone; three ranks find them again and no others.
  std::filesystem::remove(folder_ / "mpi/parts/part-1-of-1.rank-0-of-2.jsonl");
  for (const char* name : {"results.jsonl", "results.csv", "checksums.sha256"}) {
    std::filesystem::remove(folder_ / "mpi" / name);
  }
  ASSERT_EQ(wait_for(start_program(
                {"mpirun", "-n", "3", KNEEPOINT_SIMULATE_TOOL, "study", study_, "--out", place("mpi")})),
            0)
      << err();
  EXPECT_TRUE(merged("mpi") == merged("one"));
  EXPECT_EQ(lines_in_parts("mpi"), kPoints);
  // What is wrong is said once, by one rank.
  EXPECT_NE(wait_for(start_program({"mpirun", "-n", "2", KNEEPOINT_SIMULATE_TOOL, "study", study_, "--out",
                                    place("x"), "--shard", "0/3"})),
            0);
  const std::string said = err();
  EXPECT_THAT(said, HasSubstr("simulate: study: --shard '0/3'"));
  EXPECT_EQ(said.find("simulate: "), said.rfind("simulate: "));
}

// Fifty kills at moments spread over a whole run; whenever the study is through
// in spite of them it begins anew in another folder.
TEST_F(StudyTool, KilledAtAnyMomentItGoesOnWhereItWas) {
  const auto begin = Clock::now();
  ASSERT_EQ(run({"study", study_, "--out", place("undisturbed"), "--threads", "2"}), 0) << err();
  double whole_s = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string expected = merged("undisturbed");

  traces::RandomStream moments(1, "kill moments");
  int kills = 0;
  int completed = 0;
  std::int64_t resumed = 0;  // Kills that had left some points, not all.
  std::string out = "k0";
  while (kills < 50) {
    const auto started = Clock::now();
    const pid_t child = start({"study", study_, "--out", place(out), "--threads", "2"});
    std::this_thread::sleep_for(std::chrono::duration<double>(moments.uniform() * whole_s));
    ::kill(child, SIGKILL);
    if (wait_for(child) == -1) {
      ++kills;
      if (std::filesystem::exists(folder_ / (out + "/parts"))) {
        const std::int64_t lines = lines_in_parts(out);
        resumed += lines > 0 && lines < kPoints ? 1 : 0;
      }
      continue;
    }
    // On a busy machine the first run may have been slow, and the moments too late.
    whole_s = std::min(whole_s, std::chrono::duration<double>(Clock::now() - started).count());
    EXPECT_TRUE(merged(out) == expected) << out;
    EXPECT_EQ(lines_in_parts(out), kPoints) << "a point was lost or repeated";
    out = fmt::format("k{}", ++completed);
  }
  ASSERT_EQ(run({"study", study_, "--out", place(out), "--threads", "2"}), 0) << err();
  EXPECT_TRUE(merged(out) == expected);
  EXPECT_EQ(lines_in_parts(out), kPoints);
  EXPECT_EQ(run({"study", "--verify", place(out)}), 0);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / out)) {
    files += entry.exists() ? 1 : 0;
  }
  EXPECT_EQ(files, 4U) << "nothing is left of merges that were killed";
  RecordProperty("kills_in_the_work", std::to_string(resumed));
  RecordProperty("completed_between", completed);
  EXPECT_GT(resumed + completed, 0) << "no kill fell into the work";
}

TEST_F(StudyTool, WrongUseIsOneLineAndExitTwo) {
  ASSERT_EQ(run({"study", study_, "--out", place("done")}), 0) << err();
  const std::string other = folder_.write(
      "other.textproto", fmt::format("base {{ trace: \"{}\" }} seeds {{ count: 2 }}", place("t.pb")));
  const struct {
    Words words;
    const char* says;
  } kCases[] = {
      {{"study"}, "give one of"},
      {{"study", study_, "--merge", place("done")}, "give one of"},
      {{"study", "--merge", place("done"), "--shard", "1/2"}, "goes with a study file"},
      {{"study", study_, "--shard", "0/3"}, "--shard '0/3'"},
      {{"study", study_, "--threads", "0"}, "--threads"},
      {{"study", study_, "--ouut", "x"}, "--ouut"},
      {{"study", place("absent.textproto")}, "cannot be read"},
      {{"study", folder_.write("u.textproto", "grids { }")}, "Did you mean grid?"},
      {{"study", folder_.write("v.textproto", "grid { option: \"max_num_seqs\" value: \"many\" }")},
       "'many'"},
      {{"study", folder_.write("e.textproto", "grid { option: \"gpu\" }")}, "has no value"},
      {{"study", folder_.write("d.textproto", "grid { option: \"gpu\" value: \"h100\" value: \"h100\" }")},
       "the same points"},
      {{"study", other, "--out", place("done")}, "results of another study"},
      {{"study", study_, "--out", place("t.pb")}, "is a file"},
      {{"study", "--merge", place("absent")}, "no folder"},
      {{"study", "--verify", folder_.path().string()}, "has no results"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(run(c.words), 2) << c.says;
    EXPECT_THAT(err(), HasSubstr(c.says));
    EXPECT_EQ(std::ranges::count(err(), '\n'), 1) << err();
    EXPECT_EQ(bytes_of(folder_ / "stdout"), "");
  }
  ASSERT_EQ(run({"study", study_, "--out", place("third"), "--shard", "1/3"}), 0);
  EXPECT_EQ(run({"study", "--verify", place("third")}), 1) << "incomplete, not wrong";
  EXPECT_EQ(run({"study", "--merge", place("third")}), 2);
  EXPECT_THAT(err(), HasSubstr("32 of 48 points are missing (1, 2, 4, ...)"));
}

TEST_F(StudyTool, HelpHasAnExampleAndListRunsNothing) {
  for (const char* command : {"study", "matrix", "compare"}) {
    EXPECT_EQ(run({command, "--help"}), 0);
    EXPECT_THAT(bytes_of(folder_ / "stdout"), HasSubstr(fmt::format("Example: simulate {}", command)));
  }
  EXPECT_EQ(run({"study", study_, "--list", "--out", place("none")}), 0);
  EXPECT_THAT(bytes_of(folder_ / "stdout"),
              HasSubstr("\n17 {\"tensor_parallel_size\":1,\"scheduler\":\"orca\",\"sim_seed\":1}\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none"));
}

}  // namespace
}  // namespace kneepoint::sim
