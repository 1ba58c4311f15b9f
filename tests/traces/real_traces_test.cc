// The public traces of ../shared/data/traces, against what their README says of
// them. Skipped in a clone that stands alone.
#include <gmock/gmock.h>

#include "tests/support/shared_data.h"
#include "tests/traces/traces_support.h"
#include "traces/export.h"
#include "traces/import.h"
#include "traces/statistics.h"

namespace kneepoint::traces {
namespace {

struct Seen {
  std::vector<TraceRecord> records;
  IntervalStatistics intervals;
  LengthCounts prompts, outputs;
  double rate = 0;
};

Seen look(const std::filesystem::path& path) {
  Seen seen;
  seen.records = drain(*import_trace(path, {}));
  for (const TraceRecord& record : seen.records) {
    seen.intervals.add(record.arrival);
    seen.prompts.add(record.prompt_tokens);
    seen.outputs.add(record.output_tokens);
  }
  seen.rate = static_cast<double>(seen.records.size()) /
              (static_cast<double>(seen.records.back().arrival.count()) * 1e-9);
  return seen;
}

TEST(RealTraces, AzureConversation) {
  KNEEPOINT_SHARED_OR_SKIP(path, "data/traces/AzureLLMInferenceTrace_conv.csv");
  const Seen seen = look(path);
  EXPECT_EQ(seen.records.size(), 19'366U);
  EXPECT_NEAR(seen.rate, 5.5, 0.05);
  EXPECT_NEAR(seen.prompts.mean(), 1155, 0.5);
  EXPECT_NEAR(seen.outputs.mean(), 211, 0.5);
}

TEST(RealTraces, AzureCode) {
  KNEEPOINT_SHARED_OR_SKIP(path, "data/traces/AzureLLMInferenceTrace_code.csv");
  const Seen seen = look(path);
  EXPECT_EQ(seen.records.size(), 8'819U);
  EXPECT_NEAR(seen.intervals.cv(), 13.2, 0.06);
}

TEST(RealTraces, MooncakeReuse) {
  KNEEPOINT_SHARED_OR_SKIP(path, "data/traces/mooncake_conversation_trace.jsonl");
  const Seen seen = look(path);
  EXPECT_EQ(seen.records.size(), 12'031U);
  EXPECT_NEAR(seen.prompts.mean(), 12'000, 100);
  PrefixReuse reuse(16);
  for (const TraceRecord& record : seen.records) reuse.add(record);
  EXPECT_NEAR(reuse.share(), 0.37, 0.005);
}

// Replayed elsewhere it is the same workload: ids of 512-token blocks come back
// as they were but for their names.
TEST(RealTraces, MooncakeGoesOutAsATimedTraceAndComesBack) {
  KNEEPOINT_SHARED_OR_SKIP(path, "data/traces/mooncake_conversation_trace.jsonl");
  const TempFolder folder;
  const auto records = drain(*import_trace(path, {}));
  ExportOptions out;
  out.format = "timed-trace";
  out.block_size = 512;
  const auto sink = export_trace(folder / "t.jsonl", out);
  for (const TraceRecord& record : records) sink->add(record);
  sink->finish();
  ImportOptions in;
  in.format = "timed-trace";
  in.block_size = 512;
  const auto back = drain(*import_trace(folder / "t.jsonl", in));
  ASSERT_EQ(back.size(), records.size());
  PrefixReuse before(128), after(128);
  for (std::size_t i = 0; i < records.size(); ++i) {
    ASSERT_EQ(back[i].arrival, records[i].arrival);
    ASSERT_EQ(back[i].output_tokens, records[i].output_tokens);
    before.add(records[i]);
    after.add(back[i]);
  }
  EXPECT_EQ(after.prompt_blocks(), before.prompt_blocks());
  // A short last block gets an id per length, so at most its tokens' hits are lost.
  EXPECT_LE(after.reused_blocks(), before.reused_blocks());
  EXPECT_GT(after.share(), before.share() - 0.001);
}

TEST(RealTraces, ShareGptLengths) {
  KNEEPOINT_SHARED_OR_SKIP(path, "data/traces/sharegpt_8k_filtered_stats_llama2_tokenizer.csv");
  EXPECT_THAT(error_of([&] { (void)import_trace(path, {}); }),
              testing::HasSubstr("has lengths but no times"));
  ImportOptions options;
  options.arrivals.emplace();
  options.arrivals->process = "poisson";
  options.arrivals->rate = 5;
  const auto records = drain(*import_trace(path, options));
  ASSERT_EQ(records.size(), 30'731U);
  EXPECT_EQ(records.front().prompt_tokens, 74);
  EXPECT_EQ(records.front().output_tokens, 918);
}

// A saved benchmark and the workload as its client sent it are the same requests.
TEST(RealTraces, BenchResultAgreesWithItsTimedTrace) {
  KNEEPOINT_SHARED_OR_SKIP(result, "data/runs/vllm_cpu/A_rate4.json");
  KNEEPOINT_SHARED_OR_SKIP(timed, "data/runs/vllm_cpu/A_rate4.trace.jsonl");
  const auto a = drain(*import_trace(result, {}));
  const auto b = drain(*import_trace(timed, {}));
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].prompt_tokens, b[i].prompt_tokens);
    EXPECT_EQ(a[i].output_tokens, b[i].output_tokens);
    EXPECT_NEAR(static_cast<double>((a[i].arrival - b[i].arrival).count()), 0,
                1e6);  // Stamps are rounded to microseconds.
  }
}

}  // namespace
}  // namespace kneepoint::traces
