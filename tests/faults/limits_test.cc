// Runs that a limit stops, and results that are run again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/paired_books.h"
#include "sim/reproduce.h"
#include "sim/usage_error.h"
#include "sim/verify_folder.h"
#include "tests/faults/tool.h"

namespace kneepoint::faults {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() { make_trace(folder_ / "t.pb", 200, 1); }  // About 10 s: one every 50 ms.

  Outcome simulate(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {simulate_tool(), "--trace", "t.pb"});
    return run(folder_ / "", arguments);
  }
  Json result() { return Json::parse(contents(folder_ / "out")["result.json"]); }

  TestFolder folder_;
};

// Requests 0 to 19 are sent in the first second: the i-th at 0.05 s * (i + 1) and a little.
TEST_F(LimitsTest, SimulatedTime) {
  const Outcome outcome = simulate({"--max-sim-time", "1", "--out", "out"});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.out, HasSubstr("Simulated Serving Benchmark Result, PARTIAL"));
  EXPECT_THAT(outcome.out, HasSubstr("PARTIAL: stopped by --max-sim-time 1 s"));
  EXPECT_THAT(outcome.err, HasSubstr("simulate: PARTIAL: stopped by --max-sim-time 1 s"));
  const Json json = result();
  EXPECT_EQ(json["partial"], true);
  EXPECT_EQ(json["stopped_by"], "--max-sim-time 1 s");
  EXPECT_LE(json["duration"], 1.0);
  EXPECT_EQ(json["completed"].get<int>() + json["unfinished"].get<int>(), 19);
  EXPECT_EQ(json["num_prompts"], 19);
  EXPECT_EQ(json["unsent"], 181);
  EXPECT_TRUE(sim::verify_folder(folder_ / "out").problems.empty());
}

TEST_F(LimitsTest, Requests) {
  EXPECT_EQ(simulate({"--max-requests", "7", "--out", "out"}).status, 3);
  EXPECT_EQ(result()["completed"], 7);
  EXPECT_EQ(result()["stopped_by"], "--max-requests 7");
  // A limit that nobody meets, or only with the last request, stops nothing.
  for (const char* const limit : {"200", "201"}) {
    const Outcome whole = simulate({"--max-requests", limit, "--max-sim-time", "1000", "--out", "out"});
    EXPECT_EQ(whole.status, 0);
    EXPECT_EQ(whole.out.find("PARTIAL"), std::string::npos);
    EXPECT_EQ(result()["partial"], false);
    EXPECT_EQ(result()["completed"], 200);
    EXPECT_TRUE(result()["stopped_by"].is_null());
  }
}

TEST_F(LimitsTest, WallTime) {
  EXPECT_EQ(simulate({"--max-wall-time", "1e-9", "--out", "out"}).status, 3);
  EXPECT_EQ(result()["partial"], true);
  const Outcome again = run(folder_ / "", {simulate_tool(), "--reproduce", "out/result.json", "--trace", "t.pb"});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("was stopped by --max-wall-time, which nobody can repeat"));
  EXPECT_EQ(simulate({"--max-wall-time", "3600"}).status, 0);
}

TEST_F(LimitsTest, WrongOnesAreRefused) {
  for (const char* const flag : {"--max-sim-time", "--max-wall-time", "--max-requests"}) {
    for (const char* const value : {"0", "-1", "x"}) {
      const Outcome outcome = simulate({flag, value});
      EXPECT_EQ(outcome.status, 2) << flag << " " << value;
      EXPECT_THAT(outcome.err, HasSubstr(flag));
    }
  }
}

// The accounts of a run that was stopped agree like those of a whole one, and they are there to be read.
TEST_F(LimitsTest, AuditIsInEveryResult) {
  for (const char* const limit : {"3", "1000"}) {
    simulate({"--max-sim-time", limit, "--client-timeout", "0.05", "--out", "out"});
    const Json audit = result()["audit"];
    ASSERT_GE(audit.size(), 5U);
    for (const auto& [total, ways] : audit.items()) {
      ASSERT_EQ(ways.size(), 2U) << total;
      EXPECT_EQ(*ways.begin(), *std::next(ways.begin())) << total;
    }
    EXPECT_EQ(audit["requests"]["sent"], result()["num_prompts"]);
    EXPECT_EQ(audit["scheduled_tokens"]["by_plan"], result()["scheduled_tokens"]);
    EXPECT_GT(audit["sampled_tokens"]["by_request"], 0);
    EXPECT_EQ(audit.contains("blocks"), std::string(limit) == "1000");
  }
}

TEST_F(LimitsTest, ReproducesWholeAndPartialResults) {
  const std::vector<std::string> again = {simulate_tool(), "--reproduce", "out/result.json", "--trace", "t.pb"};
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{}, {"--max-sim-time", "2"}, {"--save-detailed", "--gpu", "l40s", "--sim-seed", "7"},
        {"--request-rate", "30", "--max-concurrency", "4"}}) {
    std::vector<std::string> arguments = flags;
    arguments.insert(arguments.end(), {"--out", "out"});
    simulate(arguments);
    const Outcome outcome = run(folder_ / "", again);
    EXPECT_EQ(outcome.status, 0) << outcome.out;
    EXPECT_EQ(outcome.out, "out/result.json: reproduced, every key is equal\n");
  }
  // A figure that was changed is named; another trace is refused before anything runs.
  Contents out = contents(folder_ / "out");
  Json json = Json::parse(out["result.json"]);
  json["completed"] = 199;
  json["peak_running"] = -1;
  write_file(folder_ / "out/result.json", json.dump());
  const Outcome changed = run(folder_ / "", again);
  EXPECT_EQ(changed.status, 1);
  EXPECT_THAT(changed.out, HasSubstr("not reproduced; first difference: completed: recorded 199, now 200"));
  make_trace(folder_ / "other.pb", 200, 2);
  const Outcome other =
      run(folder_ / "", {simulate_tool(), "--reproduce", "out/result.json", "--trace", "other.pb"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("was made with another trace than other.pb"));
  write_file(folder_ / "out/result.json", "{}");
  EXPECT_EQ(run(folder_ / "", again).status, 2);
}

sim::SimTime at(int seconds) { return sim::SimTime(std::chrono::seconds(seconds)); }

// Two requests, under way from 0 to 3 s and from 1 to 4 s: 1 + 2 + 2 + 1 = 6 request-seconds, and 3 + 3 = 6. In
// the engine one is from 0 to 2 s, the other from 1 to 3 s: 1 + 2 + 1 = 2 + 2 = 4.
sim::PairedBooks balanced() {
  using std::chrono::seconds;
  sim::PairedBooks books;
  books.sent(at(0));
  books.sent(at(1));
  books.over(at(3), at(0));
  books.over(at(4), at(1));
  books.engine_held(seconds(1), 1);
  books.engine_held(seconds(1), 2);
  books.engine_held(seconds(1), 1);
  books.left_engine(seconds(2));
  books.left_engine(seconds(2));
  books.planned_tokens(100);
  books.member_tokens(60);
  books.member_tokens(40);
  books.step_gave(7);
  books.request_got(3);
  books.request_got(4);
  return books;
}

TEST(PairedBooks, AgreeOnAWorkedRun) {
  const std::vector<sim::AuditLine> lines = balanced().close(at(5), true, 99, 99);
  ASSERT_EQ(lines.size(), 6U);
  const std::uint64_t expected[] = {2, 100, 7, 4'000'000'000, 6'000'000'000, 99};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].first, expected[i]) << lines[i].total;
    EXPECT_EQ(lines[i].second, expected[i]) << lines[i].total;
  }
}

// Each account, off by one on one side.
TEST(PairedBooks, AnUnequalPairStopsTheRun) {
  const auto dies = [](auto spoil, const char* message, std::int64_t free_blocks = 99) {
    sim::PairedBooks books = balanced();
    spoil(books);
    EXPECT_DEATH(static_cast<void>(books.close(at(5), true, free_blocks, 99)), message);
  };
  using sim::PairedBooks;
  dies([](PairedBooks& b) { b.sent(at(5)); }, "PAIRED_ACCOUNTS: requests: sent 3, over_or_unfinished 2");
  dies([](PairedBooks& b) { b.planned_tokens(1); }, "PAIRED_ACCOUNTS: scheduled_tokens: by_plan 101, by_member 100");
  dies([](PairedBooks& b) { b.request_got(1); }, "PAIRED_ACCOUNTS: sampled_tokens: by_step 7, by_request 8");
  dies([](PairedBooks& b) { b.left_engine(sim::SimDuration(1)); }, "PAIRED_ACCOUNTS: engine_time_ns");
  dies([](PairedBooks& b) { b.sent(at(4)); b.over(at(5), at(5)); }, "PAIRED_ACCOUNTS: client_time_ns");
  dies([](PairedBooks&) {}, "PAIRED_ACCOUNTS: blocks: free_at_end 98, usable 99", 98);
}

TEST(FirstDifference, NamesKeyAndValues) {
  const std::string base = R"({"kneepoint_version": "1", "a": 1, "b": [1, 2]})";
  EXPECT_FALSE(sim::first_difference("r", base, base));
  EXPECT_EQ(sim::first_difference("r", base, R"({"kneepoint_version": "1", "a": 1, "b": [1, 3]})"),
            "b: recorded [1,2], now [1,3]");
  EXPECT_EQ(sim::first_difference("r", base, R"({"kneepoint_version": "1", "b": [1, 2]})"), "a: recorded 1, now absent");
  EXPECT_EQ(sim::first_difference("r", base, R"({"kneepoint_version": "1", "a": 1, "b": [1, 2], "c": 0})"),
            "c: not recorded, now 0");
  EXPECT_THROW(static_cast<void>(sim::first_difference("r", "[", base)), sim::UsageError);
}

}  // namespace
}  // namespace kneepoint::faults
