// A real run, as far as its files tell: the server's log, the client's result,
// what was sent, what the cache held before.
//
//     --run
//     log=server_A.log,log=A_rate4.steps.log,client=A_rate4.json,trace=A_rate4.trace.jsonl,cache=A_rate4.cache.json
//
// Parts may be missing; each part that is missing costs something, and
// Run::cannot says what. Each file is checked as it is read: a number that is
// negative, not finite or in another unit, a failed request among completed
// ones, a file that ends in the middle are refused with one line that names
// them, so that nothing of that kind is ever fitted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/server_log.h"
#include "sim/run_config.h"

namespace kneepoint::calibrate {

/// One --run argument.
struct RunFiles {
  std::string name;  ///< Of the run in reports: the client file's stem, else the last log's.
  std::vector<std::filesystem::path> logs;
  std::optional<std::filesystem::path> client;
  std::optional<std::filesystem::path> trace;
  std::optional<std::filesystem::path> cache;
  std::optional<std::filesystem::path> config;  ///< A run configuration (sim/run_config.proto), where no log says it.
};

/// Throws CalibrateError for an unknown key, a key given twice (but log), or no log and no client.
[[nodiscard]] RunFiles parse_run_argument(const std::string& argument);

/// One request as `vllm bench serve --save-detailed` recorded it.
struct ClientRequest {
  double start_s = 0;  ///< Sent, from the first send of the run.
  double queue_s = 0;  ///< Before that, for the client's semaphore.
  double ttft_s = 0;
  std::vector<double> itls_s;  ///< Between chunks that carried text; a late chunk may hold several tokens.
  double latency_s = 0;        ///< Send to last token.
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
};

struct ClientRun {
  std::string model;
  std::optional<std::int64_t> end_stamp;  ///< LogLine::stamp of "date": when the client was done.
  double duration_s = 0;
  std::optional<double> request_rate;  ///< Nothing: "inf".
  std::optional<std::int64_t> max_concurrency;
  std::vector<ClientRequest> requests;  ///< In the client's order.
  std::vector<std::string> notes;       ///< What reading it took for granted.
};

/// One request as it was sent (`timed_trace` form).
struct SentRequest {
  double send_s = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::vector<std::int64_t>
      hash_ids;  ///< One a block, the last one incomplete or not; empty: shares nothing.
};

/// The block pool when the run began, all blocks free.
struct CacheState {
  std::int64_t block_size = 0;
  std::int64_t num_blocks = 0;
  std::vector<std::pair<std::int32_t, std::optional<std::int64_t>>>
      free_queue;  ///< Head first: block id, hash id.
};

struct Run {
  RunFiles files;
  ServerLog log;
  std::optional<ClientRun> client;
  std::vector<SentRequest> trace;  ///< From the trace file, else from the client's lengths; empty: neither.
  std::optional<CacheState> cache;
  std::optional<sim::RunConfig> config;  ///< From its file, never from the log.
  std::vector<std::string> cannot;  ///< What a missing part keeps from being known.
  std::vector<std::string> notes;   ///< Other things to know: lines left out, and why.

  [[nodiscard]] bool has_log() const { return !files.logs.empty(); }
};

[[nodiscard]] ClientRun read_client_result(const std::filesystem::path& path);
[[nodiscard]] std::vector<SentRequest> read_timed_trace(const std::filesystem::path& path);
[[nodiscard]] CacheState read_cache_state(const std::filesystem::path& path);

/// Reads all parts and checks them against each other. Throws CalibrateError.
[[nodiscard]] Run read_run(const RunFiles& files);

/// The run's part of its log: the only server's only engine, without steps that
/// the client's own times show to be of another run.
[[nodiscard]] std::vector<IterationLine> steps_of_run(const Run& run);

}  // namespace kneepoint::calibrate
