// Study files: numbering, what varies, what is refused; sealed lines.
#include "sim/study_points.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "sim/study_csv.h"
#include "sim/study_merge.h"
#include "sim/study_run.h"
#include "sim/study_store.h"
#include "sim/usage_error.h"
#include "tests/sim/study_support.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::OwnFolder;

class StudyFile : public testing::Test {
 protected:
  StudyPoints read(const std::string& rest) {
    return StudyPoints(
        folder_.write("s.textproto", fmt::format("base {{ trace: \"{}\" }}\n{}", trace_, rest)));
  }
  OwnFolder folder_;
  std::string trace_ = folder_.write_trace("t.pb", 5);
};

TEST_F(StudyFile, SeedsRunFastestAndTheListSlowest) {
  const StudyPoints study = read(R"(
    grid { option: "request_rate" value: "5" value: "10" value: "20" }
    grid { option: "model" value: "llama-3.1-8b" value: "qwen2.5-7b" }
    seeds { first: 7 count: 5 })");
  ASSERT_EQ(study.size(), 3 * 2 * 5);
  EXPECT_THAT(study.options(), ElementsAre("request_rate", "model", "sim_seed"));
  // 17 = (1 * 2 + 1) * 5 + 2.
  const pb::RunConfig point = study.point(17);
  EXPECT_EQ(point.request_rate(), 10);
  EXPECT_EQ(point.model(), "qwen2.5-7b");
  EXPECT_EQ(point.sim_seed(), 7 + 2);
  EXPECT_EQ(study.settings_json(point), R"({"request_rate":10.0,"model":"qwen2.5-7b","sim_seed":9})");
}

TEST_F(StudyFile, ZippedOptionsGoTogetherAndListEntriesSetAnything) {
  const StudyPoints study = read(R"(
    zip { axis { option: "tensor-parallel-size" value: "1" value: "2" } axis { option: "max_num_seqs" value: "64" value: "128" } }
    list { scheduler: "sarathi" goodput: "ttft:100" }
    list { gpu: "h200" })");
  ASSERT_EQ(study.size(), 4);
  EXPECT_EQ(
      study.settings_json(study.point(1)),
      R"({"scheduler":"sarathi","goodput":"ttft:100","gpu":null,"tensor_parallel_size":2,"max_num_seqs":128})");
  EXPECT_EQ(study.settings_json(study.point(2)),
            R"({"scheduler":null,"goodput":null,"gpu":"h200","tensor_parallel_size":1,"max_num_seqs":64})");
}

TEST_F(StudyFile, GoodputReplacesTheBasesAndInfiniteRatesAreWords) {
  const StudyPoints study =
      StudyPoints(folder_.write("g.textproto", fmt::format(R"(base {{ trace: "{}" goodput: "ttft:1" }}
        grid {{ option: "goodput" value: "ttft:500 tpot:50" value: "e2el:9" }}
        grid {{ option: "request_rate" value: "inf" }})",
                                                           trace_)));
  EXPECT_EQ(study.settings_json(study.point(0)), R"({"goodput":"ttft:500 tpot:50","request_rate":"inf"})");
  EXPECT_EQ(study.point(1).goodput_size(), 1);
}

TEST_F(StudyFile, IdentityFollowsContentAndNotPlace) {
  const std::string text = "grid { option: \"gpu\" value: \"h100\" value: \"h200\" }";
  const StudyPoints here = read(text);
  const OwnFolder elsewhere;
  const std::string moved = elsewhere.write_trace("t.pb", 5);
  const std::string file =
      elsewhere.write("s2.textproto", fmt::format("base {{ trace: \"{}\" }}\n{}", moved, text));
  EXPECT_EQ(StudyPoints(file).identity(), here.identity());
  EXPECT_EQ(make_header(StudyPoints(file)).line, make_header(here).line);
  (void)elsewhere.write_trace("t.pb", 6);
  EXPECT_NE(StudyPoints(file).identity(), here.identity());
}

TEST_F(StudyFile, WrongOnesAreRefusedInOneLine) {
  std::filesystem::create_directories(folder_ / "other");
  const std::string same_name = folder_.write_trace("other/t.pb", 3);
  const struct {
    std::string text;
    const char* says;
  } kCases[] = {
      {"", "nothing varies"},
      {"grids { }", "Did you mean grid?"},
      {"list { gpuu: \"h100\" }", "Did you mean gpu?"},
      {"grid { option: \"gpu\" }", "grid gpu has no value"},
      {"grid { option: \"gpuu\" value: \"h100\" }", "did you mean 'gpu'?"},
      {"grid { option: \"request_rate\" value: \"fast\" }",
       "'fast' is no value of request_rate; a double is needed"},
      {"grid { option: \"max_num_seqs\" value: \"1.5\" }", "is no value of max_num_seqs"},
      {"grid { option: \"max_num_seqs\" value: \"1 gpu: \\\"h100\\\"\" }", "is no value of max_num_seqs"},
      {"grid { option: \"request_rate\" value: \"5\" value: \"5.0\" }",
       "entries 1 and 2 are the same points"},
      {"grid { option: \"gpu\" value: \"h100\" } list { gpu: \"h200\" }", "gpu varies elsewhere already"},
      {"grid { option: \"sim_seed\" value: \"1\" } seeds { count: 2 }", "sim_seed varies elsewhere already"},
      {"list { } list { }", "entries 1 and 2 are the same points"},
      {"seeds { }", "count is 0"},
      {"seeds { count: 10000000 } grid { option: \"gpu\" value: \"h100\" value: \"h200\" }",
       "more than 10000000 points"},
      {"zip { }", "zip has no axis"},
      {"zip { axis { option: \"gpu\" value: \"h100\" } axis { option: \"model\" value: \"qwen3-32b\" value: "
       "\"qwen3-14b\" } }",
       "need as many"},
      {"zip { axis { option: \"gpu\" value: \"h100\" } axis { option: \"gpu\" value: \"h200\" } }",
       "zip has gpu twice"},
      {"grid { option: \"out\" value: \"x\" }", "belongs to a single run"},
      {"list { out: \"x\" }", "list: out belongs to a single run"},
      {"grid { option: \"gpu\" value: \"h100\" value: \"h101\" }", "did you mean 'h100'?"},
      {"grid { option: \"model\" value: \"llama-9\" }", "is not known"},
      {"grid { option: \"scheduler\" value: \"vllm-v9\" }", "did you mean 'vllm-v"},
      {"grid { option: \"kv_cache_dtype\" value: \"fp9\" }", "is not known"},
      {"grid { option: \"request_rate\" value: \"-1\" }", "a rate above 0"},
      {"grid { option: \"trace\" value: \"absent.pb\" }", "absent.pb"},
      {fmt::format("grid {{ option: \"trace\" value: \"{}\" }}", same_name), "have the same name"},
  };
  for (const auto& c : kCases) {
    try {
      (void)read(c.text);
      ADD_FAILURE() << c.text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.says)) << c.text;
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    }
  }
}

TEST_F(StudyFile, PointsThatCannotRunAreAnswers) {
  // 70B in 16 bit on one H100; 3 GPUs for 32 heads; a policy without drafts; a
  // prompt of 64 to 68 tokens in 3 usable blocks of 16.
  const StudyPoints study = read(R"(
    list { }
    list { model: "llama-3.3-70b" }
    list { tensor_parallel_size: 3 }
    list { scheduler: "orca" speculative_config: "{\"method\": \"ngram\", \"num_speculative_tokens\": 2}" }
    list { num_gpu_blocks_override: 4 })");
  const char* const kStatus[] = {"ok", "cannot_run", "cannot_run", "cannot_run", "never_fits"};
  const char* const kReason[] = {"", "does not fit", "does not divide", "has no", "need more KV blocks"};
  for (std::int64_t i = 0; i < study.size(); ++i) {
    const Json record = Json::parse(study_record(study, i));
    EXPECT_EQ(record["point"], i);
    EXPECT_EQ(record["status"], kStatus[i]) << record["reason"];
    if (i == 0) {
      EXPECT_TRUE(record["reason"].is_null());
      EXPECT_EQ(record["result"]["completed"], 5);
      EXPECT_FALSE(record["result"].contains("configuration")) << "the header has it";
    } else {
      EXPECT_THAT(record["reason"].get<std::string>(), HasSubstr(kReason[i]));
      EXPECT_EQ(record["result"].is_null(), std::string(kStatus[i]) == "cannot_run");
    }
  }
}

TEST(StudyLines, SealedOnesReadBackAndNoOthers) {
  const std::string json = R"({"point":1,"text":"a\"}b"})";
  const std::string line = seal_line(json);
  EXPECT_EQ(unseal_line(line), json);
  EXPECT_TRUE(Json::accept(line));
  for (std::size_t i = 0; i < line.size(); ++i) {
    std::string damaged = line;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_EQ(unseal_line(damaged), std::nullopt) << i;
    EXPECT_EQ(unseal_line(line.substr(0, i)), std::nullopt) << i;
  }
}

TEST(StudyCsv, QuotesWhatNeedsIt) {
  const std::string line = study_csv_line(
      {"model"},
      R"({"point":3,"settings":{"model":"a,b"},"status":"cannot_run","reason":"say \"no\"","result":null})");
  EXPECT_THAT(line, testing::StartsWith("3,\"a,b\",cannot_run,"));
  EXPECT_THAT(line, testing::EndsWith(",\"say \"\"no\"\"\"\n"));
  const std::string header = study_csv_header({"model"});
  EXPECT_EQ(std::count(header.begin(), header.end(), ','), std::count(line.begin(), line.end(), ',') - 1);
}

// ---- the store, without the tool

class StudyStore : public StudyFile {
 protected:
  void run(const StudyPoints& study, const std::string& shard = "1/1") {
    OneProcess alone;
    (void)run_study_points(study, folder(), parse_shard(shard), 1, alone);
  }
  [[nodiscard]] std::filesystem::path folder() const { return folder_ / "out"; }
  [[nodiscard]] std::filesystem::path part() const { return folder_ / "out/parts/part-1-of-1.jsonl"; }
  const char* grid_ = "grid { option: \"gpu\" value: \"h100\" value: \"h200\" value: \"l40s\" }";
};

TEST_F(StudyStore, AnyFlippedByteIsFound) {
  run(read(grid_));
  (void)merge_study(folder());
  EXPECT_EQ(verify_study(folder()).found, 3);
  for (const char* name : {"parts/part-1-of-1.jsonl", "results.jsonl", "results.csv", "checksums.sha256"}) {
    const std::string good = testing_support::bytes_of(folder() / name);
    for (std::size_t i = 0; i < good.size(); i += i + 2 < good.size() ? 67 : 1) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 4);
      std::ofstream(folder() / name, std::ios::binary) << bad;
      EXPECT_THROW((void)verify_study(folder()), UsageError) << name << ", byte " << i;
    }
    std::ofstream(folder() / name, std::ios::binary) << good;
  }
  EXPECT_EQ(verify_study(folder()).found, 3);
}

TEST_F(StudyStore, DamageStopsMergeAndResumeToo) {
  const StudyPoints study = read(grid_);
  run(study);
  std::string bytes = testing_support::bytes_of(part());
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(part(), std::ios::binary) << bytes;
  EXPECT_THROW((void)merge_study(folder()), UsageError);
  EXPECT_THROW(run(study), UsageError);
}

TEST_F(StudyStore, ALineWithoutItsEndIsRunAgain) {
  const StudyPoints study = read(grid_);
  run(study);
  const std::string whole = testing_support::bytes_of(part());
  const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (const std::size_t kept : {last + 1, last + 200, whole.size() - 1}) {  // Even with all but its end.
    std::filesystem::resize_file(part(), kept);
    const StudyVerdict torn = verify_study(folder());
    EXPECT_EQ(torn.found, 2);
    EXPECT_EQ(torn.torn, 1);
    EXPECT_THROW((void)merge_study(folder()), UsageError) << "a point is missing";
    run(study);
    EXPECT_EQ(testing_support::bytes_of(part()), whole);
  }
  std::filesystem::resize_file(part(), 10);  // Killed in the header.
  run(study);
  EXPECT_EQ(testing_support::bytes_of(part()), whole);
}

TEST_F(StudyStore, ResultsOfAnotherStudyAreLeftAlone) {
  run(read(grid_));
  const std::string before = testing_support::bytes_of(part());
  EXPECT_THROW(run(read("grid { option: \"gpu\" value: \"h100\" }")), UsageError);
  EXPECT_EQ(testing_support::bytes_of(part()), before);
}

TEST_F(StudyStore, AnIncompleteStudySaysHowMuchIsMissing) {
  run(read(grid_), "2/3");
  const StudyVerdict verdict = verify_study(folder());
  EXPECT_EQ(verdict.found, 1);
  EXPECT_EQ(verdict.points, 3);
  EXPECT_FALSE(verdict.merged);
  try {
    (void)merge_study(folder());
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 of 3 points are missing (0, 2)"));
  }
}

TEST_F(StudyStore, OverlappingShardsAgreeAndContradictionsDoNot) {
  const StudyPoints study = read(grid_);
  run(study, "1/2");
  std::filesystem::copy_file(folder() / "parts/part-1-of-2.jsonl", folder() / "parts/copy.jsonl");
  run(study);
  EXPECT_EQ(merge_study(folder()), 3);
  // Another result of point 0, sealed: from another build, say.
  const std::string header = make_header(study).line;
  std::ofstream(folder() / "parts/copy.jsonl", std::ios::binary)
      << header << "\n"
      << seal_line(R"({"point":0,"status":"ok"})") << "\n";
  EXPECT_THROW((void)merge_study(folder()), UsageError);
}

TEST_F(StudyStore, APartHasOneWriter) {
  const StudyHeader header = make_header(read(grid_));
  make_study_folder(folder());
  const StudyPart first(folder(), "part-1-of-1", header);
  EXPECT_THROW(StudyPart(folder(), "part-1-of-1", header), UsageError);
}

TEST(StudyShard, IsOneOfSoMany) {
  EXPECT_EQ(parse_shard("2/3").index, 2);
  EXPECT_EQ(parse_shard("2/3").count, 3);
  for (const char* wrong : {"0/3", "4/3", "1", "1/", "/3", "a/b", "1/0", "-1/3", "1/3/5", "1.0/3", ""}) {
    EXPECT_THROW((void)parse_shard(wrong), UsageError) << wrong;
  }
}

}  // namespace
}  // namespace kneepoint::sim
