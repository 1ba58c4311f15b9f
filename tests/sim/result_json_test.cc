// result.json: which keys, in which order, and what stands where there is nothing.
#include "sim/result_json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::milliseconds;

SimTime at(std::int64_t ms) {
  return SimTime(milliseconds(ms));
}

// Two requests: one of three tokens at 100, 110, 130 ms; one refused at 200 ms.
struct SmallRun {
  RunConfig config;
  RunSummary summary;

  [[nodiscard]] MetricsReport metrics() const {
    Metrics metrics(config);
    RequestRecord done;
    done.prompt_tokens = 7;
    done.output_tokens = 3;
    done.arrival = at(0);
    done.sent = at(10);
    done.queued = done.scheduled = at(11);
    done.first_token = at(100);
    done.last_token = at(130);
    metrics.on_send(done);
    metrics.on_tokens(done, kNever, at(100), 1);
    metrics.on_tokens(done, at(100), at(110), 1);
    metrics.on_tokens(done, at(110), at(130), 1);
    metrics.on_request_end(done);
    RequestRecord refused;
    refused.index = 1;
    refused.prompt_tokens = 9000;
    refused.arrival = refused.sent = refused.last_token = at(200);
    refused.end = RequestEnd::kPromptTooLong;
    metrics.on_send(refused);
    metrics.on_request_end(refused);
    return metrics.finish(summary);
  }

  [[nodiscard]] std::string text() const {
    const MetricsReport report = metrics();
    return result_json({.config = config,
                        .summary = summary,
                        .metrics = report,
                        .version = "0.1.0",
                        .configuration = "model: \"llama-3.1-8b\"\n",
                        .inputs = {{"trace", "bursty.pb", std::string(64, 'a')}},
                        .provenance = {"KV cache: bfloat16"}});
  }
  [[nodiscard]] Json json() const { return Json::parse(text()); }
};

std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) {
    keys.push_back(key);
  }
  return keys;
}

// The order of spec.md 7.2 and of every recorded result.
const std::vector<std::string> kFirstKeys = {"date",
                                             "endpoint_type",
                                             "backend",
                                             "label",
                                             "model_id",
                                             "tokenizer_id",
                                             "num_prompts",
                                             "request_rate",
                                             "burstiness",
                                             "max_concurrency",
                                             "duration",
                                             "completed",
                                             "failed",
                                             "total_input_tokens",
                                             "total_output_tokens",
                                             "request_throughput",
                                             "request_goodput",
                                             "output_throughput",
                                             "total_token_throughput"};
const std::vector<std::string> kDetailedKeys = {"input_lens", "output_lens", "ttfts",       "itls",
                                                "latencies",  "start_times", "queue_times", "errors"};
std::vector<std::string> last_keys() {
  std::vector<std::string> keys = {"max_output_tokens_per_s", "max_concurrent_requests", "rtfx"};
  for (const std::string metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const std::string statistic : {"mean", "median", "std", "p50", "p90", "p95", "p99"}) {
      keys.push_back(statistic + "_" + metric + "_ms");
    }
  }
  return keys;
}

void expect_begins_with(const std::vector<std::string>& keys, std::vector<std::string> expected) {
  ASSERT_GE(keys.size(), expected.size());
  EXPECT_EQ(
      std::vector<std::string>(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(expected.size())),
      expected);
}

TEST(ResultJson, BeginsWithTheKeysOfVllmBenchInItsOrder) {
  std::vector<std::string> expected = kFirstKeys;
  for (const std::string& key : last_keys()) {
    expected.push_back(key);
  }
  expect_begins_with(keys_of(SmallRun{}.json()), expected);
}

TEST(ResultJson, ArraysOnlyIfAskedForAndWhereVllmHasThem) {
  SmallRun run;
  run.config.report.save_detailed = true;
  std::vector<std::string> expected = kFirstKeys;
  expected.insert(expected.end(), kDetailedKeys.begin(), kDetailedKeys.end());
  for (const std::string& key : last_keys()) {
    expected.push_back(key);
  }
  const Json json = run.json();
  expect_begins_with(keys_of(json), expected);
  EXPECT_EQ(json["input_lens"].dump(), "[7,9000]");
  EXPECT_EQ(json["output_lens"].dump(), "[3,0]");
  EXPECT_EQ(json["ttfts"].dump(), "[0.09,null]");
  EXPECT_EQ(json["itls"].dump(), "[[0.01,0.02],[]]");
  EXPECT_EQ(json["latencies"].dump(), "[0.12,0.0]");
  EXPECT_EQ(json["start_times"].dump(), "[0.01,0.2]");
  EXPECT_EQ(json["queue_times"].dump(), "[0.01,0.0]");
  EXPECT_EQ(json["errors"].dump(), R"(["","prompt_too_long"])");
}

TEST(ResultJson, FiguresOfTheRun) {
  const Json json = SmallRun{}.json();
  EXPECT_TRUE(json["date"].is_null());
  EXPECT_EQ(json["num_prompts"], 2);
  EXPECT_EQ(json["completed"], 1);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["failed_by_reason"]["prompt_too_long"], 1);
  EXPECT_EQ(json["failed_by_reason"]["client_timeout"], 0);
  EXPECT_FALSE(json["failed_by_reason"].contains("length"));
  EXPECT_DOUBLE_EQ(json["error_rate"], 0.5);
  EXPECT_DOUBLE_EQ(json["duration"], 0.2);
  EXPECT_DOUBLE_EQ(json["output_throughput"], 15);
  EXPECT_TRUE(json["request_goodput"].is_null());
  EXPECT_DOUBLE_EQ(json["mean_ttft_ms"], 90);
  EXPECT_DOUBLE_EQ(json["p99_e2el_ms"], 120);
  EXPECT_DOUBLE_EQ(json["mean_prefill_ms"], 89);
  EXPECT_EQ(json["inputs"][0]["name"], "bursty.pb");
  EXPECT_EQ(json["configuration"], "model: \"llama-3.1-8b\"\n");
}

// `vllm bench serve` writes "inf" for a rate of infinity and for a trace's own times alike.
TEST(ResultJson, HowRequestsCame) {
  SmallRun run;
  EXPECT_EQ(run.json()["request_rate"], "inf");
  EXPECT_EQ(run.json()["arrivals"], "trace");
  run.config.client.request_rate = std::numeric_limits<double>::infinity();
  EXPECT_EQ(run.json()["request_rate"], "inf");
  EXPECT_EQ(run.json()["arrivals"], "all at once");
  run.config.client.request_rate = 4;
  EXPECT_NE(run.text().find("\"request_rate\": 4.0,"), std::string::npos);
  EXPECT_EQ(run.json()["arrivals"], "drawn");
}

TEST(ResultJson, ClientQueueWithAConcurrencyLimitAndItsSumWhereArrivalsHaveTimes) {
  SmallRun run;
  EXPECT_FALSE(run.json().contains("mean_client_queue_time_ms"));
  run.config.client.max_concurrency = 1;
  EXPECT_DOUBLE_EQ(run.json()["mean_client_queue_time_ms"], 10);
  EXPECT_DOUBLE_EQ(run.json()["mean_e2el_including_client_queue_ms"], 130);
  run.config.client.request_rate = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(run.json().contains("mean_client_queue_time_ms"));
  EXPECT_FALSE(run.json().contains("mean_e2el_including_client_queue_ms"));
}

TEST(ResultJson, NothingIsNullNotZero) {
  const RunConfig config;
  const RunSummary summary;
  const MetricsReport metrics = Metrics(config).finish(summary);
  const Json json = Json::parse(result_json({config, summary, metrics, "", "", {}, {}}));
  for (const char* key :
       {"request_throughput", "output_throughput", "mean_ttft_ms", "p99_itl_ms", "std_tpot_ms", "error_rate",
        "overload_reason", "vllm_would_hang_from_s", "peak_gpu_memory_bytes"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
  EXPECT_TRUE(json["prefix_cache"]["hit_rate"].is_null());
}

TEST(ResultJson, OneKeyALineAndTheSameBytesAgain) {
  const std::string text = SmallRun{}.text();
  EXPECT_EQ(text, SmallRun{}.text());
  EXPECT_EQ(text.rfind("{\n  \"date\": null,\n  \"endpoint_type\": \"kneepoint\",\n", 0), 0U);
  EXPECT_EQ(text.substr(text.size() - 4), "\"\n}\n");
}

TEST(ResultJson, SaysNothingOfPlaces) {
  EXPECT_EQ(configuration_without_places("# proto-file: sim/run_config.proto\n"
                                         "trace: \"/home/me/traces/week 3\"\n"
                                         "model: \"../models/config.json\"\n"
                                         "rates: \"/opt/h100.textproto\"\n"
                                         "served: \"meta-llama/Llama-3.1-8B\"\n"
                                         "max_num_seqs: 256\n"
                                         "out: \"/tmp/out\"\n"
                                         "step_log: \"steps.log\"\n"
                                         "format: \"json\"\n"
                                         "strict: false"),
            "# proto-file: sim/run_config.proto\n"
            "trace: \"week 3\"\n"
            "model: \"config.json\"\n"
            "rates: \"h100.textproto\"\n"
            "served: \"meta-llama/Llama-3.1-8B\"\n"
            "max_num_seqs: 256\n"
            "strict: false");
  EXPECT_EQ(configuration_without_places(""), "");
  SmallRun run;
  run.config.model_name = "/home/me/config.json";
  EXPECT_EQ(run.text().find("/home"), std::string::npos);
  EXPECT_EQ(run.json()["tokenizer_id"], "config.json");
}

TEST(ResultJson, ANameThatIsNoUtf8IsWrittenAllTheSame) {
  SmallRun run;
  run.config.model_name = "llama\xff";
  EXPECT_NO_THROW(static_cast<void>(run.json()));
}

}  // namespace
}  // namespace kneepoint::sim
