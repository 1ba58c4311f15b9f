// Every flag moves the resolved run, and what --print-config writes gives the same
// run again, decision by decision.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "sim/client.h"
#include "sim/options.h"
#include "sim/simulation.h"
#include "sim/vllm_flags.h"
#include "tests/support/toy_run.h"

namespace kneepoint::sim {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

RunConfig parse(Words words) {
  words.insert(words.begin(), {"--trace", "t.pb"});
  std::ostringstream out;
  return parse_simulate(words, out).value();
}

// A value for each flag of ours or of vLLM's that is modelled, other than its default.
struct Change {
  const char* flag;
  Words words;
  Words beside = {};  // What it needs beside it.

  [[nodiscard]] Words all() const {
    Words both = beside;
    both.insert(both.end(), words.begin(), words.end());
    return both;
  }
};

const std::vector<Change>& changes() {
  static const std::vector<Change> kChanges = {
      {"trace", {"--trace", "u.pb"}},
      {"request-rate", {"--request-rate", "5"}},
      {"burstiness", {"--burstiness", "0.5"}, {"--request-rate", "1"}},
      {"max-concurrency", {"--max-concurrency", "5"}},
      {"client-timeout", {"--client-timeout", "5"}},
      {"strict", {"--strict"}},
      {"plain-steps", {"--plain-steps"}},
      {"sim-seed", {"--sim-seed", "5"}},
      {"max-sim-time", {"--max-sim-time", "5"}},
      {"max-requests", {"--max-requests", "5"}},
      {"max-wall-time", {"--max-wall-time", "5"}},
      {"gpu", {"--gpu", "h200"}},
      {"rates", {"--rates", "r.textproto"}},
      {"server",
       {"--server", "s.textproto"},
       {"--num-gpu-blocks-override", "5000", "--max-model-len", "4096"}},
      {"scheduler", {"--scheduler", "sarathi"}},
      {"orca-reserve", {"--orca-reserve", "pow2"}, {"--scheduler", "orca"}},
      {"preemption-mode", {"--preemption-mode", "swap"}, {"--scheduler", "vllm-v0"}},
      {"swap-space", {"--swap-space", "1"}, {"--scheduler", "vllm-v0", "--preemption-mode", "swap"}},
      {"use-v2-model-runner", {"--no-use-v2-model-runner"}},
      {"subtract-cuda-graphs", {"--no-subtract-cuda-graphs"}},
      {"goodput", {"--goodput", "ttft:5"}},
      {"out", {"--out", "o"}},
      {"format", {"--format", "json"}},
      {"save-detailed", {"--save-detailed"}},
      {"requests-csv", {"--no-requests-csv"}},
      {"report", {"--no-report"}},
      {"plots", {"--plots"}, {"--out", "o"}},
      {"timeline", {"--timeline", "t.pftrace"}},
      {"step-log", {"--step-log", "s.log"}},
      {"model", {"--model", "qwen2.5-7b"}},
      {"dtype", {"--dtype", "float16"}},
      {"quantization", {"-q", "fp8"}},
      {"max-model-len", {"--max-model-len", "4096"}},
      {"tensor-parallel-size", {"-tp", "2"}},
      {"pipeline-parallel-size", {"-pp", "2"}},
      {"enable-expert-parallel", {"--enable-expert-parallel"}},
      {"enforce-eager", {"--enforce-eager"}},
      {"optimization-level", {"-O0"}},
      {"performance-mode", {"--performance-mode", "interactivity"}},
      {"speculative-config", {"-sc", R"({"method":"ngram","num_speculative_tokens":4})"}},
      {"gpu-memory-utilization", {"--gpu-memory-utilization", "0.8"}},
      {"kv-cache-dtype", {"--kv-cache-dtype", "fp8"}},
      {"kv-cache-memory-bytes", {"--kv-cache-memory-bytes", "20G"}},
      {"num-gpu-blocks-override", {"--num-gpu-blocks-override", "9000"}},
      {"block-size", {"--block-size", "32"}},
      {"enable-prefix-caching", {"--no-enable-prefix-caching"}},
      {"prefix-cache-retention-interval", {"--prefix-cache-retention-interval", "None"}},
      {"max-num-batched-tokens", {"--max-num-batched-tokens", "4096"}},
      {"max-num-scheduled-tokens", {"--max-num-scheduled-tokens", "4096"}},
      {"max-num-seqs", {"--max-num-seqs", "64"}},
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
      {"max-num-queued-reqs", {"--max-num-queued-reqs", "9"}},
      {"max-num-queued-tokens", {"--max-num-queued-tokens", "9"}},
  };
  return kChanges;
}

// Everything in a resolved run that simulation or report reads, as text; not from
// as_proto(), which copies what was asked for.
std::string decisive(const RunConfig& c) {
  const auto opt = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string("-"); };
  const auto ns = [](const auto& value) {
    return value ? fmt::format("{}", value->count()) : std::string("-");
  };
  const engine::SchedulerConfig& e = c.engine;
  const hw::Deployment& d = c.deployment;
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {}\n", c.trace.string(), c.model_name,
                                 c.gpu_name, c.dtype, c.rates_file, c.server_file, c.scheduler, c.seed,
                                 c.strict, c.draft_acceptance_rates.size() + (c.engine.walk_decodes ? 100 : 0));
  text += fmt::format("{} {} {} {} {} {} {} {} {}\n", e.max_num_batched_tokens,
                      opt(e.max_num_scheduled_tokens), e.max_num_seqs, opt(e.max_num_active_seqs),
                      e.max_model_len, e.enable_chunked_prefill, e.long_prefill_token_threshold,
                      e.long_prefill_token_threshold_adaptive, e.prefill_schedule_interval);
  text += fmt::format("{} {} {} {} {} {} {} {}\n", static_cast<int>(e.policy), e.watermark,
                      e.scheduler_reserve_full_isl, e.max_loras, e.block_size, e.num_blocks,
                      e.enable_prefix_caching, opt(e.prefix_cache_retention_interval));
  text += fmt::format("{} {} {} {} {} {} {} {}\n", e.async_scheduling, e.use_v2_model_runner,
                      batches_in_flight(e), static_cast<int>(e.spec_method), e.num_speculative_tokens,
                      static_cast<int>(e.orca_reserve), e.num_cpu_blocks, e.preemption_mode_swap);
  text += fmt::format("{} {} {} {} {} {} {} {} {} {}\n", d.model.name, static_cast<int>(d.weights),
                      d.static_fp8_scales, static_cast<int>(d.kv_cache), d.tensor_parallel_size,
                      d.pipeline_parallel_size, d.enable_expert_parallel, d.enforce_eager,
                      d.capture_every_small_batch, c.memory.weights + c.memory.cuda_graphs);
  text += fmt::format("{} {} {} {} {} {}\n", opt(c.client.request_rate), c.client.burstiness,
                      opt(c.client.max_concurrency), ns(c.client.timeout),
                      opt(c.admission.max_num_queued_reqs), opt(c.admission.max_num_queued_tokens));
  text += fmt::format("{} {} {}\n", ns(c.limits.sim_time), opt(c.limits.wall_s), opt(c.limits.requests));
  const ReportConfig& r = c.report;
  return text + fmt::format("{} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(r.format), r.out_dir.string(),
                            r.save_detailed, r.requests_csv, r.step_log.string(), r.page, r.plots,
                            r.timeline.string(), ns(r.goodput.ttft),
                            ns(r.goodput.tpot), ns(r.goodput.e2el));
}

TEST(RunConfigFile, EveryFlagHasAnEffect) {
  for (const Flag& flag : flags()) {
    const bool command = flag.section == "command";
    if (command || (flag.group != FlagClass::kModelled && flag.group != FlagClass::kOurs)) {
      continue;
    }
    const auto change =
        std::ranges::find(changes(), flag.name, [](const Change& c) { return std::string_view(c.flag); });
    ASSERT_NE(change, changes().end()) << "no changed value for --" << flag.name;
    EXPECT_NE(decisive(parse(change->all())), decisive(parse(change->beside))) << "--" << flag.name;
  }
}

pb::RunConfig read_back(const std::string& text) {
  const std::string file = testing::TempDir() + "/printed.textproto";
  std::ofstream(file) << text;
  return read_run_config(file);
}

TEST(RunConfigFile, PrintConfigIsReadBackAsTheSameRun) {
  std::vector<Change> cases = changes();
  cases.push_back(
      {"several",
       {"--gpu", "h200", "--model", "qwen3-32b", "-q", "fp8", "--max-model-len", "16K", "-tp", "2"}});
  cases.push_back({"largest", {"--max-model-len", "-1", "--kv-cache-memory-bytes", "1G"}});
  cases.push_back({"throughput", {"--performance-mode", "throughput"}});
  for (const Change& c : cases) {
    SCOPED_TRACE(c.flag);
    const RunConfig first = parse(c.all());
    const pb::RunConfig printed = read_back(first.resolved_text);
    const RunConfig second = resolve(printed);
    EXPECT_EQ(decisive(second), decisive(first));
    EXPECT_EQ(as_text(as_proto(second, printed)), first.resolved_text);
  }
}

TEST(RunConfigFile, PrintConfigSaysWhyInComments) {
  std::ostringstream out;
  EXPECT_FALSE(parse_simulate(Words{"--print-config"}, out).has_value());
  EXPECT_THAT(out.str(), HasSubstr("# KV cache: bfloat16, from --kv-cache-dtype auto and the model\n"));
  EXPECT_THAT(out.str(), HasSubstr("max_num_batched_tokens: 8192\n"));
}

TEST(RunConfigFile, FlagsWinOverTheRunConfig) {
  const std::string file = testing::TempDir() + "/mine.textproto";
  std::ofstream(file) << "max_num_seqs: 7 gpu: \"h200\" goodput: \"ttft:5\"\n";
  const RunConfig config = parse({"--run-config", file, "--max-num-seqs", "9", "--goodput", "tpot:6"});
  EXPECT_EQ(config.engine.max_num_seqs, 9);
  EXPECT_EQ(config.gpu_name, "h200");
  EXPECT_FALSE(config.report.goodput.ttft.has_value());
  EXPECT_TRUE(config.report.goodput.tpot.has_value());
}

// What happened to each request, and when.
std::string history(const RunConfig& config) {
  std::vector<traces::TraceRecord> records;
  for (int i = 0; i < 60; ++i) {  // Bursts of three, prompts of 100 to 6,000 tokens.
    records.push_back(
        testing_support::request_at(std::chrono::milliseconds(40 * (i / 3)), 100 + 100 * i, 1 + i % 7));
  }
  OpenLoopClient client(std::make_unique<testing_support::ListWorkload>(records));
  testing_support::Records ends;
  std::vector<RunObserver*> observers = {&ends};
  (void)simulate(config, client, observers);
  std::string text;
  for (const RequestRecord& r : ends.all) {
    text += fmt::format("{} {} {} {} {}\n", r.index, r.scheduled.time_since_epoch().count(),
                        r.first_token.time_since_epoch().count(), r.last_token.time_since_epoch().count(),
                        r.output_tokens);
  }
  return text;
}

TEST(RunConfigFile, ReproducesEveryTokenOfTheRun) {
  for (const Words& words :
       {Words{}, Words{"--gpu", "l40s", "--max-model-len", "-1"},
        Words{"--scheduler", "sarathi", "--max-num-batched-tokens", "512", "--max-num-seqs", "4"},
        Words{"-q", "fp8", "-O0", "--no-async-scheduling", "--kv-cache-memory-bytes", "2G", "--max-model-len",
              "8K"}}) {
    const RunConfig first = parse(words);
    const std::string once = history(first);
    EXPECT_EQ(std::count(once.begin(), once.end(), '\n'), 60);
    EXPECT_EQ(history(resolve(read_back(first.resolved_text))), once);
  }
}

}  // namespace
}  // namespace kneepoint::sim
