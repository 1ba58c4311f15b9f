// One line at a time: what each release, container and pipe puts in front, and
// what is wrong with lines that must not be used.
#include "calibrate/log_line.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace kneepoint::calibrate {
namespace {

struct PrefixCase {
  const char* name;
  const char* line;
  const char* stream;
  LogProcess process;
  std::int64_t pid;
  std::int64_t rank;
  bool stamped;
  const char* text;
};

const PrefixCase kPrefixes[] = {
    {"Plain032", "INFO 11-30 21:30:17 [loggers.py:199] Engine 000: hello", "", LogProcess::kUnknown, -1, -1,
     true, "Engine 000: hello"},
    {"ApiServer", "(APIServer pid=6925) INFO 11-30 21:45:50 [loggers.py:199] x", "", LogProcess::kApiServer,
     6925, -1, true, "x"},
    {"CoreWithRank", "(EngineCore_DP1 pid=37032) INFO 07-09 17:13:55 [core.py:359] x", "",
     LogProcess::kEngineCore, 37032, 1, true, "x"},
    {"Compose", "vllm-1  | (APIServer pid=1) INFO 10-02 10:00:00 [utils.py:233] x", "vllm-1",
     LogProcess::kApiServer, 1, -1, true, "x"},
    {"Journald", "Aug 25 19:32:10 sys0 vllm[7222]: (APIServer pid=7222) INFO 08-25 19:32:10 [vllm.py:1109] x",
     "", LogProcess::kApiServer, 7222, -1, true, "x"},
    {"CollectorStamp", "2026-04-19 17:31:11.380 | (APIServer pid=1) INFO 04-19 15:31:11 [a.py:1] x", "",
     LogProcess::kApiServer, 1, -1, true, "x"},
    {"RayNested",
     "(APIServer pid=5332) (DPEngineCoreActor pid=5439, ip=10.0.0.1) INFO 01-12 06:15:17 [core.py:77] x", "",
     LogProcess::kEngineCore, 5439, -1, true, "x"},
    {"NoLevel", "(Worker pid=5)   warnings.warn(", "", LogProcess::kOther, 5, -1, false, "warnings.warn("},
    {"NotOurs", "Triton is installed, but doesn't include CPU backend.", "", LogProcess::kUnknown, -1, -1,
     false, "Triton is installed, but doesn't include CPU backend."},
};

class Prefix : public testing::TestWithParam<PrefixCase> {};

TEST_P(Prefix, IsTakenApart) {
  const PrefixCase& c = GetParam();
  const LogLine line = parse_log_line(c.line);
  EXPECT_EQ(line.stream, c.stream);
  EXPECT_EQ(line.process, c.process);
  EXPECT_EQ(line.pid, c.pid);
  EXPECT_EQ(line.rank, c.rank);
  EXPECT_EQ(line.stamp.has_value(), c.stamped);
  EXPECT_EQ(line.text, c.text);
}

INSTANTIATE_TEST_SUITE_P(, Prefix, testing::ValuesIn(kPrefixes),
                         [](const auto& row) { return std::string(row.param.name); });

// The log has no year. 1 March is day 60 of a leap year: 60 * 86400 + 3723.
TEST(Stamp, CountsSecondsOfALeapYear) {
  EXPECT_EQ(parse_stamp("01-01 00:00:00"), 0);
  EXPECT_EQ(parse_stamp("03-01 01:02:03"), 60 * 86400 + 3723);
  EXPECT_EQ(parse_stamp("13-01 00:00:00"), std::nullopt);
  EXPECT_EQ(parse_stamp("01-01 24:00:00"), std::nullopt);
  EXPECT_EQ(parse_stamp("1-1 00:00"), std::nullopt);
}

struct IterationCase {
  const char* name;
  const char* line;
  LineResult result;
  double elapsed_s;
  double kv_usage;  // -1: not said.
};

constexpr const char* kWhole =
    "INFO 11-30 21:30:17 [loggers.py:199] Engine 002: Iteration(7): 5 context requests, 1023 context tokens, "
    "1 "
    "generation requests, 1 generation tokens, iteration elapsed time: 267.09 ms, CPU KV cache usage: 7.2%";

const IterationCase kIterations[] = {
    {"Release032", kWhole, LineResult::kRead, 0.26709, 0.072},
    {"BeforeKvUsage",
     "(EngineCore_DP2 pid=9) INFO 07-09 17:13:55 [core.py:359] Iteration(7): 5 context requests, 1023 "
     "context tokens, 1 "
     "generation requests, 1 generation tokens, iteration elapsed time: 267.09 ms",
     LineResult::kRead, 0.26709, -1},
    {"SecondsAreSeconds",
     "Engine 002: Iteration(7): 5 context requests, 1023 context tokens, 1 generation requests, 1 generation "
     "tokens, "
     "iteration elapsed time: 0.26709 s",
     LineResult::kRead, 0.26709, -1},
    {"CutInTheMiddle", "Engine 002: Iteration(7): 5 context requests, 1023 context tok",
     LineResult::kCutShort, 0, -1},
    {"CutInTheNumber", "Engine 002: Iteration(7", LineResult::kCutShort, 0, -1},
    {"NegativeTime",
     "Engine 002: Iteration(7): 5 context requests, 1023 context tokens, 1 generation requests, 1 generation "
     "tokens, "
     "iteration elapsed time: -3.00 ms",
     LineResult::kAbsurd, 0, -1},
    {"NotANumber",
     "Engine 002: Iteration(7): 5 context requests, 1023 context tokens, 1 generation requests, 1 generation "
     "tokens, "
     "iteration elapsed time: nan ms",
     LineResult::kAbsurd, 0, -1},
    {"FewerTokensThanRequests",
     "Engine 002: Iteration(7): 5 context requests, 4 context tokens, 1 generation requests, 1 generation "
     "tokens, "
     "iteration elapsed time: 3.00 ms",
     LineResult::kAbsurd, 0, -1},
    {"MoreThanAllBlocks",
     "Engine 002: Iteration(7): 5 context requests, 1023 context tokens, 1 generation requests, 1 generation "
     "tokens, "
     "iteration elapsed time: 3.00 ms, GPU KV cache usage: 107.2%",
     LineResult::kAbsurd, 0, -1},
    {"AnotherLine", "INFO 11-30 21:30:17 [loggers.py:199] Engine 000: Avg prompt throughput: 1.0 tokens/s",
     LineResult::kOtherKind, 0, -1},
};

class Iteration : public testing::TestWithParam<IterationCase> {};

TEST_P(Iteration, IsReadOrNamed) {
  const IterationCase& c = GetParam();
  IterationLine step;
  std::map<std::string, std::int64_t> unknown;
  ASSERT_EQ(parse_iteration(parse_log_line(c.line), step, unknown), c.result);
  if (c.result != LineResult::kRead) return;
  EXPECT_EQ(step.iteration, 7);
  EXPECT_EQ(step.rank, 2);
  EXPECT_EQ(step.context_requests, 5);
  EXPECT_EQ(step.context_tokens, 1023);
  EXPECT_EQ(step.generation_requests, 1);
  EXPECT_EQ(step.generation_tokens, 1);
  EXPECT_DOUBLE_EQ(step.elapsed_s, c.elapsed_s);
  EXPECT_DOUBLE_EQ(step.kv_usage.value_or(-1), c.kv_usage);
  EXPECT_TRUE(unknown.empty());
}

INSTANTIATE_TEST_SUITE_P(, Iteration, testing::ValuesIn(kIterations),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(IterationFields, AFieldOfANewReleaseIsNamed) {
  IterationLine step;
  std::map<std::string, std::int64_t> unknown;
  const std::string line = std::string(kWhole) + ", 3 stalled widgets";
  EXPECT_EQ(parse_iteration(parse_log_line(line), step, unknown), LineResult::kRead);
  EXPECT_EQ(unknown, (std::map<std::string, std::int64_t>{{"stalled widgets", 1}}));
}

TEST(Stats, TenSecondLineIsRead) {
  StatsLine stats;
  std::map<std::string, std::int64_t> unknown;
  const LogLine line = parse_log_line(
      "(APIServer pid=1) INFO 11-30 21:45:53 [loggers.py:335] Engine 000: Avg prompt throughput: 620.5 "
      "tokens/s, Avg "
      "generation throughput: 43.7 tokens/s, Running: 4 reqs, Waiting: 2 reqs, CPU KV cache usage: 7.8%, "
      "Prefix cache "
      "hit rate: 4.4%, External prefix cache hit rate: 0.0%");
  ASSERT_EQ(parse_stats(line, stats, unknown), LineResult::kRead);
  EXPECT_DOUBLE_EQ(stats.prompt_tokens_per_s, 620.5);
  EXPECT_EQ(stats.running, 4);
  EXPECT_EQ(stats.waiting, 2);
  EXPECT_DOUBLE_EQ(*stats.kv_usage, 0.078);
  EXPECT_DOUBLE_EQ(*stats.prefix_hit_rate, 0.044);
  EXPECT_EQ(unknown.size(), 1U);  // The external cache's rate is another one.
}

TEST(PythonPairs, SplitAtTheTopLevelOnly) {
  bool complete = false;
  const auto pairs = split_python_pairs(
      "'model': 'a, b', 'cc': {'x': 1, 'y': [2, 3]}, 'n': 64, 'f': F(z='q}')", ':', complete);
  EXPECT_TRUE(complete);
  const std::vector<std::pair<std::string, std::string>> expected{
      {"model", "a, b"}, {"cc", "{'x': 1, 'y': [2, 3]}"}, {"n", "64"}, {"f", "F(z='q}')"}};
  EXPECT_EQ(pairs, expected);
  static_cast<void>(split_python_pairs("'model': 'a, b', 'cc': {'x': 1", ':', complete));
  EXPECT_FALSE(complete);
}

}  // namespace
}  // namespace kneepoint::calibrate
