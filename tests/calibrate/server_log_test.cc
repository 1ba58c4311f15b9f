// Whole logs, written by hand: who wrote which line, and what a server was.
#include "calibrate/server_log.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "calibrate/calibrate_error.h"
#include "calibrate/logged_config.h"
#include "tests/support/shared_data.h"

namespace kneepoint::calibrate {
namespace {

ServerLog read(const std::string& text) {
  ServerLogReader reader;
  std::istringstream in(text);
  reader.read(in, "serve.log");
  return reader.take();
}

std::string start(int pid, const std::string& version, const std::string& args,
                  const std::string& stream = "") {
  const std::string api = stream + "(APIServer pid=" + std::to_string(pid) + ") INFO 10-02 10:00:00 ";
  return api + "[api_server.py:1839] vLLM API server version " + version + "\n" + api +
         "[utils.py:233] non-default args: {" + args + "}\n" + api +
         "[model.py:547] Resolved architecture: LlamaForCausalLM\n";
}

std::string step(const std::string& prefix, int iteration, const std::string& engine = "Engine 000: ") {
  return prefix + "INFO 10-02 10:01:00 [loggers.py:199] " + engine + "Iteration(" +
         std::to_string(iteration) +
         "): 1 context requests, 10 context tokens, 0 generation requests, 0 generation tokens, iteration "
         "elapsed "
         "time: 5.00 ms\n";
}

TEST(ServerLog, TwoServersInterleaved) {
  const ServerLog log = read(start(1, "0.11.0", "'model': 'a'") + start(2, "0.12.0", "'model': 'b'") +
                             step("(APIServer pid=1) ", 5) + step("(APIServer pid=2) ", 90) +
                             step("(APIServer pid=1) ", 6) + step("(APIServer pid=2) ", 91));
  ASSERT_EQ(log.servers.size(), 2U);
  EXPECT_EQ(log.servers[0].model, "a");
  EXPECT_EQ(log.servers[0].version, "0.11.0");
  EXPECT_EQ(log.servers[1].model, "b");
  EXPECT_EQ(log.servers[0].engines.at(0).steps.size(), 2U);
  EXPECT_EQ(log.servers[1].engines.at(0).steps.front().iteration, 90);
  EXPECT_TRUE(log.unreadable.empty());
  EXPECT_THROW(static_cast<void>(only_server(log, "x")), CalibrateError);
}

TEST(ServerLog, TwoContainersWithTheSamePid) {
  const ServerLog log =
      read(start(1, "0.11.0", "'model': 'a'", "one-1 | ") + start(1, "0.11.0", "'model': 'b'", "two-1 | ") +
           step("one-1 | (APIServer pid=1) ", 5));
  ASSERT_EQ(log.servers.size(), 2U);
  EXPECT_EQ(log.servers[0].engines.at(0).steps.size(), 1U);
  EXPECT_TRUE(log.servers[1].engines.empty());
}

// In a container every start has the same process id; the banner tells them apart.
TEST(ServerLog, RestartWithTheSamePid) {
  const ServerLog log = read(start(1, "0.11.0", "'model': 'a'") + step("(APIServer pid=1) ", 5) +
                             start(1, "0.12.0", "'model': 'a'") + step("(APIServer pid=1) ", 0));
  ASSERT_EQ(log.servers.size(), 2U);
  EXPECT_EQ(log.servers[1].version, "0.12.0");
  EXPECT_EQ(log.servers[1].engines.at(0).steps.front().iteration, 0);
}

TEST(ServerLog, RestartThatOnlyTheCounterShows) {
  const ServerLog log = read(step("", 5) + step("", 6) + step("", 0) + step("", 1));
  ASSERT_EQ(log.servers.size(), 2U);
  EXPECT_EQ(log.unreadable.at("restarts without start-up lines"), 1);
}

TEST(ServerLog, DataParallelRanksAreApart) {
  const ServerLog log =
      read(step("", 5, "Engine 000: ") + step("", 5, "Engine 001: ") + step("", 6, "Engine 001: "));
  ASSERT_EQ(log.servers.size(), 1U);
  EXPECT_EQ(log.servers[0].engines.at(0).steps.size(), 1U);
  EXPECT_EQ(log.servers[0].engines.at(1).steps.size(), 2U);
  EXPECT_THROW(static_cast<void>(only_server(log, "x")), CalibrateError);
}

TEST(ServerLog, LostAndCutAndRepeatedLinesAreCounted) {
  const ServerLog log = read(
      step("", 5) + step("", 5) + step("", 9) + "Engine 000: Iteration(10): 1 context requ\n" +
      "Engine 000: Iteration(11): 1 context requests, 10 context tokens, 0 generation requests, 0 generation "
      "tokens, iteration elapsed time: nan ms\n");
  EXPECT_EQ(log.servers.at(0).engines.at(0).missing_steps, 3);  // 6, 7, 8.
  EXPECT_EQ(log.unreadable.at("iteration lines that repeat the one before"), 1);
  EXPECT_EQ(log.unreadable.at("iteration lines cut short"), 1);
  EXPECT_EQ(log.unreadable.at("iteration lines with absurd numbers"), 1);
}

TEST(ServerLog, NothingOfVllm) {
  const ServerLog log = read("hello\nworld\n");
  EXPECT_EQ(log.lines, 2);
  EXPECT_THROW(static_cast<void>(only_server(log, "x")), CalibrateError);
}

// KV size to blocks: 421904 tokens of requests of 8192 = 512 blocks of 16 each:
// 421904 / 8192 * 512 = 26369 blocks.
TEST(LoggedConfig, DefaultsAndDerivedValuesAreToldApart) {
  const ServerLog log =
      read(start(1, "0.11.0", "'model': 'm', 'max_num_seqs': 100") +
           "(APIServer pid=1) INFO 10-02 10:00:01 [model.py:1510] Using max model len 8192\n"
           "(APIServer pid=1) INFO 10-02 10:00:01 [scheduler.py:205] Chunked prefill is enabled with "
           "max_num_batched_tokens=2048.\n"
           "(EngineCore_DP0 pid=272) INFO 10-02 10:00:09 [core.py:77] Initializing a V1 LLM engine (v0.11.0) "
           "with config: "
           "model='m', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=2, quantization=None, "
           "kv_cache_dtype=fp8_e4m3, device_config=cuda, enable_prefix_caching=False, "
           "chunked_prefill_enabled=True\n"
           "(EngineCore_DP0 pid=272) INFO 10-02 10:00:10 [kv_cache_utils.py:1087] GPU KV cache size: 421,904 "
           "tokens\n");
  ASSERT_EQ(log.servers.size(), 1U);
  const LoggedConfig config = logged_config(log.servers[0]);
  EXPECT_EQ(config.release, "vLLM 0.11.0");
  EXPECT_EQ(config.device, "cuda");
  EXPECT_EQ(config.dtype, "bfloat16");
  EXPECT_EQ(config.kv_cache_dtype, "fp8_e4m3");
  EXPECT_EQ(config.tensor_parallel_size, 2);
  EXPECT_EQ(config.engine.max_num_seqs, 100);
  EXPECT_EQ(config.engine.max_num_batched_tokens, 2048);
  EXPECT_EQ(config.engine.num_blocks, 26369);
  EXPECT_FALSE(config.engine.enable_prefix_caching);
  EXPECT_TRUE(config.missing.empty());
  EXPECT_EQ(config.assumed.front(), "block_size 16");
}

TEST(LoggedConfig, WithoutStartUpLinesItSaysWhatIsMissing) {
  const ServerLog log = read(step("", 5));
  EXPECT_EQ(logged_config(log.servers.at(0)).missing.size(), 3U);
}

// server_C.log goes on through a run: steps, lines of traffic and of every 10 s mixed.
TEST(ServerLog, RecordedServerThroughARun) {
  KNEEPOINT_SHARED_OR_SKIP(path, "data/runs/vllm_cpu/server_C.log");
  ServerLogReader reader;
  reader.read_file(path);
  const ServerLog log = reader.take();
  ASSERT_EQ(log.servers.size(), 1U);
  EXPECT_TRUE(log.unreadable.empty());
  EXPECT_TRUE(log.unknown_fields.empty());
  const LoggedConfig config = logged_config(log.servers[0]);
  EXPECT_EQ(config.release, "vLLM 0.32.0");
  EXPECT_EQ(config.engine.num_blocks, 600);
  EXPECT_EQ(config.engine.block_size, 32);
  EXPECT_EQ(config.engine.max_num_seqs, 16);
  EXPECT_EQ(config.engine.max_num_batched_tokens, 512);
  EXPECT_FALSE(config.engine.async_scheduling);
  EXPECT_TRUE(config.missing.empty());
  EXPECT_EQ(log.servers[0].engines.at(0).stats.size(), 7U);
}

}  // namespace
}  // namespace kneepoint::calibrate
