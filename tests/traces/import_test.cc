// Small files of each format, written as their makers write them, and what goes
// wrong with such files. Expected values are read off the rows.
#include "traces/import.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include "tests/traces/traces_support.h"
#include "traces/line_reader.h"
#include "traces/time_stamp.h"

namespace kneepoint::traces {
namespace {

using std::chrono::nanoseconds;
using testing::HasSubstr;

struct Expected {
  std::int64_t arrival_ns, prompt, output;
  friend bool operator==(const Expected&, const Expected&) = default;
};

void PrintTo(const Expected& e, std::ostream* out) {
  *out << e.arrival_ns << " ns, " << e.prompt << " in, " << e.output << " out";
}

std::vector<Expected> plain(const std::vector<TraceRecord>& records) {
  std::vector<Expected> out;
  for (const TraceRecord& r : records) out.push_back({r.arrival.count(), r.prompt_tokens, r.output_tokens});
  return out;
}

struct Format {
  const char* name;  // As import_formats() has it.
  const char* sniffed;
  const char* text;
  std::vector<Expected> expected;
};

const Format kFormats[] = {
    {"azure",
     "azure",
     "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 "
     "18:15:50.9951690,396,109\n",
     {{0, 374, 44}, {4'314'579'000, 396, 109}}},
    // 2024: six digits and a zone.
    {"azure",
     "azure",
     "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.009930+00:00,2162,5\r\n2024-05-10 "
     "00:00:00.017335+00:00,2399,6\r\n",
     {{0, 2162, 5}, {7'405'000, 2399, 6}}},
    {"burstgpt",
     "burstgpt",
     "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log "
     "Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,\"API log\"\n",
     {{5'000'000'000, 472, 18}, {45'000'000'000, 1087, 230}}},
    {"mooncake",
     "mooncake",
     "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [0, 1]}\n"
     "{\"timestamp\": 3000, \"input_length\": 1025, \"output_length\": 6, \"hash_ids\": [0, 2, 3]}\n",
     {{0, 1000, 5}, {3'000'000'000, 1025, 6}}},
    {"timed-trace",
     "timed-trace",
     "{\"timestamp\": 0.0, \"input_length\": 160, \"output_length\": 15}\n{\"timestamp\": 0.317544, "
     "\"input_length\": 172, \"output_length\": 12}\n",
     {{0, 160, 15}, {317'544'000, 172, 12}}},
    {"qwen-bailian",
     "qwen-bailian",
     "{\"chat_id\": 159, \"parent_chat_id\": -1, \"timestamp\": 61.114, \"input_length\": 20, "
     "\"output_length\": 3, \"type\": \"text\", \"turn\": 1, \"hash_ids\": [7, 8]}\n"
     "{\"chat_id\": 160, \"parent_chat_id\": 159, \"timestamp\": 70, \"input_length\": 33, "
     "\"output_length\": 4, \"type\": \"text\", \"turn\": 2, \"hash_ids\": [7, 9, 10]}\n",
     {{61'114'000'000, 20, 3}, {70'000'000'000, 33, 4}}},
    {"servegen",
     "servegen",
     "request_id,timestamp,input_tokens,output_tokens\n0,0.25,100,7\n1,1.5,200,8\n",
     {{250'000'000, 100, 7}, {1'500'000'000, 200, 8}}},
    {"vidur",
     "splitwise",
     "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,100.0,7\n1e-3,200,8.0\n",
     {{0, 100, 7}, {1'000'000, 200, 8}}},
    {"splitwise",
     "splitwise",
     "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,2,0,0.5,"
     "1,100,7\n1,2,0,0.75,1,200,8\n",
     {{500'000'000, 100, 7}, {750'000'000, 200, 8}}},
    {"vllm-bench",
     "vllm-bench",
     "{\"date\": \"x\", \"endpoint_type\": \"vllm\", \"input_lens\": [10, 20], \"output_lens\": [1, 2], "
     "\"start_times\": [100.5, 100.75]}",
     {{0, 10, 1}, {250'000'000, 20, 2}}},
};

class EachFormat : public testing::TestWithParam<Format> {};

TEST_P(EachFormat, IsReadByNameAndByItsLooks) {
  const TempFolder folder;
  const auto path = folder.write("trace", GetParam().text);
  ImportOptions named;
  named.format = GetParam().name;
  EXPECT_EQ(plain(drain(*import_trace(path, named))), GetParam().expected);
  const auto sniffed = import_trace(path, {});
  EXPECT_EQ(plain(drain(*sniffed)), GetParam().expected);
  EXPECT_EQ(sniffed->report().format, GetParam().sniffed);
  EXPECT_EQ(sniffed->report().num_records, 2U);
}

INSTANTIATE_TEST_SUITE_P(, EachFormat, testing::ValuesIn(kFormats), [](const auto& row) {
  std::string name = row.param.name;
  name += std::to_string(row.index);
  std::erase_if(name, [](char c) { return !isalnum(static_cast<unsigned char>(c)); });
  return name;
});

// 1000 tokens in blocks of 512: 512 and 488. The second prompt shares id 0 only.
TEST(HashIds, BecomeSegmentsThatShareEqualIds) {
  const TempFolder folder;
  const auto records = drain(*import_trace(folder.write("t", kFormats[3].text), {}));
  EXPECT_THAT(records[0].prompt, testing::ElementsAre(PromptSegment{1, 0, 512}, PromptSegment{2, 0, 488}));
  EXPECT_THAT(records[1].prompt, testing::ElementsAre(PromptSegment{1, 0, 512}, PromptSegment{3, 0, 512},
                                                      PromptSegment{4, 0, 1}));
}

TEST(Qwen, TurnsOfAChatAreASession) {
  const TempFolder folder;
  const auto records = drain(*import_trace(folder.write("t", kFormats[5].text), {}));
  EXPECT_EQ(records[0].session, 160U);  // The first chat's id and 1.
  EXPECT_EQ(records[1].session, 160U);
  EXPECT_FALSE(records[0].after_previous);
  EXPECT_TRUE(records[1].after_previous);
}

TEST(TimedTrace, FindsTheBlockSizeOrAsks) {
  const TempFolder folder;
  // ceil(100 / 32) = 4 and of the powers of two only 32 gives that.
  const auto path = folder.write(
      "t", "{\"timestamp\": 0.5, \"input_length\": 100, \"output_length\": 1, \"hash_ids\": [5, 6, 7, 8]}\n");
  EXPECT_THAT(drain(*import_trace(path, {}))[0].prompt.back(), (PromptSegment{9, 0, 4}));
  ImportOptions other;
  other.block_size = 16;
  EXPECT_THAT(error_of([&] { (void)drain(*import_trace(path, other)); }),
              HasSubstr("4 hash ids for 100 prompt tokens, which are 7 blocks of 16"));
}

// Two questions and answers of 8 and 4, 6 and 10 characters, at 2 a token: the
// second prompt is 4 + 2 + 3 tokens.
TEST(ShareGpt, ConversationsBecomeSessions) {
  const TempFolder folder;
  const auto path =
      folder.write("t.json",
                   "[{\"id\": \"a\", \"conversations\": [{\"from\": \"human\", \"value\": \"12345678\"}, "
                   "{\"from\": \"gpt\", \"value\": \"\\u00e4\\u00e4\\u00e4\\u00e4\"},"
                   " {\"from\": \"human\", \"value\": \"123456\"}, {\"from\": \"gpt\", \"value\": "
                   "\"1234567890\"}]}, {\"id\": \"b\", \"conversations\": []}]");
  ImportOptions options;
  EXPECT_THAT(error_of([&] { (void)import_trace(path, options); }), HasSubstr("no times; --rate R"));
  options.chars_per_token = 2;
  options.arrivals.emplace();
  options.arrivals->process = "poisson";
  options.arrivals->rate = 1;
  const auto importer = import_trace(path, options);
  const auto records = drain(*importer);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].prompt_tokens, 4);
  EXPECT_EQ(records[0].output_tokens, 2);
  EXPECT_EQ(records[1].prompt_tokens, 9);
  EXPECT_EQ(records[1].output_tokens, 5);
  EXPECT_EQ(records[1].prompt[1], (PromptSegment{records[0].output_content, 0, 2}));
  EXPECT_TRUE(records[1].after_previous);
  EXPECT_THAT(importer->report().notices,
              testing::ElementsAre(HasSubstr("1 conversations without"), HasSubstr("estimates")));
}

struct Time {
  const char* text;
  const char* unit;  // "" none.
  std::int64_t ns;   // -1: no time.
  bool absolute;
};

// 2023-11-16 18:15:46 UTC is 1700158546 s after the epoch.
const Time kTimes[] = {
    {"2023-11-16 18:15:46.6805900", "", 1'700'158'546'680'590'000, true},
    {"2023-11-16T18:15:46Z", "", 1'700'158'546'000'000'000, true},
    {"2023-11-16 20:15:46.5+02:00", "", 1'700'158'546'500'000'000, true},
    {"2023-11-16 13:45:46-0430", "", 1'700'158'546'000'000'000, true},
    {"2023/11/16 19:15:46 +01", "", 1'700'158'546'000'000'000, true},
    {"2023-11-16 18:15:46.12345678999", "", 1'700'158'546'123'456'789, true},
    {"1700158546", "", 1'700'158'546'000'000'000, true},
    {"1700158546.25", "", 1'700'158'546'250'000'000, true},
    {"1700158546680", "", 1'700'158'546'680'000'000, true},
    {"1700158546680590", "", 1'700'158'546'680'590'000, true},
    {"1700158546680590123", "", 1'700'158'546'680'590'123, true},
    {"0", "", 0, false},
    {"12.5", "", 12'500'000'000, false},
    {"1.5e-05", "", 15'000, false},
    {"99999999", "", 99'999'999'000'000'000, false},   // Below 1e8: an offset of three years.
    {"100000000", "", 100'000'000'000'000'000, true},  // At it: 1973.
    {"3536999", "ms", 3'536'999'000'000, false},
    {"1700158546680", "ms", 1'700'158'546'680'000'000, false},
    {"-1", "", -1, false},
    {"", "", -1, false},
    {"nan", "", -1, false},
    {"12,5", "", -1, false},
    {"2023-02-29 00:00:00", "", -1, false},  // No leap year.
    {"2023-11-16 24:00:00", "", -1, false},
    {"2023-11-16 18:15", "", -1, false},
    {"99999999999999999999999", "", -1, false},
};

TEST(TimeStamps, InEveryForm) {
  for (const Time& t : kTimes) {
    const auto stamp = parse_time(t.text, parse_time_unit(t.unit));
    if (t.ns < 0) {
      EXPECT_FALSE(stamp) << t.text;
      continue;
    }
    ASSERT_TRUE(stamp) << t.text;
    EXPECT_EQ(stamp->ns, t.ns) << t.text;
    EXPECT_EQ(stamp->absolute, t.absolute) << t.text;
  }
}

struct Wrong {
  const char* name;
  const char* text;
  const char* says;
};

const Wrong kWrong[] = {
    {"NotANumber", "arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,x,1\n",
     "trace:3: column 2 (prompt_tokens) is 'x'; it must be a whole number in 1..2147483647; --skip-bad-rows "
     "N"},
    {"Negative", "arrival_s,prompt_tokens,output_tokens\n0,-5,1\n",
     "trace:2: column 2 (prompt_tokens) is '-5'"},
    {"Zero", "arrival_s,prompt_tokens,output_tokens\n0,5,0\n", "trace:2: column 3 (output_tokens) is '0'"},
    {"Absurd", "arrival_s,prompt_tokens,output_tokens\n0,5,99999999999999999999\n",
     "column 3 (output_tokens) is '99999999999999999999'"},
    {"NegativeTime", "arrival_s,prompt_tokens,output_tokens\n-1,5,1\n",
     "column 1 (arrival_s) is '-1'; it must be a time"},
    {"ShortRow", "arrival_s,prompt_tokens,output_tokens\n0,5\n", "trace:2: has 2 columns, the header 3"},
    {"Unsorted", "arrival_s,prompt_tokens,output_tokens\n2,5,1\n1.5,5,1\n",
     "trace:3: arrives 0.500000 s before the row ahead of it; --sort sorts"},
    {"BlankRow", "arrival_s,prompt_tokens,output_tokens\n0,5,1\n\n1,5,1\n",
     "trace:3: is blank, and rows follow"},
    {"OpenQuote", "arrival_s,prompt_tokens,output_tokens\n0,5,\"1\n1,5,1\n",
     "trace:2: opens a quote that is never closed"},
    {"Mixed", "arrival_s,prompt_tokens,output_tokens\n0,5,1\n1700158546,5,1\n",
     "trace:3: column 1 (arrival_s) is '1700158546'; it must be a time from the start"},
    {"MissingColumn", "arrival_s,prompt_token,output_tokens\n0,5,1\n",
     "has no column 'prompt_tokens'; did you mean prompt_token?"},
    {"UnknownFormat", "a,b,c\n1,2,3\n", "is of no format known by its looks"},
    {"Utf16",
     "\xff\xfe"
     "a\0b\0",
     "is UTF-16 text; save it as UTF-8"},
    {"Empty", "", "is empty"},
    {"BrokenJson", "{\"arrival_s\": 0, \"prompt_tokens\": 5, \"output_tokens\": 1}\n{\"arrival_s\": 1,\n",
     "trace:2: is no valid JSON from column"},
    {"JsonLacksField", "{\"arrival_s\": 0, \"prompt_tokens\": 5}\n",
     "trace:1: field output_tokens is missing"},
    {"JsonArray", "{\"arrival_s\": 0, \"prompt_tokens\": 5, \"output_tokens\": 1}\n[1]\n",
     "trace:2: is no JSON object"},
    {"NegativeId", "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [-1]}\n",
     "trace:1: hash_ids holds -1; ids are not negative"},
};

class WrongInput : public testing::TestWithParam<Wrong> {};

TEST_P(WrongInput, IsOneLineWithPlaceAndWayOut) {
  const TempFolder folder;
  const auto path = folder.write("trace", GetParam().text);
  ImportOptions options;
  if (std::string_view(GetParam().name) == "MissingColumn") options.format = "csv";
  const std::string error = error_of([&] { (void)drain(*import_trace(path, options)); });
  EXPECT_THAT(error, HasSubstr(GetParam().says));
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(, WrongInput, testing::ValuesIn(kWrong),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Csv, ByteOrderMarkQuotesCrLfAndOtherDelimiters) {
  const TempFolder folder;
  const std::vector<Expected> expected{{0, 5, 1}, {1'000'000'000, 6, 2}};
  const std::string byte_order_mark = "\xef\xbb\xbf";
  const std::string texts[] = {
      byte_order_mark + "arrival_s,prompt_tokens,output_tokens\n0,5,1\n1,6,2",
      "note,arrival_s,prompt_tokens,output_tokens\r\n\"a, \"\"b\"\"\r\nc\",\"0\",5,1\r\n,1, 6 ,2\r\n\r\n",
      "arrival_s;prompt_tokens;output_tokens\n0;5;1\n1;6;2\n",
      "arrival_s\tprompt_tokens\toutput_tokens\n0\t5\t1\n1\t6\t2\n",
  };
  for (const std::string& text : texts)
    EXPECT_EQ(plain(drain(*import_trace(folder.write("t", text), {}))), expected) << text;
}

TEST(Csv, ThousandsOfColumns) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 5000; ++i) text.append("c").append(std::to_string(i)).append(",");
  text += "ts,in,out\n";
  for (int row = 0; row < 3; ++row) text.append(5000, ',').append(std::to_string(row)).append(",7,8\n");
  ImportOptions options;
  options.format = "csv";
  options.columns = "arrival=ts,prompt=in,output=out";
  EXPECT_EQ(drain(*import_trace(folder.write("t", text), options)).size(), 3U);
}

TEST(Columns, SayWhatTheyDoNotKnow) {
  const TempFolder folder;
  const auto path = folder.write("t", "ts,in,out\n0,1,1\n");
  const auto with = [&](std::string columns) {
    ImportOptions options;
    options.format = "csv";
    options.columns = std::move(columns);
    return error_of([&] { (void)drain(*import_trace(path, options)); });
  };
  EXPECT_THAT(with("arrivl=ts"), HasSubstr("did you mean arrival?"));
  EXPECT_THAT(with("arrival"), HasSubstr("each part is FIELD=COLUMN"));
  EXPECT_THAT(with("arrival=ts,prompt=in,output=ou"), HasSubstr("did you mean out?"));
  EXPECT_EQ(with("arrival=ts,prompt=in,output=out"), "");
}

// Options that a format does not look at are refused, not ignored.
TEST(Options, ThatAFormatWouldIgnoreAreRefused) {
  const TempFolder folder;
  const auto azure = folder.write("t", kFormats[0].text);
  const auto bench = folder.write("b", kFormats[9].text);
  ImportOptions options;
  options.block_size = 16;
  EXPECT_THAT(error_of([&] { (void)import_trace(azure, options); }),
              HasSubstr("--block-size says nothing to format azure"));
  options = {};
  options.columns = "arrival=x";
  EXPECT_THAT(error_of([&] { (void)import_trace(bench, options); }),
              HasSubstr("--columns says nothing to format vllm-bench"));
  options = {};
  options.arrivals.emplace();
  EXPECT_THAT(error_of([&] { (void)import_trace(azure, options); }), HasSubstr("has times of its own"));
}

TEST(Sorting, SaysHowManyRowsMoved) {
  const TempFolder folder;
  ImportOptions options;
  options.sort = true;
  // The rows at 1 and 2 come after the one at 3.
  const auto importer = import_trace(
      folder.write("t", "arrival_s,prompt_tokens,output_tokens\n0,9,1\n3,1,1\n1,2,1\n2,3,1\n"), options);
  EXPECT_EQ(plain(drain(*importer)),
            (std::vector<Expected>{
                {0, 9, 1}, {1'000'000'000, 2, 1}, {2'000'000'000, 3, 1}, {3'000'000'000, 1, 1}}));
  EXPECT_THAT(importer->report().notices, testing::ElementsAre(HasSubstr("2 rows were moved ahead")));
}

TEST(BadRows, ArePassedOverUpToTheLimitAndCounted) {
  const TempFolder folder;
  const auto path = folder.write("t", "arrival_s,prompt_tokens,output_tokens\n0,9,1\n1,0,1\n2,x,1\n3,4,1\n");
  ImportOptions options;
  options.skip_bad_rows = 2;
  const auto importer = import_trace(path, options);
  EXPECT_EQ(drain(*importer).size(), 2U);
  EXPECT_THAT(importer->report().notices,
              testing::ElementsAre(HasSubstr("2 bad rows passed over; the first: line 3 column 2")));
  options.skip_bad_rows = 1;
  EXPECT_THAT(error_of([&] { (void)drain(*import_trace(path, options)); }), HasSubstr(":4: column 2"));
}

std::string gzipped(const std::string& text) {
  std::string out(text.size() + 1000, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string many_rows(int count) {
  std::string text = "arrival_s,prompt_tokens,output_tokens\n";
  for (int i = 0; i < count; ++i)
    text.append(std::to_string(i)).append(",").append(std::to_string(1 + i * 7919 % 5000)).append(",3\n");
  return text;
}

TEST(Packed, GzipReadsAsItIsAndItsCutIsSeen) {
  const TempFolder folder;
  const std::string packed = gzipped(many_rows(20000));
  EXPECT_EQ(drain(*import_trace(folder.write("t.gz", packed), {})).size(), 20'000U);
  EXPECT_EQ(drain(*import_trace(folder.write("two.gz", packed + std::string(100, '\0')), {})).size(),
            20'000U);

  const auto cut = folder.write("cut.gz", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(error_of([&] { (void)drain(*import_trace(cut, {})); }), HasSubstr("ends in the middle"));
  ImportOptions options;
  options.recover = true;
  const auto importer = import_trace(cut, options);
  const auto kept = drain(*importer);
  EXPECT_GT(kept.size(), 5'000U);
  EXPECT_LT(kept.size(), 15'000U);
  EXPECT_EQ(kept.back().prompt_tokens, 1 + (std::ssize(kept) - 1) * 7919 % 5000);
  EXPECT_THAT(importer->report().notices, testing::Contains(HasSubstr("(--recover)")));

  std::string damaged = packed;
  damaged[packed.size() / 2] = static_cast<char>(~damaged[packed.size() / 2]);
  EXPECT_THAT(error_of([&] { (void)drain(*import_trace(folder.write("d.gz", damaged), {})); }),
              testing::Not(testing::IsEmpty()));
}

TEST(Cut, APlainFilesLastRowIsKeptUnlessItIsBroken) {
  const TempFolder folder;
  const std::string text = "arrival_s,prompt_tokens,output_tokens\n0,9,1\n1,8,";
  const auto path = folder.write("t", text);
  EXPECT_THAT(error_of([&] { (void)drain(*import_trace(path, {})); }),
              HasSubstr("the file may have been cut: --recover keeps what is whole"));
  ImportOptions options;
  options.recover = true;
  EXPECT_EQ(drain(*import_trace(path, options)).size(), 1U);
}

// Two gigabytes without a line end, made as they are read.
class EndlessLine final : public ByteSource {
 public:
  [[nodiscard]] std::size_t read(char* out, std::size_t size) override {
    constexpr std::uint64_t kTotal = std::uint64_t{2} << 30;
    if (given_ == kTotal) {
      if (tail_given_) return 0;
      tail_given_ = true;
      out[0] = '\n';
      out[1] = 'b';
      return 2;
    }
    const std::size_t part = std::min<std::uint64_t>(size, kTotal - given_);
    std::fill_n(out, part, 'a');
    given_ += part;
    most_asked_ = std::max(most_asked_, size);
    return part;
  }
  static inline std::size_t most_asked_ = 0;

 private:
  std::uint64_t given_ = 0;
  bool tail_given_ = false;
};

TEST(LineReader, ATwoGigabyteLineIsPassedOverInAMegabyte) {
  LineReader reader(std::make_unique<EndlessLine>(), "endless");
  std::string_view line;
  EXPECT_EQ(reader.next(line), LineReader::Got::kTooLong);
  ASSERT_EQ(reader.next(line), LineReader::Got::kLine);
  EXPECT_EQ(line, "b");
  EXPECT_EQ(reader.line_number(), 2U);
  EXPECT_LE(EndlessLine::most_asked_, kMaxLineBytes + 2);
}

TEST(LineReader, TheLongestLineThatIsKept) {
  const TempFolder folder;
  const std::string longest(kMaxLineBytes, 'x');
  LineReader reader(open_bytes(folder.write("t", longest + "\n" + longest + "y\nz")), "t");
  std::string_view line;
  EXPECT_EQ(reader.next(line), LineReader::Got::kLine);
  EXPECT_EQ(line.size(), kMaxLineBytes);
  EXPECT_EQ(reader.next(line), LineReader::Got::kTooLong);
  EXPECT_EQ(reader.next(line), LineReader::Got::kLine);
  EXPECT_TRUE(reader.unterminated());
  EXPECT_EQ(reader.next(line), LineReader::Got::kEnd);
}

}  // namespace
}  // namespace kneepoint::traces
