// Files made to do harm: each is refused with one line, in little memory and time.
//
// The tool is given 128 MiB and 16 times the size of the file, and must not even
// notice that it has no more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>

#include "tests/faults/tool.h"
#include "traces/frame.h"
#include "traces/sha256.h"
#include "traces/trace.pb.h"

namespace kneepoint::faults {
namespace {

constexpr std::size_t kMany = 1'000'000;

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

// `bytes` times `times`, packed: 150 KB that unpack to 150 MB.
std::string gzip_of(std::string_view bytes, std::size_t times) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed;
  std::string buffer(1 << 16, '\0');
  for (std::size_t i = 0; i <= times; ++i) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = i < times ? static_cast<uInt>(bytes.size()) : 0;
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream.avail_out = static_cast<uInt>(buffer.size());
      static_cast<void>(deflate(&stream, i < times ? Z_NO_FLUSH : Z_FINISH));
      packed.append(buffer, 0, buffer.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  }
  deflateEnd(&stream);
  return packed;
}

// A trace whose checksums and digest are right and whose columns are `block`.
std::string trace_of(const traces::pb::Block& block, std::uint64_t last_arrival) {
  using traces::FrameTag;
  traces::pb::Header header;
  header.set_version(traces::kFormatVersion);
  std::string file = make_frame(FrameTag::kHeader, header.SerializeAsString()) +
                     make_frame(FrameTag::kBlock, block.SerializeAsString());
  traces::Sha256 hash;
  hash.update(file);
  const traces::Sha256Digest digest = hash.digest();
  traces::pb::Trailer trailer;
  trailer.set_num_records(static_cast<std::uint64_t>(block.arrival_delta_ns_size()));
  trailer.set_last_arrival_ns(last_arrival);
  trailer.set_sha256(digest.data(), digest.size());
  return file + make_frame(FrameTag::kTrailer, trailer.SerializeAsString());
}

traces::pb::Block one_record(std::uint64_t tokens) {
  traces::pb::Block block;
  block.add_arrival_delta_ns(0);
  block.add_prompt_tokens(tokens);
  block.add_output_tokens(1);
  return block;
}

traces::pb::Block many_records() {
  traces::pb::Block block;
  for (std::size_t i = 0; i < kMany; ++i) {
    block.add_arrival_delta_ns(0);
  }
  return block;
}

traces::pb::Block many_segments() {
  traces::pb::Block block = one_record(10);
  block.add_num_segments(4'000'000'000U);
  return block;
}

struct Case {
  std::string name;
  std::string file;   // Its name, which some readers look at.
  std::string bytes;
  std::vector<std::string> arguments;  // "traces" or "simulate", then the rest.
};

std::vector<Case> cases() {
  const std::string trillion = "9223372036854775808";  // 2^63.
  const std::vector<std::string> verify = {"traces", "verify", "x.pb"};
  const auto convert = [](const std::string& format) {
    return std::vector<std::string>{"traces", "convert", "--from", format, "x.txt", "y.pb"};
  };
  const std::vector<std::string> by_looks = {"traces", "convert", "x.txt", "y.pb"};
  std::vector<std::string> share = convert("sharegpt");
  share.insert(share.end(), {"--rate", "1"});
  const std::string header = "arrival_s,prompt_tokens,output_tokens\n";
  const auto with_file = [](const std::string& flag, const std::string& file) {
    return std::vector<std::string>{"simulate", "--trace", "good.pb", flag, file};
  };
  return {
      {"FrameOf32GiB", "x.pb", "\x0a\xff\xff\xff\xff\x7f" + std::string(100, 'x'), verify},
      {"FrameOf60MiBInAShortFile", "x.pb", "\x0a\x80\x80\x80\x1e" + std::string(100, 'x'), verify},
      {"TokensOfTwoToThe63", "x.pb", trace_of(one_record(std::uint64_t{1} << 63), 0), verify},
      {"ABlockOfAMillionRecords", "x.pb", trace_of(many_records(), 0), verify},
      {"FourBillionSegments", "x.pb", trace_of(many_segments(), 0), verify},
      {"CsvTokensOfTwoToThe63", "x.txt", header + "0," + trillion + ",1\n", convert("csv")},
      {"CsvTenMillionColumns", "x.txt", repeated("a,", 10 * kMany) + "\n1\n", convert("csv")},
      {"CsvTenMillionCells", "x.txt", header + repeated("1,", 10 * kMany) + "\n", convert("csv")},
      {"CsvHeaderOfEscapes", "x.txt", "\x1b[2J\x07,\r" + std::string(100'000, 'x') + "\n1,2\n", convert("csv")},
      {"CsvLineWithoutEnd", "x.txt", header + std::string(20 * kMany, '1'), convert("csv")},
      {"CsvQuoteNeverClosed", "x.txt", header + "\"" + repeated("\n", kMany), convert("csv")},
      {"JsonlTokensOfTwoToThe63", "x.txt",
       R"({"arrival_s": 0, "prompt_tokens": )" + trillion + R"(, "output_tokens": 1})", convert("jsonl")},
      {"JsonlDeep", "x.txt", repeated("[", kMany / 2), convert("jsonl")},
      {"JsonlDeepByLooks", "x.txt",
       R"({"timestamp": 0, "hash_ids": [], "input_length": )" + repeated("[", 250'000) + repeated("]", 250'000) + "}",
       by_looks},
      {"ShareGptDeep", "x.txt", repeated("[", kMany), share},
      {"BenchDeep", "x.txt", repeated("{\"a\":", kMany), convert("vllm-bench")},
      {"BenchTokensOf1e308", "x.txt",
       R"({"start_times": [1e308], "input_lens": [1e308], "output_lens": [1]})", convert("vllm-bench")},
      {"BombOfOneLine", "x.txt", gzip_of(std::string(kMany, 'a'), 150), convert("csv")},
      {"BombOfConversations", "x.txt", gzip_of(repeated("[],", kMany / 3), 150), share},
      {"BombOfRows", "x.txt", gzip_of(repeated("\n", kMany), 150), convert("csv")},
      {"ModelDeep", "x.json", R"({"architectures": )" + repeated("[", 300'000), with_file("--model", "x.json")},
      {"ModelOfTwoToThe63", "x.json",
       R"({"architectures": ["LlamaForCausalLM"], "hidden_size": )" + trillion + "}", with_file("--model", "x.json")},
      {"GpuDeep", "x.textproto", repeated("a {", kMany), with_file("--gpu", "x.textproto")},
      {"RatesDeep", "x.textproto", repeated("family {", kMany), with_file("--rates", "x.textproto")},
      {"ServerDeep", "x.textproto", repeated("base {", kMany), with_file("--server", "x.textproto")},
      {"RunConfigDeepJson", "x.textproto", "speculative_config: '" + repeated("{\"model\":", 200'000) + "'",
       with_file("--run-config", "x.textproto")},
      {"RunConfigWholeDeepJson", "x.textproto",
       "speculative_config: '" + repeated("[", 300'000) + repeated("]", 300'000) + "'",
       with_file("--run-config", "x.textproto")},
      {"ResultDeep", "x.json", R"({"kneepoint_version": )" + repeated("[", kMany),
       {"simulate", "--reproduce", "x.json", "--trace", "good.pb"}},
  };
}

// Memory that a sanitizer adds says nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryTells = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kMemoryTells = false;
#else
constexpr bool kMemoryTells = true;
#endif
#else
constexpr bool kMemoryTells = true;
#endif

TEST(HostileFiles, AreRefusedInOneLineAndLittleMemory) {
  const TestFolder folder;
  make_trace(folder / "good.pb", 10, 1);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    write_file(folder / c.file, c.bytes);
    std::vector<std::string> command = c.arguments;
    const bool simulates = command.front() == "simulate";
    command.front() = simulates ? simulate_tool() : traces_tool();
    const Contents before = contents(folder / "");
    constexpr rlim_t kAtRest = 128 << 20;
    const rlimit limit{kAtRest + 16 * c.bytes.size(), kAtRest + 16 * c.bytes.size()};
    Fate fate;
    if (kMemoryTells) {
      fate.prepare = [limit] { ::setrlimit(RLIMIT_DATA, &limit); };
    }
    const Outcome outcome = run(folder / "", command, fate);
    EXPECT_EQ(outcome.err.find("bad_alloc"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.status, 2) << "signal " << outcome.signal << "\n" << outcome.err.substr(0, 500);
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err.substr(0, 500);
    EXPECT_LT(outcome.err.size(), 1100U);
    EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
    EXPECT_EQ(contents(folder / "").size(), before.size()) << "something was written";
    std::filesystem::remove(folder / c.file);
  }
}

// Names inside files and flags never lead out of --out: every file that appears has one of our names.
TEST(HostileFiles, NothingIsWrittenOutsideTheFolder) {
  const TestFolder folder;
  make_trace(folder / "..evil.pb", 10, 1);
  std::filesystem::create_directories(folder / "in/deep");
  ASSERT_EQ(run(folder / "in/deep", {simulate_tool(), "--trace", "../../..evil.pb", "--out", "out", "--no-report"}).status, 0);
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "")) {
    if (entry.is_regular_file() && entry.path().string().find(".streams") == std::string::npos) {
      found.push_back(entry.path().lexically_relative(folder / "").string());
    }
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre("..evil.pb", "in/deep/out/result.json", "in/deep/out/requests.csv",
                                                   "in/deep/out/ttft_cdf.csv", "in/deep/out/checksums.sha256"));
}

}  // namespace
}  // namespace kneepoint::faults
