// A vllm serve line becomes a resolved run: every modelled flag moves it, every
// other is refused or named, and what --print-config writes gives the same run.
#include "sim/options.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

using testing::HasSubstr;

RunConfig parse(std::vector<std::string> words) {
  words.insert(words.begin(), {"--trace", "t.pb"});
  std::ostringstream out;
  return parse_simulate(words, out).value();
}

std::string complaint(std::vector<std::string> words) {
  try {
    (void)parse(std::move(words));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was wrong";
}

TEST(Options, DefaultsAreVllmsForAnApiServerOnAnH100) {
  const RunConfig config = parse({});
  EXPECT_EQ(config.deployment.model.name, "llama-3.1-8b");
  EXPECT_EQ(config.deployment.gpu.name, "h100");
  EXPECT_EQ(config.engine.max_num_batched_tokens, 8192);
  EXPECT_EQ(config.engine.max_num_seqs, 1024);
  EXPECT_EQ(config.engine.max_model_len, 131072);
  EXPECT_EQ(config.engine.block_size, 16);
  EXPECT_TRUE(config.engine.enable_prefix_caching);
  EXPECT_TRUE(config.engine.enable_chunked_prefill);
  EXPECT_TRUE(config.engine.async_scheduling);
  EXPECT_EQ(batches_in_flight(config.engine), 2);
  EXPECT_DOUBLE_EQ(config.deployment.gpu_memory_utilization, 0.92);
}

TEST(Options, DefaultsFollowTheDevice) {
  const RunConfig config = parse({"--gpu", "l40s"});
  EXPECT_EQ(config.engine.max_num_batched_tokens, 2048) << "below 70 GiB";
  EXPECT_EQ(config.engine.max_num_seqs, 256);
}

TEST(Options, APastedServeLineIsTakenAsItIs) {
  const RunConfig config =
      parse({"vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "-tp", "2", "--port", "8000",
             "--max_model_len=8k", "--no-enable-prefix-caching", "--max-num-seqs", "256", "--api-key", "x",
             "--kv-cache-dtype", "fp8", "--disable-log-requests"});
  EXPECT_EQ(config.deployment.model.name, "llama-3.1-8b");
  EXPECT_EQ(config.deployment.tensor_parallel_size, 2);
  EXPECT_EQ(config.engine.max_model_len, 8000);
  EXPECT_FALSE(config.engine.enable_prefix_caching);
  EXPECT_EQ(config.engine.max_num_seqs, 256);
  EXPECT_EQ(config.deployment.kv_cache, hw::Precision::kFp8);
  EXPECT_THAT(config.flags_without_influence,
              testing::ElementsAre("--port", "--api-key", "--disable-log-requests"));
}

struct SizeCase {
  const char* text;
  std::int64_t value;
};

TEST(Options, SizesAreReadAsVllmReadsThem) {
  for (const SizeCase& c : {SizeCase{"8192", 8192},
                            {"8k", 8000},
                            {"8K", 8192},
                            {"25.6k", 25600},
                            {"2m", 2000000},
                            {"1M", 1048576},
                            {"1G", 1073741824},
                            {"-1", -1}}) {
    EXPECT_EQ(parse_size("x", c.text), c.value) << c.text;
  }
  for (const char* wrong : {"", "k", "8q", "8kk", "1.5K", "1.5", "nan", "inf", "0x10", "9e99"}) {
    EXPECT_THROW((void)parse_size("x", wrong), UsageError) << wrong;
  }
}

struct Change {
  const char* flag;
  std::vector<std::string> words;
};

// A value for each modelled flag that is not its default.
std::vector<std::string> changed(std::string_view flag) {
  static const std::vector<Change> kChanges = {
      {"model", {"--model", "qwen2.5-7b"}},
      {"tensor-parallel-size", {"-tp", "2"}},
      {"pipeline-parallel-size", {"-pp", "2"}},
      {"enable-expert-parallel", {"--enable-expert-parallel"}},
      {"quantization", {"-q", "fp8"}},
      {"kv-cache-dtype", {"--kv-cache-dtype", "fp8"}},
      {"max-model-len", {"--max-model-len", "4096"}},
      {"max-num-seqs", {"--max-num-seqs", "64"}},
      {"max-num-batched-tokens", {"--max-num-batched-tokens", "4096"}},
      {"max-num-scheduled-tokens", {"--max-num-scheduled-tokens", "4096"}},
      {"max-num-active-seqs", {"--max-num-active-seqs", "64"}},
      {"enable-chunked-prefill", {"--no-enable-chunked-prefill"}},
      {"long-prefill-token-threshold", {"--long-prefill-token-threshold", "512"}},
      {"long-prefill-token-threshold-adaptive", {"--long-prefill-token-threshold-adaptive"}},
      {"prefill-schedule-interval", {"--prefill-schedule-interval", "2"}},
      {"scheduling-policy", {"--scheduling-policy", "priority"}},
      {"async-scheduling", {"--no-async-scheduling"}},
      {"watermark", {"--watermark", "0.1"}},
      {"scheduler-reserve-full-isl", {"--no-scheduler-reserve-full-isl"}},
      {"max-loras", {"--max-loras", "4"}},
      {"enable-prefix-caching", {"--no-enable-prefix-caching"}},
      {"block-size", {"--block-size", "32"}},
      {"gpu-memory-utilization", {"--gpu-memory-utilization", "0.8"}},
      {"kv-cache-memory-bytes", {"--kv-cache-memory-bytes", "20G"}},
      {"num-gpu-blocks-override", {"--num-gpu-blocks-override", "5000"}},
      {"max-num-queued-reqs", {"--max-num-queued-reqs", "9"}},
      {"max-num-queued-tokens", {"--max-num-queued-tokens", "9"}},
      {"speculative-config", {"-sc", R"({"method":"ngram","num_speculative_tokens":4})"}},
      {"optimization-level", {"-O0"}},
      {"performance-mode", {"--performance-mode", "throughput"}},
      {"enforce-eager", {"--enforce-eager"}},
      {"use-v2-model-runner", {"--no-use-v2-model-runner"}},
      {"preemption-mode", {"--scheduler", "vllm-v0", "--preemption-mode", "swap"}},
      {"swap-space", {"--scheduler", "vllm-v0", "--preemption-mode", "swap", "--swap-space", "1"}},
  };
  for (const Change& change : kChanges) {
    if (flag == change.flag) {
      return change.words;
    }
  }
  return {};
}

// What of a run decides anything, as text.
std::string decisive(const RunConfig& c) {
  std::string text = as_text(as_proto(c, {}));
  text +=
      fmt::format("{} {} {} {} {} {} {} {}", c.engine.long_prefill_token_threshold_adaptive,
                  c.engine.max_num_scheduled_tokens.value_or(-1), c.engine.max_num_active_seqs.value_or(-1),
                  c.engine.num_speculative_tokens, c.engine.preemption_mode_swap, c.engine.num_cpu_blocks,
                  c.deployment.enforce_eager, c.deployment.enable_expert_parallel);
  text += fmt::format(" {} blocks ", c.engine.num_blocks);
  text += fmt::format("{} {}", c.admission.max_num_queued_reqs.value_or(-1),
                      c.admission.max_num_queued_tokens.value_or(-1));
  return text;
}

TEST(Options, EveryModelledFlagHasAnEffect) {
  const std::string plain = decisive(parse({}));
  for (const Flag& flag : flags()) {
    if (flag.group != FlagClass::kModelled || flag.name == "dtype" ||
        flag.name == "prefix-cache-retention-interval") {
      continue;  // Checked, not chosen: 16-bit types cost the same; retention needs a sliding window.
    }
    const std::vector<std::string> words = changed(flag.name);
    ASSERT_FALSE(words.empty()) << "no changed value for --" << flag.name;
    EXPECT_NE(decisive(parse(words)), plain) << "--" << flag.name;
  }
}

TEST(Options, WhatIsNotModelledIsAnErrorUnlessNeutral) {
  EXPECT_THAT(complaint({"--data-parallel-size", "2"}), HasSubstr("not modelled yet"));
  EXPECT_EQ(complaint({"--data-parallel-size", "1"}), "nothing was wrong");
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--kv-transfer-config", R"({"kv_connector":"X"})"},
                                             {"--cpu-offload-gb", "10"},
                                             {"--hf-overrides", R"({"a":1})"},
                                             {"--compilation-config", R"({"cudagraph_mode":"NONE"})"},
                                             {"--decode-context-parallel-size", "2"},
                                             {"--enable-dbo"}}) {
    EXPECT_THAT(complaint(words), HasSubstr("not modelled yet")) << words.front();
  }
  EXPECT_EQ(complaint({"--cpu-offload-gb", "0"}), "nothing was wrong");
}

TEST(Options, PrintConfigReproducesTheRun) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {},
           {"--gpu", "h200", "--model", "qwen3-32b", "-q", "fp8", "--max-model-len", "16K"},
           {"--scheduler", "sarathi", "--max-num-batched-tokens", "512", "--max-num-seqs", "64"},
           {"--max-model-len", "-1", "--gpu", "l40s"}}) {
    const RunConfig first = parse(words);
    std::vector<std::string> again = {"--print-config"};
    again.insert(again.end(), words.begin(), words.end());
    std::ostringstream printed;
    ASSERT_FALSE(parse_simulate(again, printed).has_value());
    pb::RunConfig proto;
    const std::string file = testing::TempDir() + "/printed.textproto";
    {
      std::FILE* out = std::fopen(file.c_str(), "w");
      std::fputs(printed.str().c_str(), out);
      std::fclose(out);
    }
    const RunConfig second = resolve(read_run_config(file));
    EXPECT_EQ(decisive(second), decisive(first));
    EXPECT_EQ(second.engine.num_blocks, first.engine.num_blocks);
  }
}

struct Wrong {
  std::vector<std::string> words;
  const char* says;
};

TEST(Options, WrongUseGivesOneLineThatSaysWhatToDo) {
  for (const Wrong& wrong : {
           Wrong{{"--max-num-seq", "5"}, "did you mean --max-num-seqs?"},
           Wrong{{"--gpu", "h10"}, "did you mean 'h100'?"},
           Wrong{{"--scheduler", "sarati"}, "did you mean 'sarathi'?"},
           Wrong{{"--model", "llama-3.3-70b"}, "-tp 2"},
           Wrong{{"--max-model-len", "1"}, "at least 2"},
           Wrong{{"--max-model-len", "1G"}, "at most"},
           Wrong{{"--gpu-memory-utilization", "1.5"}, "at most 1"},
           Wrong{{"--request-rate", "-3"}, "above 0"},
           Wrong{{"--burstiness", "2"}, "--request-rate"},
           Wrong{{"--goodput", "ttft"}, "METRIC:MS"},
           Wrong{{"--goodput", "ttft:nan"}, "METRIC:MS"},
           Wrong{{"--max-num-seqs"}, "needs a value"},
           Wrong{{"--max-num-seqs", "many"}, "a whole number"},
           Wrong{{"-tp", "3"}, "divisor"},
           Wrong{{"--num-gpu-blocks-override", "0"}, ""},
           Wrong{{"-sc", "{"}, "JSON"},
           Wrong{{"-sc", R"({"method":"magic","num_speculative_tokens":2})"}, "magic"},
           Wrong{{"--orca-reserve", "max"}, "orca only"},
           Wrong{{"--run-config", "absent.textproto"}, "cannot be read"},
           Wrong{{"a", "b"}, "one argument too many"},
       }) {
    const std::string said = complaint(wrong.words);
    EXPECT_THAT(said, HasSubstr(wrong.says)) << wrong.words.front();
    EXPECT_NE(said, "nothing was wrong") << wrong.words.front();
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace kneepoint::sim
