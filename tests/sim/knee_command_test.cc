// `simulate knee` as it is typed: one server of known times, the words around it.
#include "sim/knee_command.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "hw/measured_step.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class KneeCommand : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("kneepoint_knee_{}", ::getpid());
    fs::create_directories(folder_);
    // Every step takes 10 ms, give or take one percent, whatever it computes.
    const hw::Measured none{0, 0, "assumed: none"};
    hw::MeasuredServer server;
    server.model = "toy";
    server.architecture = "toy";
    server.machine = "toy";
    server.release = "toy";
    server.source = "made up";
    server.base_s = {0.010, 0.0001, "assumed"};
    for (hw::Measured* one :
         {&server.prefill_token_s, &server.attention_pair_s, &server.sequence_beyond_s,
          &server.context_token_s, &server.gap_base_s, &server.gap_per_output_s, &server.gap_with_prefill_s,
          &server.arrival_s, &server.output_s, &server.output_per_request_s, &server.turnaround_s}) {
      *one = none;
    }
    server.sequences = {{1, none}};
    server.max_prefill_tokens = server.max_sequences = server.max_context_sum = server.max_chunk_context =
        1'000'000;
    server.speed_sd_per_run = 0.02;
    std::ofstream out(folder_ / "server.textproto");
    hw::write_server(server, out);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // One request of one token at a time: M/D/1 at 100 a second.
  [[nodiscard]] Words command(const Words& more) const {
    Words words{"--server",
                (folder_ / "server.textproto").string(),
                "--num-gpu-blocks-override",
                "1000",
                "--max-model-len",
                "1000",
                "--max-num-seqs",
                "1",
                "--max-num-batched-tokens",
                "512",
                "--no-async-scheduling",
                "--seeds",
                "3",
                "--requests",
                "500",
                "--max-requests",
                "500"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  [[nodiscard]] Words drawn(Words more) const {
    more.insert(more.end(), {"--prompt-tokens", "8", "--output-tokens", "1"});
    return command(more);
  }

  static std::string printed(const Words& words) {
    testing::internal::CaptureStdout();
    const int status = run_knee(words);
    const std::string text = testing::internal::GetCapturedStdout();
    EXPECT_EQ(status, 0);
    return text;
  }
  static std::string refused(const Words& words) {
    try {
      (void)run_knee(words);
    } catch (const std::exception& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "taken";
  }
  [[nodiscard]] std::string content(const char* name) const {
    std::ifstream in(folder_ / "out" / name, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  fs::path folder_;
};

TEST_F(KneeCommand, FindsTheKneesOfAServerOfKnownTimes) {
  const Json json = Json::parse(printed(drawn({"--ttft-slo", "60", "--format", "json"})));
  ASSERT_EQ(json["knees"].size(), 3U);
  EXPECT_EQ(json["knees"][0]["kind"], "SLO");
  // 62.95 by Erlang's formula (knee_closed_form_test.cc); these few requests are within a fifth of it.
  EXPECT_NEAR(json["knees"][0]["load"].get<double>(), 62.95, 12);
  EXPECT_EQ(json["knees"][2]["kind"], "saturation");
  EXPECT_NEAR(json["knees"][2]["load"].get<double>(), 100, 1);
  // One step is known to 0.1 ms of 10 and drifts by 2 percent: sqrt(1 + 4) percent, and saturation moves as
  // much.
  EXPECT_NEAR(json["step_time_error"]["total"].get<double>(), 0.01 * std::sqrt(5.0), 1e-6);
  EXPECT_NEAR(json["knees"][2]["step_time_half_width"].get<double>(), 1.96 * std::sqrt(5.0), 0.05);
  for (const Json& binding : json["bindings"]) {
    if (binding["where"] == "beyond saturation") {
      EXPECT_EQ(binding["resource"], "max_num_seqs");
    }
  }
  EXPECT_TRUE(json["servers"].is_null()) << "drawn requests have no traffic of their own";
  EXPECT_GT(json["what_ifs"].size(), 0U);
}

TEST_F(KneeCommand, WritesTheSameFilesOnAnyNumberOfThreads) {
  const std::string out = (folder_ / "out").string();
  (void)printed(drawn({"--ttft-slo", "60", "--out", out, "--threads", "1"}));
  const std::string json = content("knee.json");
  const std::string csv = content("points.csv");
  EXPECT_THAT(csv, HasSubstr("load,runs,"));
  EXPECT_THAT(json, testing::Not(HasSubstr(folder_.string())));
  const std::string table = printed(drawn({"--ttft-slo", "60", "--out", out, "--threads", "3"}));
  EXPECT_EQ(content("knee.json"), json);
  EXPECT_EQ(content("points.csv"), csv);
  EXPECT_THAT(table, HasSubstr("SLO ttft:p99:60"));
  EXPECT_THAT(table, HasSubstr("req/s"));
}

// In a closed loop of one-step requests on one slot everybody but one waits: saturation is 1 in flight.
TEST_F(KneeCommand, ClosedLoop) {
  const Json json = Json::parse(printed(
      drawn({"--sweep", "concurrency", "--slo", "ttft:mean:55", "--no-what-if", "--format", "json"})));
  // With N in flight each waits for the N - 1 before it: TTFT = 10 N ms; up to 5 are within 55.
  EXPECT_EQ(json["knees"][0]["load"], 5);
  EXPECT_EQ(json["knees"][2]["load"], 2) << "one runs, the other waits a step, which nobody can save it";
}

TEST_F(KneeCommand, WrongWordsGetOneLine) {
  EXPECT_THAT(refused(command({})), HasSubstr("--trace"));
  EXPECT_THAT(refused(drawn({"--slo", "ttft:99:5"})), HasSubstr("p0 to p100"));
  EXPECT_THAT(refused(drawn({"--ttftslo", "5"})), HasSubstr("did you mean --ttft-slo?"));
  EXPECT_THAT(refused(drawn({"--max-num-seq", "5"})), HasSubstr("did you mean --max-num-seqs?"));
  EXPECT_THAT(refused(drawn({"--sweep", "rates"})), HasSubstr("did you mean 'rate'?"));
  EXPECT_THAT(refused(drawn({"--request-rate", "5"})), HasSubstr("--max-load"));
  EXPECT_THAT(refused(drawn({"--max-concurrency", "5"})), HasSubstr("--sweep concurrency"));
  EXPECT_THAT(refused(drawn({"--slo", "goodput:0.9"})), HasSubstr("--goodput"));
  EXPECT_THAT(refused(drawn({"--min-load", "5", "--max-load", "4"})), HasSubstr("not below"));
  EXPECT_THAT(refused(drawn({"--seeds", "1"})), HasSubstr("knee: "));
  EXPECT_THAT(refused(drawn({"--arrivals", "trace"})), HasSubstr("--trace"));
  EXPECT_THAT(refused(drawn({"--arrivals", "poisson", "--burstiness", "2"})), HasSubstr("gamma"));
  EXPECT_THAT(refused(drawn({"--sweep", "concurrency", "--max-load", "4.5"})), HasSubstr("whole number"));
}

TEST_F(KneeCommand, HelpHasAnExample) {
  EXPECT_THAT(printed({"--help"}), HasSubstr("simulate knee --trace azure.pb --ttft-slo 500"));
}

}  // namespace
}  // namespace kneepoint::sim
