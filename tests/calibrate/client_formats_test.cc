// What load generators write, read to one form; and what is refused, by name.
#include "calibrate/client_formats.h"

#include <gtest/gtest.h>

#include <string>

#include "calibrate/calibrate_error.h"
#include "tests/calibrate/run_files.h"

namespace kneepoint::calibrate {
namespace {

std::string file_of(const std::string& name, const std::string& text) {
  return write_file(testing::TempDir() + "kneepoint_clients", name, text);
}

// The same two requests in every form: sent 0.5 s apart, 100 and 40 tokens in, 11
// and 2 out, first tokens after 80 and 60 ms, last ones after 280 and 90 ms.
const std::string kCsv =
    "arrival_s,prompt_tokens,output_tokens,ttft_ms,e2e_s\n10,100,11,80,0.28\n10.5,40,2,60,0.09\n";
const std::string kJsonLines =
    "{\"arrival\": 10, \"prompt_tokens\": 100, \"output_tokens\": 11, \"ttft\": 0.08, \"e2e\": 0.28}\n"
    "{\"arrival\": 10.5, \"prompt_tokens\": 40, \"output_tokens\": 2, \"ttft\": 0.06, \"e2e\": 0.09}\n";
// Two clocks: the first request is queued as it is sent, the other 2 ms later.
const std::string kTwoClocks =
    "{\"input_toks\": 100, \"output_toks\": 11, \"arrival_time\": 1777142838.0, \"queued_ts\": 500.0, "
    "\"first_token_ts\": 500.08, \"last_token_ts\": 500.28}\n"
    "{\"input_toks\": 40, \"output_toks\": 2, \"arrival_time\": 1777142838.5, \"queued_ts\": 500.502, "
    "\"first_token_ts\": 500.56, \"last_token_ts\": 500.59}\n";
const std::string kAiperf =
    "{\"metadata\": {\"benchmark_phase\": \"warmup\"}, \"metrics\": {}}\n"
    "{\"metadata\": {\"request_start_ns\": 10000000000, \"request_end_ns\": 10280000000, \"was_cancelled\": false, "
    "\"benchmark_phase\": \"profiling\"}, \"metrics\": {\"time_to_first_token\": {\"value\": 80, \"unit\": \"ms\"}, "
    "\"request_latency\": {\"value\": 280, \"unit\": \"ms\"}, \"input_sequence_length\": {\"value\": 100, \"unit\": "
    "\"tokens\"}, \"output_sequence_length\": {\"value\": 11, \"unit\": \"tokens\"}}, \"error\": null}\n"
    "{\"metadata\": {\"request_start_ns\": 10500000000, \"request_end_ns\": 10590000000}, \"metrics\": "
    "{\"time_to_first_token\": {\"value\": 60, \"unit\": \"ms\"}, \"request_latency\": {\"value\": 90, \"unit\": \"ms\"}, "
    "\"input_sequence_length\": {\"value\": 40}, \"output_sequence_length\": {\"value\": 2}}}\n";
const std::string kGuidellm =
    "{\"benchmarks\": [{\"requests\": {\"successful\": [\n"
    "{\"prompt_tokens\": 100, \"output_tokens\": 11, \"start_time\": 10.0, \"first_token_time\": 10.08, "
    "\"last_token_time\": 10.28},\n"
    "{\"prompt_tokens\": 40, \"output_tokens\": 2, \"start_time\": 10.5, \"first_token_time\": 10.56, "
    "\"last_token_time\": 10.59}], \"errored\": [], \"incomplete\": []}}]}\n";

struct Form {
  const char* name;
  const char* file;
  const std::string* text;
};

const Form kForms[] = {{"Csv", "a.csv", &kCsv},
                       {"JsonLines", "a.jsonl", &kJsonLines},
                       {"TwoClocks", "b.jsonl", &kTwoClocks},
                       {"Aiperf", "profile_export.jsonl", &kAiperf},
                       {"Guidellm", "benchmarks.json", &kGuidellm}};

class ClientForm : public testing::TestWithParam<Form> {};

TEST_P(ClientForm, SaysTheSame) {
  const ClientRun run = read_client_file(file_of(GetParam().file, *GetParam().text));
  ASSERT_EQ(run.requests.size(), 2U);
  EXPECT_NEAR(run.requests[0].start_s, 0, 1e-6);
  EXPECT_NEAR(run.requests[1].start_s, 0.5, 1e-6);
  EXPECT_EQ(run.requests[0].prompt_tokens, 100);
  EXPECT_EQ(run.requests[1].output_tokens, 2);
  EXPECT_NEAR(run.requests[0].ttft_s, 0.08, 1e-6);
  EXPECT_NEAR(run.requests[0].latency_s, 0.28, 1e-6);
  EXPECT_NEAR(run.requests[1].ttft_s, 0.06, 1e-6);
  EXPECT_NEAR(run.requests[1].latency_s, 0.09, 1e-6);
  EXPECT_NEAR(run.duration_s, 0.59, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(, ClientForm, testing::ValuesIn(kForms),
                         [](const auto& row) { return std::string(row.param.name); });

struct Garbage {
  const char* name;
  const std::string* good;
  const char* file;
  const char* from;
  const char* to;
  const char* named;  // What the message says.
};

const Garbage kGarbage[] = {
    {"CsvNan", &kCsv, "g.csv", "11,80", "11,nan", "finite"},
    {"CsvWord", &kCsv, "g.csv", "11,80", "11,slow", "ttft_ms is 'slow'"},
    {"CsvNegative", &kCsv, "g.csv", "11,80", "11,-80", "time to first token is -0.08"},
    {"CsvCut", &kCsv, "g.csv", ",60,0.09\n", "", "cut short"},
    {"CsvHalfToken", &kCsv, "g.csv", "100,11", "100,11.5", "no whole number"},
    {"CsvNoTokens", &kCsv, "g.csv", "100,11", "0,11", "prompt tokens is 0"},
    {"CsvFirstAfterLast", &kCsv, "g.csv", "80,0.28", "800,0.28", "other units"},
    {"CsvMsAsSeconds", &kCsv, "g.csv", "ttft_ms,e2e_s\n10,100,11,80,0.28\n10.5,40,2,60,0.09",
     "ttft,e2e\n10,100,11,80,280\n10.5,40,2,60,90", "in ms"},
    {"JsonCut", &kJsonLines, "g.jsonl", "\"e2e\": 0.09}\n", "\"e2", "cut short"},
    {"JsonNan", &kJsonLines, "g.jsonl", "0.28", "NaN", "NaN"},
    {"JsonFailure", &kJsonLines, "g.jsonl", "\"e2e\": 0.09", "\"error\": \"503\", \"e2e\": 0.09", "failed"},
    {"JsonNoLatency", &kJsonLines, "g.jsonl", "\"e2e\": 0.09", "\"x\": 0.09", "no latency"},
    {"ClocksWithoutQueue", &kTwoClocks, "g.jsonl", "\"queued_ts\": 500.502, ", "", ""},
    {"AiperfError", &kAiperf, "g.jsonl", "\"error\": null", "\"error\": {\"code\": 429}", "failed"},
    {"AiperfCancelled", &kAiperf, "g.jsonl", "false", "true", "cancelled"},
    {"AiperfUnit", &kAiperf, "g.jsonl", "\"value\": 80, \"unit\": \"ms\"", "\"value\": 80, \"unit\": \"min\"",
     "unit 'min'"},
    {"GuidellmErrors", &kGuidellm, "g.json", "\"errored\": []", "\"errored\": [{}]", "errored"},
    {"GuidellmTwo", &kGuidellm, "g.json", "}}]}", "}}, {}]}", "2 benchmarks"},
    {"GuidellmCut", &kGuidellm, "g.json", "\"errored\": [], \"incomplete\": []}}]}\n", "", "cut short"},
};

class ClientFormGarbage : public testing::TestWithParam<Garbage> {};

TEST_P(ClientFormGarbage, IsRefusedByName) {
  const Garbage& row = GetParam();
  std::string text = *row.good;
  const std::size_t at = text.find(row.from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(row.from).size(), row.to);
  const std::string path = file_of(row.file, text);
  if (std::string(row.named).empty()) {  // Still sound: the other request aligns the clocks.
    EXPECT_EQ(read_client_file(path).requests.size(), 2U);
    return;
  }
  try {
    static_cast<void>(read_client_file(path));
    FAIL() << "was read";
  } catch (const CalibrateError& error) {
    EXPECT_NE(std::string(error.what()).find(row.named), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(row.file), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(, ClientFormGarbage, testing::ValuesIn(kGarbage),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace kneepoint::calibrate
