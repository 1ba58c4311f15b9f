// The two-request run of run_files.h, replayed beside logs that agree with it and
// logs that do not; and the recorded runs, where every one of 30,555 steps agrees.
#include "calibrate/log_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "calibrate/calibrate_error.h"
#include "calibrate/subcommands.h"
#include "tests/calibrate/run_files.h"
#include "tests/support/shared_data.h"

namespace kneepoint::calibrate {
namespace {

std::string directory() {
  return testing::TempDir() + "kneepoint_log_replay";
}

std::string run_of(const std::string& steps, const std::string& more = "") {
  const std::string log = write_file(directory(), "serve.log", std::string(kStartLines) + steps);
  return "log=" + log + ",trace=" + write_file(directory(), "trace.jsonl", kTrace) + more;
}

LogReplay replay(const std::string& argument) {
  return replay_log(read_run(parse_run_argument(argument)));
}

TEST(LogReplay, TheHandWorkedRunAgrees) {
  const LogReplay result = replay(run_of(kSteps));
  ASSERT_TRUE(result.agrees());
  ASSERT_EQ(result.steps.size(), 2U);
  EXPECT_EQ(result.joined, (std::vector<std::size_t>{0, 1}));
  const sim::ReplayedStep& first = result.steps[0].ours;
  EXPECT_EQ(first.prefill_tokens, 6);
  EXPECT_EQ(first.attention_pairs, 21);  // 6 * 7 / 2.
  EXPECT_NEAR(first.kv_usage, 2.0 / 7, 1e-12);
  EXPECT_FALSE(first.idle_after);
  const sim::ReplayedStep& second = result.steps[1].ours;
  EXPECT_EQ(second.prefill_tokens, 5);
  EXPECT_EQ(second.sequences, 1);
  EXPECT_EQ(second.context_sum, 7);
  EXPECT_EQ(second.emitted, (std::vector<engine::RequestId>{0, 1}));
  EXPECT_TRUE(second.idle_after);
}

struct Difference {
  const char* name;
  std::string steps;
  std::size_t index;
  const char* rule;
};

const Difference kDifferences[] = {
    {"FewerTokens", step_line(40, 1, 6, 0, "28.6") + step_line(41, 1, 3, 1, "0.0"), 1, "token budget"},
    {"NobodyAdmitted", step_line(40, 1, 6, 0, "28.6") + step_line(41, 0, 0, 2, "0.0"), 1,
     "fewer requests decode"},
    {"MoreBlocks", step_line(40, 1, 6, 0, "42.9") + step_line(41, 1, 5, 1, "0.0"), 0, "KV blocks"},
    {"AThirdStep", kSteps + step_line(42, 0, 0, 1, "0.0"), 2, "nothing to run"},
};

class Differs : public testing::TestWithParam<Difference> {};

TEST_P(Differs, AtTheFirstStepThatDoesWithTheRule) {
  const LogReplay result = replay(
      run_of(GetParam().steps, ",cache=" + write_file(directory(), "fresh.json",
                                                      R"({"block_size": 4, "num_blocks": 8, "free_queue":
          [[1,null],[2,null],[3,null],[4,null],[5,null],[6,null],[7,null]]})")));
  ASSERT_TRUE(result.mismatch);
  EXPECT_EQ(result.mismatch->index, GetParam().index);
  EXPECT_EQ(result.steps.size(), GetParam().index);
  EXPECT_THAT(result.mismatch->rule, testing::HasSubstr(GetParam().rule));
}

INSTANTIATE_TEST_SUITE_P(, Differs, testing::ValuesIn(kDifferences),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(LogReplay, ALogThatEndsEarlyLeavesRequestsUnfinished) {
  const LogReplay result = replay(run_of(step_line(40, 1, 6, 0, "28.6")));
  EXPECT_FALSE(result.mismatch);
  EXPECT_EQ(result.unfinished, 2U);
  EXPECT_FALSE(result.agrees());
}

TEST(LogReplay, ALogWithAHoleIsRefused) {
  EXPECT_THROW(
      static_cast<void>(replay(run_of(step_line(40, 1, 6, 0, "28.6") + step_line(42, 1, 5, 1, "0.0")))),
      CalibrateError);
}

TEST(LogReplay, ALogWithoutStartUpLinesIsRefused) {
  const std::string log = write_file(directory(), "bare.log", kSteps);
  const std::string trace = write_file(directory(), "trace.jsonl", kTrace);
  EXPECT_THROW(static_cast<void>(replay("log=" + log + ",trace=" + trace)), CalibrateError);
}

// Block 3 of the pool still holds the first block of b's prompt (hash id 50), so
// b computes 5 - 4 = 1 token. The log shows the one token either way.
TEST(LogReplay, AHitOnAnEarlierRunsBlockIsTakenFromTheCacheState) {
  const std::string steps = step_line(40, 1, 6, 0, "28.6") + step_line(41, 1, 1, 1, "0.0");
  const std::string cache = write_file(directory(), "cache.json",
                                       R"({"block_size": 4, "num_blocks": 8, "free_queue":
                                           [[1,null],[2,null],[4,null],[5,null],[6,null],[3,50],[7,99]]})");
  const LogReplay given = replay(run_of(steps, ",cache=" + cache));
  EXPECT_TRUE(given.agrees());
  EXPECT_TRUE(given.inferred.empty());
  EXPECT_EQ(given.steps.at(1).ours.cached_tokens, 4);
}

TEST(LogReplay, OrIsInferredCountedAndNamed) {
  const LogReplay inferred = replay(run_of(step_line(40, 1, 6, 0, "28.6") + step_line(41, 1, 1, 1, "0.0")));
  EXPECT_TRUE(inferred.agrees());
  ASSERT_EQ(inferred.inferred.size(), 1U);
  EXPECT_EQ(inferred.inferred[0].request, 1U);
  EXPECT_EQ(inferred.inferred[0].blocks, 1);
}

// Nothing but a hit is inferred: a cache state that explains none leaves the difference.
TEST(LogReplay, ACacheStateIsBelieved) {
  const std::string cache = write_file(directory(), "empty.json",
                                       R"({"block_size": 4, "num_blocks": 8, "free_queue":
                                           [[1,null],[2,null],[4,null],[5,null],[6,null],[3,null],[7,99]]})");
  const LogReplay result =
      replay(run_of(step_line(40, 1, 6, 0, "28.6") + step_line(41, 1, 1, 1, "0.0"), ",cache=" + cache));
  ASSERT_TRUE(result.mismatch);
  EXPECT_THAT(result.mismatch->rule, testing::HasSubstr("prefix cache: the server hit more"));
}

TEST(LogReplay, ACacheStateOfAnotherPoolIsRefused) {
  const std::string cache = write_file(
      directory(), "small.json", R"({"block_size": 4, "num_blocks": 3, "free_queue": [[1,null],[2,null]]})");
  EXPECT_THROW(static_cast<void>(replay(run_of(kSteps, ",cache=" + cache))), CalibrateError);
}

TEST(CheckSteps, ExitsWithOneUnlessEveryStepAgrees) {
  EXPECT_EQ(run_check_steps({"--run", run_of(kSteps)}), 0);
  EXPECT_EQ(
      run_check_steps({"--run", run_of(step_line(40, 1, 6, 0, "28.6") + step_line(41, 1, 3, 1, "0.0"))}), 1);
  EXPECT_EQ(run_check_steps({"--run", run_of(step_line(40, 1, 6, 0, "28.6"))}), 1);
}

class RecordedRun : public testing::TestWithParam<const char*> {};

TEST_P(RecordedRun, AgreesOnEveryStepWithAndWithoutItsCacheState) {
  const std::string name = GetParam();
  KNEEPOINT_SHARED_OR_SKIP(client, "data/runs/vllm_cpu/" + name + ".json");
  const std::string base = client.parent_path().string() + "/";
  std::string argument = "log=" + base + "server_" + name.substr(0, 1) + ".log";
  if (name[0] != 'C') argument += ",log=" + base + name + ".steps.log";
  argument += ",client=" + client.string() + ",trace=" + base + name + ".trace.jsonl";
  const LogReplay inferred = replay(argument);
  EXPECT_TRUE(inferred.agrees()) << inferred.steps.size() << " of " << inferred.logged_steps;
  const std::string cache = base + name + ".cache.json";
  if (!std::filesystem::exists(cache)) return;
  const LogReplay given = replay(argument + ",cache=" + cache);
  EXPECT_TRUE(given.agrees()) << given.steps.size() << " of " << given.logged_steps;
}

INSTANTIATE_TEST_SUITE_P(, RecordedRun,
                         testing::Values("A_conc16", "A_rate4", "A_rate8", "B_conc16", "B_rate3", "C_rate4",
                                         "D_azure_conv"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace kneepoint::calibrate
