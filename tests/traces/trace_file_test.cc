// A trace file gives back what was put in, or says that it is damaged.
#include <boost/random/mersenne_twister.hpp>

#include <gmock/gmock.h>

#include "tests/traces/traces_support.h"
#include "traces/frame.h"
#include "traces/record_check.h"
#include "traces/sha256.h"
#include "traces/trace.pb.h"

namespace kneepoint::traces {
namespace {

using std::chrono::nanoseconds;
using testing::HasSubstr;

// Records that use every field, some of them at their limits.
std::vector<TraceRecord> mixed_records(int count) {
  boost::random::mt19937_64 bits(7);
  std::vector<TraceRecord> records;
  std::int64_t arrival = 0;
  for (int i = 0; i < count; ++i) {
    arrival += static_cast<std::int64_t>(bits() % 3) * 1'000'003;
    TraceRecord record = plain_record(nanoseconds(arrival), 1 + static_cast<std::int64_t>(bits() % 5000), 1);
    record.output_tokens = i % 97 == 0 ? kMaxTokens : 1 + static_cast<std::int64_t>(bits() % 300);
    if (i % 3 == 0) {
      const std::int64_t head = record.prompt_tokens / 2;
      if (head > 0) record.prompt.push_back({bits(), static_cast<std::int64_t>(bits() % 100), head});
      record.prompt.push_back({bits() | 1, 0, record.prompt_tokens - head});
    }
    if (i % 5 == 0) {
      record.session = bits() | 1;
      record.after_previous = i % 2 == 0;
      record.think_time = nanoseconds(bits() % 1'000'000'000);
      record.output_content = bits();
    }
    if (i % 7 == 0) {
      record.ends_by = EndsBy::kEos;
      record.max_tokens = kMaxTokens;
      record.priority = static_cast<std::int32_t>(bits());
      record.salt = bits();
      record.adapter = static_cast<std::uint32_t>(bits());
    }
    records.push_back(record);
  }
  return records;
}

TEST(TraceFile, GivesBackEveryField) {
  const TempFolder folder;
  // Two full blocks and one begun.
  const std::vector<TraceRecord> records = mixed_records(2 * kRecordsPerBlock + 100);
  write_trace(folder / "t.pb", records);
  EXPECT_EQ(read_trace(folder / "t.pb"), records);
}

TEST(TraceFile, KnowsCountAndSpanBeforeTheFirstRecord) {
  const TempFolder folder;
  write_trace(folder / "t.pb", {plain_record(nanoseconds(5), 1, 1), plain_record(nanoseconds(9), 2, 2)});
  TraceReader reader(folder / "t.pb");
  EXPECT_EQ(reader.info().num_records, 2U);
  EXPECT_EQ(reader.info().last_arrival, nanoseconds(9));
  EXPECT_EQ(reader.info().source, "test");
  for (TraceRecord record; reader.next(record);) {
  }
  EXPECT_EQ(reader.sha256(), sha256_file(folder / "t.pb"));
}

TEST(TraceFile, ATraceWithoutRequestsIsATrace) {
  const TempFolder folder;
  write_trace(folder / "t.pb", {});
  EXPECT_TRUE(read_trace(folder / "t.pb").empty());
}

TEST(TraceFile, AnyProtobufLibraryReadsIt) {
  const TempFolder folder;
  write_trace(folder / "t.pb", {plain_record(nanoseconds(5), 11, 22), plain_record(nanoseconds(9), 33, 44)});
  pb::TraceFile file;
  ASSERT_TRUE(file.ParseFromString(file_bytes(folder / "t.pb")));
  ASSERT_EQ(file.blocks_size(), 1);
  pb::Block block;
  ASSERT_TRUE(block.ParseFromString(file.blocks(0).content()));
  EXPECT_THAT(block.arrival_delta_ns(), testing::ElementsAre(5, 4));
  EXPECT_THAT(block.prompt_tokens(), testing::ElementsAre(11, 33));
}

// One record a block would be slow to make; a few records and every bit of them will do.
TEST(TraceFile, EverySingleFlippedBitIsSeen) {
  const TempFolder folder;
  write_trace(folder / "t.pb", mixed_records(4));
  const std::string whole = file_bytes(folder / "t.pb");
  std::fstream file(folder / "t.pb", std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&file](std::size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte).flush();
  };
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    put(bit / 8, static_cast<char>(whole[bit / 8] ^ (1 << (bit % 8))));
    EXPECT_NE(error_of([&] { (void)read_trace(folder / "t.pb"); }), "") << "bit " << bit;
    put(bit / 8, whole[bit / 8]);
  }
  EXPECT_EQ(read_trace(folder / "t.pb").size(), 4U);
}

TEST(TraceFile, EveryCutIsSeen) {
  const TempFolder folder;
  write_trace(folder / "t.pb", mixed_records(4));
  const std::string whole = file_bytes(folder / "t.pb");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto path = folder.write("cut.pb", whole.substr(0, size));
    EXPECT_NE(error_of([&] { (void)read_trace(path); }), "") << "cut to " << size << " bytes";
  }
  const auto longer = folder.write("longer.pb", whole + '\0');
  EXPECT_NE(error_of([&] { (void)read_trace(longer); }), "");
}

// Each frame of the file, so that tests can take the file apart.
std::vector<std::string> frames_of(const std::string& bytes) {
  std::vector<std::string> frames;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    std::string_view after = rest.substr(1);
    std::size_t length = 0;
    if (!take_length(after, length)) break;
    const std::size_t size = rest.size() - after.size() + length;
    frames.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  return frames;
}

TEST(TraceFile, ABlockLeftOutOrExchangedIsSeen) {
  const TempFolder folder;
  // All at time 0: only count and digest can tell.
  write_trace(folder / "t.pb",
              std::vector<TraceRecord>(3 * kRecordsPerBlock, plain_record(nanoseconds(0), 1, 1)));
  std::vector<std::string> frames = frames_of(file_bytes(folder / "t.pb"));
  ASSERT_EQ(frames.size(), 5U);  // Header, three blocks, trailer.
  const auto without = folder.write("without.pb", frames[0] + frames[1] + frames[2] + frames[4]);
  EXPECT_THAT(error_of([&] { (void)read_trace(without); }),
              HasSubstr("holds 8192 records but its trailer says 12288"));

  std::vector<TraceRecord> other(3 * kRecordsPerBlock, plain_record(nanoseconds(0), 1, 1));
  other[kRecordsPerBlock].output_tokens = 2;
  write_trace(folder / "u.pb", other);
  const std::vector<std::string> others = frames_of(file_bytes(folder / "u.pb"));
  const auto exchanged =
      folder.write("exchanged.pb", frames[0] + frames[1] + others[2] + frames[3] + frames[4]);
  EXPECT_THAT(error_of([&] { (void)read_trace(exchanged); }), HasSubstr("digest does not agree"));
}

// A frame that says it is longer than the file must not make us allocate that much.
TEST(TraceFile, ALengthBeyondTheFileIsRefusedBeforeItIsBelieved) {
  const TempFolder folder;
  write_trace(folder / "t.pb", mixed_records(4));
  std::vector<std::string> frames = frames_of(file_bytes(folder / "t.pb"));
  std::string lying =
      std::string(1, static_cast<char>(FrameTag::kBlock)) + "\xff\xff\xff\x1f";  // 64 MiB - 1.
  const auto path = folder.write("lying.pb", frames[0] + lying + frames[2]);
  EXPECT_THAT(error_of([&] { (void)read_trace(path); }), HasSubstr("its length is broken"));
}

TEST(TraceFile, KeepsWholeBlocksOfACutFileIfAsked) {
  const TempFolder folder;
  const std::vector<TraceRecord> records = mixed_records(2 * kRecordsPerBlock + 10);
  write_trace(folder / "t.pb", records);
  const std::string whole = file_bytes(folder / "t.pb");
  const auto cut = folder.write("cut.pb", whole.substr(0, whole.size() - 100));
  TraceReader reader(cut, TraceReader::Damage::kKeepWhole);
  std::vector<TraceRecord> kept;
  for (TraceRecord record; reader.next(record);) kept.push_back(record);
  ASSERT_EQ(kept.size(), 2U * kRecordsPerBlock);
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), records.begin()));
  EXPECT_THAT(reader.damage(), HasSubstr("ends without a trailer"));
}

// Writes a block as a hostile or foreign writer would, checksums in order.
std::filesystem::path with_block(const TempFolder& folder, const pb::Block& block, std::uint64_t count,
                                 std::uint64_t last) {
  pb::Header header;
  header.set_version(kFormatVersion);
  const std::string before = make_frame(FrameTag::kHeader, header.SerializeAsString()) +
                             make_frame(FrameTag::kBlock, block.SerializeAsString());
  Sha256 hash;
  hash.update(before);
  const Sha256Digest digest = hash.digest();
  pb::Trailer trailer;
  trailer.set_num_records(count);
  trailer.set_last_arrival_ns(last);
  trailer.set_sha256(digest.data(), digest.size());
  return folder.write("made.pb", before + make_frame(FrameTag::kTrailer, trailer.SerializeAsString()));
}

pb::Block two_records() {
  pb::Block block;
  for (int i = 0; i < 2; ++i) {
    block.add_arrival_delta_ns(10);
    block.add_prompt_tokens(100);
    block.add_output_tokens(10);
  }
  return block;
}

struct Hostile {
  const char* name;
  void (*spoil)(pb::Block&);
  const char* says;
};

const Hostile kHostile[] = {
    {"Sound", [](pb::Block&) {}, ""},
    {"ZeroPrompt", [](pb::Block& b) { b.set_prompt_tokens(1, 0); }, "record 2: prompt_tokens is 0"},
    {"NegativePrompt", [](pb::Block& b) { b.set_prompt_tokens(1, ~std::uint64_t{0}); },
     "record 2: prompt_tokens is -1"},
    {"AbsurdOutput", [](pb::Block& b) { b.set_output_tokens(0, std::uint64_t{1} << 31); },
     "record 1: output_tokens is 2147483648"},
    {"ArrivalWraps", [](pb::Block& b) { b.set_arrival_delta_ns(1, ~std::uint64_t{0}); },
     "record 2: its arrival is"},
    {"ColumnTooShort", [](pb::Block& b) { b.mutable_output_tokens()->RemoveLast(); },
     "output_tokens has another length"},
    {"OptionalColumnHalfFull", [](pb::Block& b) { b.add_priority(3); },
     "an optional column is neither empty nor full"},
    {"SegmentsMissing", [](pb::Block& b) { b.add_num_segments(1), b.add_num_segments(4'000'000'000U); },
     "segment columns"},
    {"AfterWithoutSession", [](pb::Block& b) { b.add_after_previous(false), b.add_after_previous(true); },
     "record 2: after_previous"},
    {"AskedBelowAnswer", [](pb::Block& b) { b.add_max_tokens(0), b.add_max_tokens(9); },
     "record 2: max_tokens is 9"},
};

class HostileBlock : public testing::TestWithParam<Hostile> {};

TEST_P(HostileBlock, IsRefusedWithRecordAndField) {
  const TempFolder folder;
  pb::Block block = two_records();
  GetParam().spoil(block);
  const auto path = with_block(folder, block, 2, 20);
  const std::string error = error_of([&] { (void)read_trace(path); });
  if (std::string_view(GetParam().says).empty()) {
    EXPECT_EQ(error, "");
  } else {
    EXPECT_THAT(error, HasSubstr(GetParam().says));
  }
}

INSTANTIATE_TEST_SUITE_P(, HostileBlock, testing::ValuesIn(kHostile),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(TraceFile, RefusesANewerVersion) {
  const TempFolder folder;
  pb::Header header;
  header.set_version(kFormatVersion + 1);
  const std::string start = make_frame(FrameTag::kHeader, header.SerializeAsString());
  write_trace(folder / "t.pb", {});
  const auto path = folder.write("newer.pb", start + frames_of(file_bytes(folder / "t.pb")).back());
  EXPECT_THAT(error_of([&] { (void)read_trace(path); }),
              HasSubstr("format version 2; this build reads version 1"));
}

TEST(TraceWriter, LeavesNothingBehindUnlessFinished) {
  const TempFolder folder;
  {
    TraceWriter writer(folder / "t.pb", "test");
    writer.add(plain_record(nanoseconds(0), 1, 1));
  }
  EXPECT_EQ(folder.num_files(), 0U);
}

TEST(TraceWriter, KeepsTheOlderFileIfItFails) {
  const TempFolder folder;
  write_trace(folder / "t.pb", {plain_record(nanoseconds(3), 1, 1)});
  const std::string before = file_bytes(folder / "t.pb");
  EXPECT_THAT(error_of([&] {
                write_trace(folder / "t.pb",
                            {plain_record(nanoseconds(3), 1, 1), plain_record(nanoseconds(2), 1, 1)});
              }),
              HasSubstr("record 2: arrives at 2 ns, before the record ahead of it (3 ns)"));
  EXPECT_EQ(file_bytes(folder / "t.pb"), before);
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(TraceWriter, SaysWhereItCannotWrite) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { TraceWriter(folder / "missing/t.pb", ""); }),
              HasSubstr("cannot be written: No such file"));
}

// FIPS 180-4, appendix B.1: the digest of "abc".
TEST(Sha256, OfAbc) {
  Sha256 hash;
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(hash.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace kneepoint::traces
