// A vllm serve line becomes a resolved run: vLLM's defaults, its checks at
// startup, and a reason for every value nobody gave.
#include "sim/options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Words = std::vector<std::string>;

RunConfig parse(Words words) {
  words.insert(words.begin(), {"--trace", "t.pb"});
  std::ostringstream out;
  return parse_simulate(words, out).value();
}

std::string complaint(const Words& words) {
  try {
    (void)parse(words);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was wrong";
}

// A config.json of a small dense model, with `facts` added.
std::string model_file(const std::string& name, const std::string& architecture, const std::string& facts) {
  const std::string path = testing::TempDir() + "/" + name + ".json";
  std::ofstream(path) << fmt::format(
      R"({{"architectures": ["{}"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
          "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
          "max_position_embeddings": 32768{}}})",
      architecture, facts);
  return path;
}

TEST(Options, DefaultsAreVllmsForAnApiServer) {
  const RunConfig config = parse({});
  EXPECT_EQ(config.deployment.model.name, "llama-3.1-8b");
  EXPECT_EQ(config.deployment.gpu.name, "h100");
  EXPECT_EQ(config.deployment.weights, hw::Precision::kBf16);
  EXPECT_EQ(config.deployment.kv_cache, hw::Precision::kBf16);
  EXPECT_DOUBLE_EQ(config.deployment.gpu_memory_utilization, 0.92);
  const engine::SchedulerConfig& e = config.engine;
  EXPECT_EQ(e.max_model_len, 131072);
  EXPECT_EQ(e.block_size, 16);
  EXPECT_TRUE(e.enable_prefix_caching);
  EXPECT_TRUE(e.enable_chunked_prefill);
  EXPECT_TRUE(e.scheduler_reserve_full_isl);
  EXPECT_EQ(e.long_prefill_token_threshold, 0);
  EXPECT_EQ(e.prefill_schedule_interval, 1);
  EXPECT_EQ(e.policy, engine::SchedulingPolicy::kFcfs);
  EXPECT_EQ(e.watermark, 0);
  EXPECT_EQ(e.prefix_cache_retention_interval, 0);
  EXPECT_FALSE(e.max_num_active_seqs.has_value());
  EXPECT_FALSE(config.admission.max_num_queued_reqs.has_value());
}

struct Limits {
  Words words;
  std::int64_t batched_tokens;
  std::int64_t seqs;
};

// GPUs: H100 79.2 GiB, H200 139.8, L40S 44.4; the A100 counts as a small one.
TEST(Options, LimitsFollowDeviceAndUse) {
  for (const Limits& limits : {
           Limits{{}, 8192, 1024},
           Limits{{"--gpu", "h200"}, 8192, 1024},
           Limits{{"--gpu", "l40s"}, 2048, 256},
           Limits{{"--gpu", "a100"}, 2048, 256},
           Limits{{"--performance-mode", "throughput"}, 16384, 2048},
           // 2 sequences of at most 1000 tokens never fill more than 2000.
           Limits{{"--max-num-seqs", "2", "--max-model-len", "1000"}, 2000, 2},
           // Without chunks a step must hold the longest prompt.
           Limits{{"--no-enable-chunked-prefill", "--max-model-len", "16K"}, 16384, 1024},
           Limits{{"--no-enable-chunked-prefill", "--max-model-len", "4K"}, 8192, 1024},
           // Each sequence of a step needs a token of it.
           Limits{{"--max-num-batched-tokens", "128"}, 128, 128},
           // What is given stays.
           Limits{{"--max-num-batched-tokens", "16384", "--max-num-seqs", "3", "--max-model-len", "1000"},
                  16384,
                  3},
       }) {
    const RunConfig config = parse(limits.words);
    EXPECT_EQ(config.engine.max_num_batched_tokens, limits.batched_tokens)
        << fmt::format("{}", fmt::join(limits.words, " "));
    EXPECT_EQ(config.engine.max_num_seqs, limits.seqs) << fmt::format("{}", fmt::join(limits.words, " "));
  }
}

struct Depth {
  Words words;
  bool async;
  std::int64_t batches;
};

TEST(Options, AsynchronousWhereVllmIs) {
  const auto drafts = [](const char* method) {
    return fmt::format(R"({{"method": "{}", "num_speculative_tokens": 2, "model": "llama-3.1-8b"}})", method);
  };
  for (const Depth& depth : {
           Depth{{}, true, 2},
           Depth{{"--no-async-scheduling"}, false, 1},
           Depth{{"-pp", "2"}, true, 3},
           Depth{{"-pp", "2", "--no-use-v2-model-runner"}, false, 2},
           Depth{{"--no-use-v2-model-runner"}, true, 2},
           Depth{{"-sc", drafts("ngram")}, false, 1},
           Depth{{"-sc", drafts("eagle")}, true, 2},
           Depth{{"-sc", drafts("mtp")}, true, 2},
           Depth{{"-sc", drafts("draft_model")}, true, 2},
           Depth{{"--scheduler", "vllm-v0"}, false, 1},
           Depth{{"--scheduler", "sarathi"}, false, 1},
           Depth{{"--scheduler", "orca"}, false, 1},
       }) {
    const RunConfig config = parse(depth.words);
    EXPECT_EQ(config.engine.async_scheduling, depth.async) << fmt::format("{}", fmt::join(depth.words, " "));
    EXPECT_EQ(batches_in_flight(config.engine), depth.batches)
        << fmt::format("{}", fmt::join(depth.words, " "));
  }
}

struct Blocks {
  Words words;
  std::int64_t blocks;
};

// Llama 3.1 8B keeps 128 KiB of KV a token in bf16: 2 MiB a block of 16, so that
// 20 GiB are 10,240 blocks. Half the bytes a block: twice as many.
TEST(Options, BlocksFollowFromWhatOneTakes) {
  for (const Blocks& c : {
           Blocks{{}, 10240},
           Blocks{{"-tp", "2"}, 20480},
           Blocks{{"-pp", "2"}, 20480},
           Blocks{{"--kv-cache-dtype", "fp8"}, 20480},
           Blocks{{"--block-size", "32"}, 5120},
           Blocks{{"--num-gpu-blocks-override", "77"}, 77},
           // TP over more GPUs than KV heads copies heads: 8 ranks with one head, so have 16.
           Blocks{{"-tp", "8"}, 81920},
           Blocks{{"-tp", "16"}, 81920},
       }) {
    Words words = c.words;
    words.insert(words.end(), {"--kv-cache-memory-bytes", "20G"});
    EXPECT_EQ(parse(words).engine.num_blocks, c.blocks) << fmt::format("{}", fmt::join(c.words, " "));
  }
}

// 1 GiB is 512 blocks, 511 beside the null block: 8176 tokens.
TEST(Options, TheLongestRequestMustFitBesideTheNullBlock) {
  const Words one_gib = {"--kv-cache-memory-bytes", "1G"};
  const auto with_length = [&](const char* length) {
    Words words = one_gib;
    words.insert(words.end(), {"--max-model-len", length});
    return words;
  };
  EXPECT_EQ(parse(with_length("8176")).engine.max_model_len, 8176);
  EXPECT_THAT(complaint(with_length("8177")), HasSubstr("--max-model-len 8176"));
  EXPECT_THAT(complaint(with_length("8177")), HasSubstr("needs 513 KV blocks and there are 512"));
  EXPECT_EQ(parse(with_length("-1")).engine.max_model_len, 8176);
  EXPECT_EQ(parse(with_length("auto")).deployment.max_model_len, 8176);
  EXPECT_EQ(parse({"--max-model-len", "-1", "--kv-cache-memory-bytes", "20G"}).engine.max_model_len, 131072);
}

// What does not fit names what would, and that then does.
TEST(Options, AModelThatDoesNotFitComesWithAWayOut) {
  const std::string said = complaint({"llama-3.3-70b"});
  EXPECT_THAT(said, HasSubstr("GiB short; give -tp 4, or --quantization fp8 and -tp 2"));
  EXPECT_EQ(complaint({"llama-3.3-70b", "-tp", "4"}), "nothing was wrong");
  EXPECT_EQ(complaint({"llama-3.3-70b", "-tp", "2", "-q", "fp8"}), "nothing was wrong");
  EXPECT_THAT(complaint({"llama-3.3-70b", "-q", "fp8"}), HasSubstr("-tp 2"));
  EXPECT_THAT(complaint({"--kv-cache-memory-bytes", "2M"}), HasSubstr("give room for two at least"));
}

// 79.2 GiB hold 15 GiB of weights and about 32,880 blocks of 2 MiB.
TEST(Options, MoreBlocksThanMemoryHoldsAreRefused) {
  EXPECT_EQ(complaint({"--num-gpu-blocks-override", "30000"}), "nothing was wrong");
  EXPECT_THAT(complaint({"--num-gpu-blocks-override", "1000000"}),
              HasSubstr("on a GPU of 79.2 GiB; give at most 32"));
}

TEST(Options, HostMemoryForSwapIsCountedInBlocks) {
  const Words swap = {"--scheduler", "vllm-v0", "--preemption-mode", "swap"};
  EXPECT_EQ(parse(swap).engine.num_cpu_blocks, 2048);  // 4 GiB of 2 MiB.
  Words one = swap;
  one.insert(one.end(), {"--swap-space", "1"});
  EXPECT_EQ(parse(one).engine.num_cpu_blocks, 512);
}

struct Types {
  Words words;
  hw::Precision weights;
  bool static_scales;
  const char* says;
};

TEST(Options, TypesComeFromFlagsOrTheCheckpoint) {
  const std::string awq =
      model_file("awq", "LlamaForCausalLM", R"(, "quantization_config": {"quant_method": "awq", "bits": 4})");
  const std::string static_fp8 =
      model_file("static", "LlamaForCausalLM",
                 R"(, "quantization_config": {"quant_method": "fp8", "activation_scheme": "static"})");
  const auto kBf16 = hw::Precision::kBf16;
  for (const Types& types : {
           Types{{}, kBf16, false, "weights: bfloat16, from the model"},
           Types{{"--dtype", "half"},
                 kBf16,
                 false,
                 "KV cache: float16, from --kv-cache-dtype auto and --dtype"},
           Types{{}, kBf16, false, "KV cache: bfloat16, from --kv-cache-dtype auto and the model"},
           Types{{"--kv-cache-dtype", "fp8"}, kBf16, false, "KV cache: fp8, from --kv-cache-dtype fp8"},
           Types{{"-q", "fp8"}, hw::Precision::kFp8, false, "weights: fp8, from --quantization"},
           Types{{"-q", "modelopt"}, hw::Precision::kFp8, true, "weights: modelopt, from --quantization"},
           Types{{"-q", "gptq"}, hw::Precision::kInt4, false, "weights: gptq, from --quantization"},
           Types{{awq}, hw::Precision::kInt4, false, "weights: awq, from the model"},
           Types{{awq, "-q", "awq_marlin"},
                 hw::Precision::kInt4,
                 false,
                 "weights: awq_marlin, from --quantization"},
           Types{{static_fp8}, hw::Precision::kFp8, true, "weights: fp8, from the model"},
       }) {
    const RunConfig config = parse(types.words);
    EXPECT_EQ(config.deployment.weights, types.weights) << types.says;
    EXPECT_EQ(config.deployment.static_fp8_scales, types.static_scales) << types.says;
    EXPECT_THAT(config.provenance, Contains(types.says));
  }
  EXPECT_THAT(complaint({awq, "-q", "fp8"}), HasSubstr("contradicts the awq weights"));
  EXPECT_THAT(complaint({"-q", "compressed-tensors"}), HasSubstr("is not quantised"));
  EXPECT_THAT(complaint({"--dtype", "float32"}), HasSubstr("known are auto, bfloat16"));
}

TEST(Options, OneWindowIsAWindowSeveralKindsAreFullAttention) {
  const RunConfig window =
      parse({model_file("mistral", "MistralForCausalLM", R"(, "sliding_window": 4096)")});
  EXPECT_EQ(window.engine.sliding_window, 4096);
  EXPECT_THAT(window.provenance, Contains("KV blocks: one group with a sliding window of 4096 tokens"));
  const RunConfig mixed =
      parse({model_file("gemma", "Gemma2ForCausalLM", R"(, "sliding_window": 4096, "head_dim": 128)")});
  EXPECT_FALSE(mixed.engine.sliding_window.has_value());
  EXPECT_THAT(mixed.provenance, Contains(HasSubstr("one full-attention group for all layers")));
  EXPECT_EQ(parse({model_file("mistral", "MistralForCausalLM", R"(, "sliding_window": 4096)"),
                   "--prefix-cache-retention-interval", "512"})
                .engine.prefix_cache_retention_interval,
            512);
}

TEST(Options, AYarnContextIsTakenAndSaid) {
  const RunConfig config = parse({"qwen3-32b", "-q", "fp8", "--gpu", "h200", "--max-model-len", "128K"});
  EXPECT_EQ(config.engine.max_model_len, 131072);
  EXPECT_THAT(config.provenance, Contains(HasSubstr("YaRN")));
  EXPECT_EQ(parse({"qwen3-32b", "-q", "fp8", "--gpu", "h200"}).engine.max_model_len, 40960);
}

TEST(Options, EachOpenLimitSaysWhereItComesFrom) {
  const RunConfig open = parse({});
  EXPECT_THAT(
      open.provenance,
      Contains("max_num_batched_tokens 8192: vLLM's default for API servers on GPUs of 70 GiB and more"));
  EXPECT_THAT(open.provenance,
              Contains("max_num_seqs 1024: vLLM's default for API servers on GPUs of 70 GiB and more"));
  EXPECT_THAT(
      open.provenance,
      Contains(HasSubstr(fmt::format("{} blocks of 16 tokens: vLLM's sizing", open.engine.num_blocks))));
  const RunConfig given = parse({"--max-num-seqs", "9", "--max-num-batched-tokens", "512"});
  EXPECT_THAT(given.provenance, Not(Contains(HasSubstr("max_num_"))));
}

TEST(Options, BesideAMeasuredServerItsOwnFlagsHaveNoInfluence) {
  const RunConfig config =
      parse({"--server", "s.textproto", "-tp", "2", "-pp", "2", "--enforce-eager",
             "--num-gpu-blocks-override", "500", "--max-model-len", "4096", "--port", "80"});
  EXPECT_THAT(config.flags_without_influence,
              testing::ElementsAre("--port", "--tensor-parallel-size", "--enforce-eager"));
  EXPECT_EQ(batches_in_flight(config.engine), 3) << "the pipeline still counts";
}

TEST(Options, CommandsAreAnswered) {
  for (const auto& [word, says] : {std::pair{"--help", "example"}, std::pair{"--version", kVersion},
                                   std::pair{"--list-schedulers", "vllm-v1"}}) {
    std::ostringstream out;
    EXPECT_FALSE(parse_simulate(Words{word}, out).has_value());
    EXPECT_THAT(out.str(), HasSubstr(says));
  }
}

struct Wrong {
  Words words;
  const char* says;
};

TEST(Options, WrongUseGivesOneLineThatSaysWhatToDo) {
  const std::string typo = testing::TempDir() + "/typo.textproto";
  std::ofstream(typo) << "max_num_seq: 7\n";
  const std::string cut = testing::TempDir() + "/cut.textproto";
  std::ofstream(cut) << "max_num_seqs: \n";
  for (const Wrong& wrong : {
           Wrong{{"--gpu", "h10"}, "did you mean 'h100'?"},
           Wrong{{"--model", "llama-3.1-8"}, "did you mean 'llama-3.1-8b'?"},
           Wrong{{"--scheduler", "sarati"}, "did you mean 'sarathi'?"},
           Wrong{{"--format", "jsn"}, "did you mean 'json'?"},
           Wrong{{"--performance-mode", "fast"}, "known are balanced"},
           Wrong{{"--quantization", "bitsandbytes"}, "is not known"},
           Wrong{{"--max-model-len", "1"}, "at least 2"},
           Wrong{{"--max-model-len", "1G"}, "at most"},
           Wrong{{"--max-model-len", "1M"}, "131072 positions"},
           Wrong{{"--max-num-seqs", "0"}, "max-num-seqs is 0"},
           Wrong{{"--max-num-seqs", "-5"}, "--max-num-seqs is -5"},
           Wrong{{"--max-num-seqs", "9000000000000000000"}, "give at most 1073741824"},
           Wrong{{"--block-size", "0"}, "block-size is 0"},
           Wrong{{"--gpu-memory-utilization", "1.5"}, "at most 1"},
           Wrong{{"--watermark", "1"}, "from 0 to below 1"},
           Wrong{{"--request-rate", "-3"}, "above 0"},
           Wrong{{"--burstiness", "2"}, "--request-rate"},
           Wrong{{"--max-concurrency", "0"}, "at least 1"},
           Wrong{{"--client-timeout", "0"}, "above 0"},
           Wrong{{"--goodput", "ttft"}, "METRIC:MS"},
           Wrong{{"--goodput", "ttft:nan"}, "METRIC:MS"},
           Wrong{{"--goodput", "ttft:-1"}, "METRIC:MS"},
           Wrong{{"--goodput", "itl:5"}, "ttft, tpot or e2el"},
           Wrong{{"-tp", "3"}, "divisor"},
           Wrong{{"-tp", "0"}, "divisor"},
           Wrong{{"-pp", "33"}, "give 1 to 32"},
           Wrong{{"-O1"}, "give 2 (default), 3 or 0"},
           Wrong{{"--num-gpu-blocks-override", "1"}, "at least 2"},
           Wrong{{"-sc", R"({"method":"magic","num_speculative_tokens":2})"}, "magic"},
           Wrong{{"-sc", R"({"method":"ngram","num_speculative_tokens":2})", "--async-scheduling"}, "async"},
           Wrong{{"--orca-reserve", "max"}, "orca only"},
           Wrong{{"--swap-space", "4"}, "vllm-v0 only"},
           Wrong{{"--scheduler", "vllm-v0", "--swap-space", "4"}, "swap only"},
           Wrong{{"--scheduler", "orca", "--enable-prefix-caching"}, "orca has no --enable-prefix-caching"},
           Wrong{{"--scheduler", "sarathi", "--async-scheduling"}, "sarathi has no --async-scheduling"},
           Wrong{{"--scheduler", "vllm-v0", "--max-loras", "2"}, "vllm-v0 has no --max-loras above 1"},
           Wrong{{"--prefix-cache-retention-interval", "16"}, "no sliding window"},
           Wrong{{"--server", "s.textproto"}, "--max-model-len"},
           Wrong{{"--server", "s.textproto", "--max-model-len", "4096"}, "--num-gpu-blocks-override"},
           Wrong{{"--server", "s.textproto", "--gpu", "h100"}, "give one of them"},
           Wrong{{"--plots"}, "give that, too"},
           Wrong{{"--plots", "--out", "o", "--no-report"}, "leave out --no-report"},
           Wrong{{"--run-config", "absent.textproto"}, "absent.textproto: cannot be read"},
           Wrong{{"--run-config", testing::TempDir()}, "cannot be read"},
           Wrong{{"--run-config", typo}, "Did you mean max_num_seqs?"},
           Wrong{{"--run-config", cut}, "line 2"},
       }) {
    const std::string said = complaint(wrong.words);
    EXPECT_THAT(said, HasSubstr(wrong.says)) << wrong.words.front();
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  std::ostringstream out;
  EXPECT_THROW((void)parse_simulate({}, out), UsageError) << "a run needs a trace";
}

}  // namespace
}  // namespace kneepoint::sim
