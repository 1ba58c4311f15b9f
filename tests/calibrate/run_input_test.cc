// What a run's files must not contain: each row is one thing wrong with an
// otherwise good client result, and what the refusal names.
#include "calibrate/run_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "calibrate/calibrate_error.h"
#include "tests/calibrate/run_files.h"

namespace kneepoint::calibrate {
namespace {

using nlohmann::json;

std::string directory() {
  return testing::TempDir() + "kneepoint_run_input";
}

// Two requests, sent 1 ms apart, in seconds as the client writes them.
json good_result() {
  return {{"date", "20261002-100011"},
          {"model_id", "m"},
          {"duration", 1.0},
          {"completed", 2},
          {"failed", 0},
          {"max_concurrency", nullptr},
          {"input_lens", {6, 5}},
          {"output_lens", {2, 1}},
          {"ttfts", {0.010, 0.012}},
          {"itls", {{0.006}, json::array()}},
          {"start_times", {100.0, 100.001}},
          {"latencies", {0.016, 0.012}},
          {"queue_times", {0.0, 0.0}},
          {"errors", {"", ""}},
          {"mean_ttft_ms", 11.0}};
}

TEST(ClientResult, IsReadInSecondsFromTheFirstSend) {
  const ClientRun run = read_client_result(write_file(directory(), "good.json", good_result().dump()));
  ASSERT_EQ(run.requests.size(), 2U);
  EXPECT_NEAR(run.requests[1].start_s, 0.001, 1e-9);
  EXPECT_DOUBLE_EQ(run.requests[0].ttft_s, 0.010);
  EXPECT_EQ(run.requests[0].itls_s.size(), 1U);
  EXPECT_FALSE(run.max_concurrency);
  EXPECT_EQ(run.end_stamp, parse_stamp("10-02 10:00:11"));
}

struct Garbage {
  const char* name;
  const char* patch;  // RFC 7396 merge patch.
  const char* named;  // Part of the refusal.
};

const Garbage kGarbage[] = {
    {"NegativeTtft", R"({"ttfts": [-0.01, 0.012]})", "ttfts[0]"},
    {"MissingTtfts", R"({"ttfts": null})", "no field 'ttfts'"},
    {"OneTtftShort", R"({"ttfts": [0.01]})", "'ttfts' has 1 entries"},
    {"AFailureMixedIn", R"({"errors": ["", "timeout"], "failed": 1})", "request 1 failed (timeout)"},
    {"FailuresOnlyCounted", R"({"failed": 3})", "3 requests failed"},
    {"MillisecondsThroughout", R"({"ttfts": [10, 12], "latencies": [16, 12]})", "are the times in ms?"},
    {"SummaryInOtherUnits", R"({"mean_ttft_ms": 0.011})", "mean_ttft_ms"},
    {"FirstTokenAfterTheLast", R"({"ttfts": [0.020, 0.012]})", "larger than latencies[0]"},
    {"NoPromptTokens", R"({"input_lens": [0, 5]})", "input_lens[0]"},
    {"LengthsAsText", R"({"output_lens": ["2", 1]})", "output_lens[0]"},
    {"NoRequest", R"({"input_lens": []})", "holds no request"},
};

class ClientGarbage : public testing::TestWithParam<Garbage> {};

TEST_P(ClientGarbage, IsRefusedByName) {
  json result = good_result();
  result.merge_patch(json::parse(GetParam().patch));
  const std::string path = write_file(directory(), std::string(GetParam().name) + ".json", result.dump());
  try {
    static_cast<void>(read_client_result(path));
    FAIL() << "was read";
  } catch (const CalibrateError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().named));
    EXPECT_THAT(error.what(), testing::HasSubstr(path));
  }
}

INSTANTIATE_TEST_SUITE_P(, ClientGarbage, testing::ValuesIn(kGarbage),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ClientResult, CutAndNanAreNoJson) {
  std::string text = good_result().dump();
  EXPECT_THROW(static_cast<void>(read_client_result(write_file(directory(), "cut.json", text.substr(0, 90)))),
               CalibrateError);
  text.replace(text.find("0.016"), 5, "NaN");
  EXPECT_THROW(static_cast<void>(read_client_result(write_file(directory(), "nan.json", text))),
               CalibrateError);
}

TEST(RunArgument, TakesLogsRepeatedlyAndTheRestOnce) {
  const RunFiles files = parse_run_argument("log=a.log,log=b.log,client=c.json,trace=t.jsonl,cache=k.json");
  EXPECT_EQ(files.logs.size(), 2U);
  EXPECT_EQ(files.name, "c");
  EXPECT_EQ(parse_run_argument("log=a.log,log=b.steps.log").name, "b.steps");
  for (const char* wrong : {"", "trace=t", "log", "log=", "client=a,client=b", "logs=a"}) {
    EXPECT_THROW(static_cast<void>(parse_run_argument(wrong)), CalibrateError) << wrong;
  }
}

TEST(RunFilesTogether, MustBeOfOneRun) {
  const std::string log = write_file(directory(), "serve.log", std::string(kStartLines) + kSteps);
  const std::string trace = write_file(directory(), "trace.jsonl", kTrace);
  const std::string client = write_file(directory(), "client.json", good_result().dump());
  const calibrate::Run run = read_run(parse_run_argument("log=" + log + ",client=" + client + ",trace=" + trace));
  EXPECT_EQ(steps_of_run(run).size(), 2U);

  json other_model = good_result();
  other_model["model_id"] = "another";
  const std::string wrong_model = write_file(directory(), "model.json", other_model.dump());
  EXPECT_THROW(static_cast<void>(read_run(parse_run_argument("log=" + log + ",client=" + wrong_model))),
               CalibrateError);

  json other_lengths = good_result();
  other_lengths["input_lens"] = {7, 5};
  const std::string wrong_lengths = write_file(directory(), "lengths.json", other_lengths.dump());
  EXPECT_THROW(static_cast<void>(read_run(
                   parse_run_argument("log=" + log + ",client=" + wrong_lengths + ",trace=" + trace))),
               CalibrateError);
}

TEST(RunFilesTogether, WhatAMissingPartCostsIsSaid) {
  const std::string log = write_file(directory(), "serve.log", std::string(kStartLines) + kSteps);
  const calibrate::Run run = read_run(parse_run_argument("log=" + log));
  EXPECT_EQ(run.cannot.size(), 3U);  // Client, trace, which blocks are shared.
}

}  // namespace
}  // namespace kneepoint::calibrate
