// Tables of measured servers as users write them: right, incomplete, wrong. All
// are small and made up; the columns are those of calibrate/README.md.
#include "calibrate/serving_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "calibrate/calibrate_error.h"

namespace kneepoint::calibrate {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class ServingRows : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "kneepoint_serving_rows";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  fs::path write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }
  std::string error_of(const fs::path& path) {
    try {
      static_cast<void>(read_serving_rows(path));
    } catch (const CalibrateError& error) {
      return error.what();
    }
    return "";
  }
  fs::path folder_;
};

constexpr const char* kClosedHead =
    "model_path,system,precision,isl,osl,concurrency,tp_size,backend_version,silicon_ttft_ms,silicon_tpot_ms,"
    "requests,length_min_fraction,max_num_seqs,kv_cache_dtype,prefix_caching\n";

TEST_F(ServingRows, ClosedLoopTakesServerAndClientFromItsColumns) {
  const auto rows = read_serving_rows(write(
      "a.csv", std::string(kClosedHead) +
                   "Qwen/Qwen3-32B,h100_sxm,,1024,128,8,2,0.12.0,154.2,18.0,80,0.8,8,bf16,0\n"
                   "meta-llama/Llama-3.1-70B,h200_sxm,fp8,512,64,4,1,,99.5,,,,,fp8,\n"));
  ASSERT_EQ(rows.size(), 2U);
  const ServingRow& full = rows[0];
  EXPECT_EQ(full.not_run, "");
  EXPECT_EQ(full.group, "qwen3-32b, closed loop");
  EXPECT_EQ(full.name, "qwen3-32b h100 tp2 1024/128 x8");
  EXPECT_EQ(full.setup.gpu, "h100");
  EXPECT_EQ(full.setup.vllm_version, "0.12.0");
  EXPECT_EQ(full.setup.max_num_seqs, 8);
  EXPECT_EQ(full.setup.prefix_caching, false);
  EXPECT_EQ(full.closed_loop->requests, 80);
  EXPECT_DOUBLE_EQ(full.closed_loop->min_fraction, 0.8);
  EXPECT_DOUBLE_EQ(*full.mean_ttft_ms, 154.2);
  const ServingRow& sparse = rows[1];
  EXPECT_EQ(sparse.closed_loop->requests, 40) << "ten times the concurrency, unless said";
  EXPECT_DOUBLE_EQ(sparse.closed_loop->min_fraction, 1) << "fixed lengths, unless said";
  EXPECT_EQ(sparse.setup.max_num_seqs, std::nullopt);
  EXPECT_EQ(sparse.setup.prefix_caching, std::nullopt);
  EXPECT_EQ(sparse.mean_tpot_ms, std::nullopt);
}

TEST_F(ServingRows, FormFactorsAndUnknownNames) {
  const auto rows = read_serving_rows(
      write("a.csv", "model,gpu,tp,weights,num_gpu_blocks\n"
                     "meta-llama/Llama-2-7b-hf,H100-SXM5-80GB,1,bf16,7463\n"
                     "meta-llama/Llama-2-7b-hf,H1000,1,bf16,7463\n"
                     "somebody/else-3b,h100,1,bf16,7463\n"));
  EXPECT_EQ(rows[0].setup.gpu, "h100");
  EXPECT_EQ(rows[0].num_gpu_blocks, 7463);
  EXPECT_EQ(rows[0].setup.weights, "") << "bf16 is what the checkpoint is in";
  EXPECT_THAT(rows[1].not_run, HasSubstr("GPU 'H1000' is not known")) << "an H100 with a digit more is another GPU";
  EXPECT_THAT(rows[2].not_run, HasSubstr("somebody/else-3b"));
}

constexpr const char* kOpenHead =
    "exp_id,model,workload,stage_index,hardware,tp,prec,mbt,gmu,e2e_mean,ttft_mean,ttft_p99,rate_rps,stage_seconds,"
    "shared_prefix_tokens,prompt_tokens,output_tokens,distinct_prompts\n";

TEST_F(ServingRows, AStageKnowsWhatWentBeforeIt) {
  const auto rows = read_serving_rows(
      write("a.csv", std::string(kOpenHead) +
                         "7,meta-llama/Llama-3.1-8B-Instruct,chat,-1,L40S,1,FP16,2048,0.9,2020,20,40,2;6,100,50,150,101,10\n"
                         "7,meta-llama/Llama-3.1-8B-Instruct,chat,1,L40S,1,FP16,2048,0.9,2020,20,40,6,100,50,150,101,10\n"
                         "8,meta-llama/Llama-3.1-8B-Instruct,chat,1,L40S,1,FP16,2048,0.9,2020,20,40,6,100,50,150,101,10\n"));
  EXPECT_THAT(rows[1].open_loop->rates_per_s, testing::ElementsAre(2, 6));
  EXPECT_EQ(rows[1].open_loop->stage, 1);
  EXPECT_THAT(rows[2].open_loop->rates_per_s, testing::ElementsAre(6)) << "nothing is known of its other stage";
  EXPECT_EQ(rows[2].open_loop->stage, 0);
  // (2020 - 20) ms over the 100 tokens after the first.
  EXPECT_DOUBLE_EQ(*rows[0].mean_tpot_ms, 20);
  EXPECT_EQ(rows[0].setup.weights, "") << "FP16 is no quantisation";
}

TEST_F(ServingRows, WrongCellsAreNamed) {
  EXPECT_THAT(error_of(write("a.csv", "a,b\n1,2\n")), HasSubstr("none of the columns concurrency, rate_rps"));
  EXPECT_THAT(error_of(write("b.csv", std::string(kClosedHead) + "m,h100,,1024,128,0,2,,1,1,,,,,\n")),
              HasSubstr("line 2: lengths, concurrency and requests must be at least 1"));
  EXPECT_THAT(error_of(write("c.csv", std::string(kOpenHead) +
                                          "7,m,chat,-1,L40S,1,FP16,2048,0.9,2020,20,40,2;;6,100,50,150,101,10\n")),
              HasSubstr("column 'rate_rps' is '2;;6'"));
  EXPECT_THAT(error_of(write("d.csv", std::string(kOpenHead) +
                                          "7,m,chat,-1,L40S,1,FP16,2048,0.9,2020,20,40,2,100,151,150,101,10\n")),
              HasSubstr("shared_prefix_tokens within the prompt"));
}

constexpr const char* kMeta =
    R"({"model": "meta-llama/Llama-3.1-8B", "vllm_version": "0.19.0",
        "engine_kwargs": {"max_num_seqs": 128, "max_model_len": null, "kv_cache_dtype": "auto"}})";

TEST_F(ServingRows, ARecordedRunIsOneRow) {
  // Stamps in any order; TTFT from the scheduler's queue: 0.2 and 0.4 s. TPOT: 1 s over 4 and 2 s over 20 tokens.
  write("l40s_a/meta.json", kMeta);
  write("l40s_a/requests.jsonl",
        R"({"input_toks": 100, "output_toks": 21, "arrival_time": 51.0, "queued_ts": 1.0, "first_token_ts": 1.4, "last_token_ts": 3.4})"
        "\n"
        R"({"input_toks": 200, "output_toks": 5, "arrival_time": 50.5, "queued_ts": 0.5, "first_token_ts": 0.7, "last_token_ts": 1.7})"
        "\n");
  const auto rows = read_serving_rows(folder_);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].not_run, "");
  EXPECT_EQ(rows[0].file, "l40s_a") << "results name no folders";
  EXPECT_EQ(rows[0].setup.max_num_seqs, 128);
  EXPECT_EQ(rows[0].setup.max_model_len, std::nullopt);
  ASSERT_EQ(rows[0].recorded->requests.size(), 2U);
  EXPECT_EQ(rows[0].recorded->requests[0].prompt_tokens, 200);
  EXPECT_DOUBLE_EQ(rows[0].recorded->requests[1].arrival_s, 0.5);
  EXPECT_NEAR(*rows[0].mean_ttft_ms, 300, 1e-9);
  EXPECT_NEAR(*rows[0].mean_tpot_ms, 175, 1e-9);
}

TEST_F(ServingRows, WhatARunDoesNotSayIsSaid) {
  write("mystery/meta.json", kMeta);
  write("mystery/requests.jsonl",
        R"({"input_toks": 1, "output_toks": 1, "arrival_time": 0, "queued_ts": 0, "first_token_ts": 1, "last_token_ts": 1})");
  EXPECT_THAT(read_serving_rows(folder_ / "mystery")[0].not_run, HasSubstr("names no GPU"));
  write("logs_only/server.log", "");
  const auto rows = read_serving_rows(folder_);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(rows[0].not_run, HasSubstr("calibrate validate"));
  write("mystery/requests.jsonl", R"({"input_toks": 1, "output_toks": 1, "arrival_time": 0, "queued_ts": 2})");
  EXPECT_THAT(error_of(folder_ / "mystery"), HasSubstr("line 1: field 'first_token_ts' is missing"));
}

}  // namespace
}  // namespace kneepoint::calibrate
