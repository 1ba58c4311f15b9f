// The recorded decisions agree with ours, and the comparison would notice if they did not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/golden/recorded_case.h"
#include "tests/golden/replay.h"
#include "tests/support/shared_data.h"

namespace kneepoint::golden {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::test_file;

/// Replays every case of a file; returns how many there were.
int expect_agreement(const fs::path& file) {
  int cases = 0;
  for_each_case(file, [&](const RecordedCase& recorded) {
    ++cases;
    for (const Way way : {Way::kWalked, Way::kCohort}) {
      const ReplayOutcome outcome = replay(recorded, way);
      EXPECT_EQ(outcome.events, std::ssize(recorded.trace)) << recorded.name;
      if (outcome.difference) {
        const Difference& d = *outcome.difference;
        ADD_FAILURE() << fmt::format("{}{}: step {}, {}: ours {}, theirs {}", recorded.name,
                                     way == Way::kCohort ? " (cohort)" : "", d.step, d.field, d.ours, d.theirs);
      }
    }
    EXPECT_NO_THROW(validate(recorded.script.config)) << recorded.name << ": vLLM accepted this config";
  });
  return cases;
}

TEST(Recordings, The79ScenariosAgree) {
  EXPECT_EQ(expect_agreement(test_file("golden/vllm/scenarios.json")), 79);
}

TEST(Recordings, AHundredRandomWorkloadsAgree) {
  EXPECT_EQ(expect_agreement(test_file("golden/vllm/random100.jsonl.gz")), 100);
}

TEST(Shared, All400RandomWorkloadsAgree) {
  KNEEPOINT_SHARED_OR_SKIP(file, "vllm/fuzz.jsonl.gz");
  EXPECT_EQ(expect_agreement(file), 400);
}

RecordedCase scenario(std::string_view name) {
  RecordedCase found;
  for_each_case(test_file("golden/vllm/scenarios.json"), [&](const RecordedCase& recorded) {
    if (recorded.name == name) {
      found = recorded;
    }
  });
  if (found.trace.empty()) {
    throw std::invalid_argument(fmt::format("no scenario {}", name));
  }
  return found;
}

// One row per field of an event: changed in the recording of C75 (three in flight, preemption, deferred
// marks, the free queue recorded), it must be the difference that is found.
struct Change {
  const char* pointer;  ///< JSON pointer into the trace.
  const char* value;
  const char* field;  ///< As reported.
};

const Change kChanges[] = {
    {"/0/step", "7", "schedule.step"},
    {"/0/total", "21", "schedule.total"},
    {"/0/sched/1/id", "\"a\"", "schedule.sched[1].id"},
    {"/0/sched/1/n", "8", "schedule.sched[1].n"},
    {"/0/sched/1/computed", "1", "schedule.sched[1].computed"},
    {"/0/sched/1/kind", "\"resumed\"", "schedule.sched[1].kind"},
    {"/0/sched/1/spec", "1", "schedule.sched[1].spec"},
    {"/0/sched/1/blocks", "[4,3]", "schedule.sched[1].blocks"},
    {"/0/sched", "[]", "schedule.sched"},
    {"/2/preempted", "[]", "schedule.preempted"},
    {"/0/finished", "[\"a\"]", "schedule.finished"},
    {"/0/running", "[\"b\",\"a\",\"c\"]", "schedule.running"},
    {"/2/waiting", "[\"d\",\"c\"]", "schedule.waiting"},
    {"/0/skipped", "[\"c\"]", "schedule.skipped"},
    {"/4/queue", "[\"d\"]", "schedule.queue"},
    {"/4/skipped", "[]", "schedule.skipped"},
    {"/0/free", "2", "schedule.free"},
    {"/0/usage", "0.857142", "schedule.usage"},
    {"/0/free_queue", "[]", "schedule.free_queue"},
    {"/3/out/0/toks", "[]", "update.out[0].toks"},
    {"/3/out/0/fin", "\"STOP\"", "update.out[0].fin"},
    {"/3/free", "2", "update.free"},
    {"/3/free_queue", "[6]", "update.free_queue"},
    {"/3/ev", "\"schedule\"", "update.ev"},
};

TEST(Comparison, NoticesAChangeInAnyField) {
  const RecordedCase original = scenario("C75_set_aside_order");
  for (const Change& change : kChanges) {
    RecordedCase changed = original;
    nlohmann::json trace = changed.trace;
    trace[nlohmann::json::json_pointer(change.pointer)] = nlohmann::json::parse(change.value);
    changed.trace = trace.get<std::vector<nlohmann::json>>();
    const ReplayOutcome outcome = replay(changed);
    ASSERT_TRUE(outcome.difference) << change.pointer;
    EXPECT_EQ(outcome.difference->field, change.field);
  }
}

TEST(Comparison, NoticesMissingAndSurplusEvents) {
  RecordedCase shorter = scenario("C01_basic");
  RecordedCase longer = shorter;
  shorter.trace.pop_back();
  longer.trace.push_back(longer.trace.back());
  EXPECT_TRUE(replay(shorter).difference);
  EXPECT_TRUE(replay(longer).difference);
}

TEST(Comparison, NoticesAnotherScript) {
  RecordedCase other = scenario("C01_basic");
  other.script.config.num_blocks += 1;
  EXPECT_TRUE(replay(other).difference);
}

// Files that are no recordings: one clear line each.
struct BadFile {
  const char* name;
  const char* content;
  const char* message;
};

const BadFile kBadFiles[] = {
    {"empty.jsonl", "", "has no recorded case"},
    {"blank.jsonl", "\n\n", "has no recorded case"},
    {"no_cases.json", "[]", "has no recorded case"},
    {"cut.jsonl", R"({"seed": 1, "script": {"config")", "cut short"},
    {"events.jsonl", R"({"ev": "schedule", "step": 0})", "no 'script'"},
    {"no_trace.jsonl", R"({"seed": 1, "script": {}})", "no 'trace'"},
    {"empty_trace.jsonl", R"({"seed": 1, "script": {}, "trace": []})", "no event"},
    {"odd_event.jsonl", R"({"seed": 1, "script": {}, "trace": [{"ev": "sleep"}]})", "unknown event"},
    {"odd_option.jsonl",
     R"({"seed": 1, "script": {"config": {"blok_size": 1}}, "trace": [{"ev": "update"}]})",
     "option 'blok_size' is not known"},
    {"odd_method.jsonl",
     R"({"seed": 1, "script": {"config": {"spec_method": "x"}}, "trace": [{"ev": "update"}]})",
     "unknown spec_method 'x'"},
    {"zero.jsonl", R"({"script": {"config": {"block_size": 0}}, "trace": [{"ev": "update"}]})",
     "zero or negative"},
    {"odd_type.jsonl",
     R"({"seed": 1, "script": {"config": {"block_size": "x"}}, "trace": [{"ev": "update"}]})",
     "must be number"},
    {"twice.jsonl",
     R"({"script": {"requests": [{"id": "a", "prompt": 1}, {"id": "a", "prompt": 1}]}, "trace": [{"ev": "update"}]})",
     "used twice"},
    {"no_prompt.jsonl", R"({"script": {"requests": [{"id": "a"}]}, "trace": [{"ev": "update"}]})",
     "prompt tokens"},
};

std::string error_of(const fs::path& file) {
  try {
    for_each_case(file, [](const RecordedCase&) {});
  } catch (const RecordingError& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(RecordingError, SaysWhichFileAndWhy) {
  const fs::path folder = fs::path(testing::TempDir()) / "kneepoint_recordings";
  fs::create_directories(folder);
  for (const BadFile& bad : kBadFiles) {
    const fs::path file = folder / bad.name;
    std::ofstream(file) << bad.content;
    const std::string error = error_of(file);
    EXPECT_THAT(error, HasSubstr(bad.message)) << bad.name;
    EXPECT_THAT(error, HasSubstr(bad.name)) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_THAT(error_of(folder / "absent.jsonl"), HasSubstr("absent.jsonl: no such file"));
  EXPECT_THAT(error_of(folder), HasSubstr("not a file"));
  std::ofstream(folder / "no_trace.json") << R"([{"name": "nowhere", "script": {}}])";
  EXPECT_THAT(error_of(folder / "no_trace.json"), HasSubstr("golden/nowhere.jsonl: no such file"));
}

TEST(RecordingError, NoticesAGzipFileCutShort) {
  const fs::path whole = test_file("golden/vllm/random100.jsonl.gz");
  const fs::path cut = fs::path(testing::TempDir()) / "kneepoint_cut.jsonl.gz";
  fs::copy_file(whole, cut, fs::copy_options::overwrite_existing);
  fs::resize_file(cut, fs::file_size(whole) / 2);
  EXPECT_THAT(error_of(cut), HasSubstr("cut short"));
}

}  // namespace
}  // namespace kneepoint::golden
