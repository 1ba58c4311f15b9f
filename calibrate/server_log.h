// What the log files of one or more vLLM servers say.
//
// A log is read line by line and sorted into servers (one per start: a restart
// is another server) and, within a server, into engines (one per data-parallel
// rank). Lines without a process name ("INFO ... Engine 000: Iteration(5): ...")
// belong to the server that started last. Several files may make one log: the
// start-up lines in one, the steps in another.
//
// Nothing is fatal here. What could not be read is counted under a name, and
// the caller decides what it can do without.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/log_line.h"

namespace kneepoint::calibrate {

/// Counters by name: "iteration lines cut short" -> 3. Ordered, so that they
/// print the same way always.
using NamedCounts = std::map<std::string, std::int64_t>;

/// One engine core: the steps of one scheduler.
struct LoggedEngine {
  std::int64_t rank = 0;
  std::vector<IterationLine> steps;  ///< In file order, iteration numbers ascending.
  std::vector<StatsLine> stats;
  std::int64_t missing_steps = 0;  ///< Gaps in the iteration numbers.
};

/// One start of one server.
struct LoggedServer {
  std::string where;   ///< "serve.log:6", the first line that is its own.
  std::string stream;  ///< Name that docker compose put in front; "" otherwise.
  std::int64_t api_pid = -1;
  std::vector<std::int64_t> core_pids;
  std::string version;  ///< "0.32.0"; "" if not said.
  std::string model;
  std::string architecture;                 ///< "LlamaForCausalLM".
  std::map<std::string, std::string> args;  ///< "non-default args", in Python's spelling.
  std::map<std::string, std::string>
      config;  ///< The engine's own line: dtype, max_seq_len, device_config, ...
  std::optional<std::int64_t> max_model_len;
  std::optional<std::int64_t> max_num_batched_tokens;
  std::optional<bool> async_scheduling;
  std::optional<bool> v2_model_runner;
  std::optional<std::int64_t> block_size;
  std::optional<std::int64_t>
      num_blocks;  ///< Said outright ("num_gpu_blocks_override=600", "# GPU blocks: 600").
  std::optional<std::int64_t> kv_cache_tokens;  ///< Of one engine.
  std::optional<double> max_concurrency;
  bool started_in_log = false;                   ///< Start-up lines seen.
  std::map<std::int64_t, LoggedEngine> engines;  ///< By rank.
};

struct ServerLog {
  std::vector<LoggedServer> servers;  ///< In order of their first line.
  std::int64_t lines = 0;
  NamedCounts unreadable;      ///< Lines of a known kind that could not be used, and why.
  NamedCounts unknown_fields;  ///< In lines that were used.
};

/// Sorts lines into servers. Feed the files in the order in which they were
/// written, then take the log.
class ServerLogReader {
 public:
  /// Reads all of `in`; `name` is used in messages. Constant memory but for
  /// what is kept of each step.
  void read(std::istream& in, const std::string& name);
  /// Throws CalibrateError if the file cannot be opened.
  void read_file(const std::filesystem::path& path);

  [[nodiscard]] ServerLog take();

 private:
  LoggedServer& server_of(const LogLine& line, bool starts_a_server);
  LoggedServer& new_server(const LogLine& line);
  void take_line(std::string_view text);
  bool take_start_line(const LogLine& line);
  void take_step(const LogLine& line, const IterationLine& step);

  ServerLog log_;
  std::string file_;
  std::int64_t line_in_file_ = 0;
};

/// The steps of a server's only engine. Throws CalibrateError if there is no
/// server or engine with steps in `log`, or more than one; `what` names the
/// log in the message.
[[nodiscard]] const LoggedServer& only_server(const ServerLog& log, const std::string& what);

}  // namespace kneepoint::calibrate
