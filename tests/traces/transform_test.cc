// Transforms of traces small enough to work by hand, and the ways out of the room.
#include "traces/transform.h"

#include <gmock/gmock.h>

#include "tests/traces/traces_support.h"
#include "traces/export.h"
#include "traces/import.h"
#include "traces/prefix_chain.h"
#include "traces/rate_plot.h"
#include "traces/statistics.h"

namespace kneepoint::traces {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

// One request a second from 0 to 9, prompts of 100, 101, ...
std::vector<TraceRecord> ten() {
  std::vector<TraceRecord> records;
  for (int i = 0; i < 10; ++i) records.push_back(plain_record(seconds(i), 100 + i, 10));
  return records;
}

std::vector<TraceRecord> transformed(const TransformOptions& options) {
  return drain(*transform(options));
}

std::vector<double> arrivals_s(const std::vector<TraceRecord>& records) {
  std::vector<double> out;
  for (const TraceRecord& record : records) out.push_back(static_cast<double>(record.arrival.count()) * 1e-9);
  return out;
}

class Transforms : public testing::Test {
 protected:
  TransformOptions of(const std::vector<TraceRecord>& records) {
    write_trace(folder_ / "in.pb", records);
    TransformOptions options;
    options.inputs = {{folder_ / "in.pb", 1}};
    return options;
  }
  TempFolder folder_;
};

TEST_F(Transforms, WithoutOptionsChangesNothing) {
  EXPECT_EQ(transformed(of(ten())), ten());
}

TEST_F(Transforms, SliceIsHalfOpenAndStartsAtZero) {
  TransformOptions options = of(ten());
  options.slice_from_s = 3;
  options.slice_to_s = 5;
  EXPECT_THAT(arrivals_s(transformed(options)), ElementsAre(0, 1));
  const auto source = transform(options);
  (void)drain(*source);
  EXPECT_THAT(source->notices(), ElementsAre("8 of 10 requests read lie outside the time kept"));
}

TEST_F(Transforms, ScaleRateDividesTimes) {
  TransformOptions options = of(ten());
  options.scale_rate = 4;
  options.shift_s = 1;
  EXPECT_THAT(arrivals_s(transformed(options)), ElementsAre(1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.25));
}

// Ten requests span 9 s in 9 intervals: the second copy begins at 10 s.
TEST_F(Transforms, RepeatGoesOnWhereATraceOfThatRateWould) {
  std::vector<TraceRecord> records = ten();
  for (TraceRecord& record : records) record.prompt = {{5, 0, record.prompt_tokens}};
  TransformOptions options = of(records);
  options.repeat = 2;
  const auto apart = transformed(options);
  ASSERT_EQ(apart.size(), 20U);
  EXPECT_EQ(apart[10].arrival, seconds(10));
  EXPECT_EQ(apart[9].prompt[0].content, 5U);
  EXPECT_NE(apart[10].prompt[0].content, 5U);  // Else every prompt of the copy would hit.
  EXPECT_EQ(apart[10].prompt[0].content, apart[19].prompt[0].content);
  options.repeat_shares = true;
  EXPECT_EQ(transformed(options)[10].prompt[0].content, 5U);
}

TEST_F(Transforms, CapCutsPromptsAtTheirEnd) {
  std::vector<TraceRecord> records = ten();
  records[0].prompt = {{1, 0, 60}, {2, 0, 30}, {3, 0, 10}};
  TransformOptions options = of(records);
  options.cap_prompt = 70;
  options.cap_output = 4;
  const auto out = transformed(options);
  EXPECT_THAT(out[0].prompt, ElementsAre(PromptSegment{1, 0, 60}, PromptSegment{2, 0, 10}));
  EXPECT_EQ(out[9].prompt_tokens, 70);
  EXPECT_EQ(out[9].output_tokens, 4);
}

TEST_F(Transforms, SamplingKeepsSessionsWhole) {
  std::vector<TraceRecord> records;
  for (int i = 0; i < 4000; ++i) {
    records.push_back(plain_record(seconds(i), 10, 1));
    records.back().session = static_cast<std::uint64_t>(1 + i % 1000);  // Four turns each.
  }
  TransformOptions options = of(records);
  options.sample = 0.25;
  std::map<std::uint64_t, int> turns;
  for (const TraceRecord& record : transformed(options)) ++turns[record.session];
  EXPECT_NEAR(static_cast<double>(turns.size()), 250, 50);
  for (const auto& [session, count] : turns) EXPECT_EQ(count, 4);
}

TEST_F(Transforms, ASlicedSessionBeginsAnew) {
  std::vector<TraceRecord> records = ten();
  for (TraceRecord& record : records) {
    record.session = 1;
    record.after_previous = record.arrival.count() > 0;
  }
  TransformOptions options = of(records);
  options.slice_from_s = 4;
  const auto out = transformed(options);
  EXPECT_FALSE(out[0].after_previous);
  EXPECT_TRUE(out[1].after_previous);
}

// a: 10/s, b: 5/s. Shares of 1 to 1 keep all of b and half of a; both have 200 s.
TEST_F(Transforms, MixThinsToTheSharesAndKeepsContentsApart) {
  std::vector<TraceRecord> a, b;
  for (int i = 0; i <= 2000; ++i) {
    a.push_back(plain_record(std::chrono::milliseconds(100 * i), 10, 1));
    a.back().prompt = {{7, 0, 10}};
  }
  for (int i = 0; i <= 1000; ++i) {
    b.push_back(plain_record(std::chrono::milliseconds(200 * i), 20, 2));
    b.back().prompt = {{7, 0, 20}};
  }
  write_trace(folder_ / "a.pb", a);
  write_trace(folder_ / "b.pb", b);
  TransformOptions options;
  options.inputs = {{folder_ / "a.pb", 1}, {folder_ / "b.pb", 1}};
  int from_a = 0, from_b = 0;
  std::map<ContentId, int> contents;
  nanoseconds last{0};
  for (const TraceRecord& record : transformed(options)) {
    EXPECT_GE(record.arrival, last);
    last = record.arrival;
    (record.prompt_tokens == 10 ? from_a : from_b) += 1;
    ++contents[record.prompt[0].content];
  }
  EXPECT_NEAR(from_b, 1001, 2);
  EXPECT_NEAR(from_a, 1000, 100);
  EXPECT_EQ(contents.size(), 2U);
}

TEST_F(Transforms, RefuseWhatMakesNoSense) {
  TransformOptions options = of(ten());
  options.sample = 0;
  EXPECT_THAT(error_of([&] { (void)transform(options); }), HasSubstr("--sample is 0"));
  options = of(ten());
  options.shift_s = -1;
  EXPECT_THAT(error_of([&] { (void)transformed(options); }),
              HasSubstr("--shift -1 moves the first arrival before 0"));
  options = of(ten());
  options.slice_from_s = 5;
  options.slice_to_s = 5;
  EXPECT_THAT(error_of([&] { (void)transform(options); }), HasSubstr("FROM below TO"));
}

TEST_F(Transforms, JsonlKeepsEveryField) {
  TraceRecord record = plain_record(nanoseconds(1'234'567'891), 100, 10);
  record.prompt = {{~std::uint64_t{0}, 3, 60}, {2, 0, 40}};
  record.max_tokens = 12;
  record.ends_by = EndsBy::kEos;
  record.output_content = 9;
  record.session = 4;
  record.after_previous = true;
  record.think_time = nanoseconds(5'000'000'001);
  record.priority = -3;
  record.salt = 17;
  record.adapter = 2;
  const std::vector<TraceRecord> records{record, plain_record(nanoseconds(2'000'000'000), 5, 1)};
  ExportOptions options;
  options.format = "jsonl";
  const auto sink = export_trace(folder_ / "t.jsonl", options);
  for (const TraceRecord& r : records) sink->add(r);
  sink->finish();
  EXPECT_EQ(drain(*import_trace(folder_ / "t.jsonl", {})), records);
}

// Two prompts of 40 tokens that share 20: at 16 a block they share the first
// block, not the second; the third, short one is their own.
TEST_F(Transforms, TimedTraceNamesBlocksByTheirPrefix) {
  std::vector<TraceRecord> records{plain_record(nanoseconds(0), 40, 1), plain_record(seconds(1), 40, 2),
                                   plain_record(seconds(2), 8, 3)};
  records[0].prompt = {{1, 0, 20}, {2, 0, 20}};
  records[1].prompt = {{1, 0, 20}, {3, 0, 20}};
  ExportOptions options;
  options.format = "timed-trace";
  const auto sink = export_trace(folder_ / "t.jsonl", options);
  for (const TraceRecord& r : records) sink->add(r);
  sink->finish();
  EXPECT_EQ(
      file_bytes(folder_ / "t.jsonl"),
      "{\"timestamp\": 0.000000000, \"input_length\": 40, \"output_length\": 1, \"hash_ids\": [0, 1, 2]}\n"
      "{\"timestamp\": 1.000000000, \"input_length\": 40, \"output_length\": 2, \"hash_ids\": [0, 3, 4]}\n"
      "{\"timestamp\": 2.000000000, \"input_length\": 8, \"output_length\": 3}\n");
}

TEST(PrefixChain, CutsAtOtherPlacesDoNotMatter) {
  TraceRecord a = plain_record(nanoseconds(0), 64, 1), b = a;
  a.prompt = {{5, 0, 64}};
  b.prompt = {{5, 0, 10}, {5, 10, 54}};
  std::vector<ChainKey> of_a, of_b;
  chain_keys(a, 16, false, false, of_a);
  chain_keys(b, 16, false, false, of_b);
  EXPECT_EQ(of_a, of_b);
  b.salt = 1;
  chain_keys(b, 16, false, false, of_b);
  EXPECT_NE(of_a[0], of_b[0]);
}

// An answer that returns: prompt 32 + answer 16 are three blocks, all found by the next turn.
TEST(PrefixReuse, CountsAnswersThatReturn) {
  TraceRecord first = plain_record(nanoseconds(0), 32, 16), next = plain_record(seconds(1), 64, 1);
  first.prompt = {{1, 0, 32}};
  first.output_content = 2;
  next.prompt = {{1, 0, 32}, {2, 0, 16}, {3, 0, 16}};
  PrefixReuse reuse(16);
  reuse.add(first);
  reuse.add(next);
  EXPECT_EQ(reuse.prompt_blocks(), 6U);
  EXPECT_EQ(reuse.reused_blocks(), 3U);
}

// Intervals 1, 1, 4: mean 2, variance (1 + 1 + 4) / 3 = 2, CV = sqrt(2) / 2.
TEST(Statistics, ByHand) {
  IntervalStatistics intervals;
  LengthCounts lengths;
  for (const int t : {0, 1, 2, 6}) intervals.add(seconds(t));
  EXPECT_NEAR(intervals.cv(), std::sqrt(2.0) / 2, 1e-12);
  for (const int length : {1, 2, 2, 10}) lengths.add(length);
  EXPECT_EQ(lengths.percentile(0.5), 2);
  EXPECT_EQ(lengths.percentile(0.75), 2);
  EXPECT_EQ(lengths.percentile(0.76), 10);
  EXPECT_DOUBLE_EQ(lengths.mean(), 3.75);
}

TEST(Bursts, AreJoinedWindowsFarAboveTheMean) {
  RateWindows windows(seconds(100), 10);
  for (int i = 0; i < 100; ++i) windows.add(seconds(i));  // 10 a window, roughly,
  for (int i = 0; i < 60; ++i) windows.add(std::chrono::milliseconds(45'000 + 200 * i));  // 60 more over two.
  const auto found = bursts(windows);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].first, 4U);
  EXPECT_EQ(found[0].last, 5U);
  EXPECT_THAT(rate_plot("a<b", windows, found),
              testing::AllOf(HasSubstr("<svg"), HasSubstr("a&lt;b"), HasSubstr("</svg>")));
}

}  // namespace
}  // namespace kneepoint::traces
