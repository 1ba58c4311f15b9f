// One line of a vLLM server's log, taken apart.
//
//     vllm-1 | (EngineCore_DP1 pid=37) INFO 07-09 17:13:55 [core.py:359] Iteration(6): ...
//     stream    process        pid     level stamp          source        text
//
// Everything before `text` may be missing: releases, containers, journald and
// users' own pipes add and drop it. So nothing here fails; what a line does not
// say stays empty. The formats of what `text` holds:
//
//     0.14 - 0.19   (EngineCore) [core.py] Iteration(N): C context requests, ..., iteration elapsed time: X
//     ms 0.32          (APIServer) [loggers.py] Engine 000: Iteration(N): ... X ms, GPU KV cache usage: Y%
//     0.11 - 0.32   (APIServer) [loggers.py] Engine 000: Avg prompt throughput: ..., Running: ...
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kneepoint::calibrate {

/// Who wrote a line.
enum class LogProcess : std::uint8_t { kUnknown, kApiServer, kEngineCore, kOther };

struct LogLine {
  std::string_view stream;  ///< "vllm-1" where docker compose writes it in front; else "".
  LogProcess process = LogProcess::kUnknown;
  std::int64_t pid = -1;              ///< -1: not said.
  std::int64_t rank = -1;             ///< Data-parallel rank in the process name; -1: not said.
  std::optional<std::int64_t> stamp;  ///< Seconds since 1 January of a leap year; the log has no year.
  std::string_view text;              ///< What vLLM said, behind all prefixes.
};

/// Takes `line` apart; views into it.
[[nodiscard]] LogLine parse_log_line(std::string_view line);

/// "11-30 21:30:17" as LogLine::stamp counts it; nothing if it is no such time.
[[nodiscard]] std::optional<std::int64_t> parse_stamp(std::string_view text);

/// One engine step as `--enable-logging-iteration-details` logs it.
struct IterationLine {
  std::int64_t line = 0;  ///< Line number in its file, from 1.
  std::int64_t rank = 0;  ///< "Engine 000", or the engine core's data-parallel rank.
  std::optional<std::int64_t> stamp;
  std::int64_t iteration = 0;
  std::int64_t context_requests = 0;  ///< Requests without any output so far.
  std::int64_t context_tokens = 0;
  std::int64_t generation_requests = 0;
  std::int64_t generation_tokens = 0;
  double elapsed_s = 0;
  std::optional<double>
      kv_usage;  ///< Share of the usable blocks in use after the step, in [0, 1]; logged to 0.1 %.
};

/// What became of an attempt to read a line of a known kind.
enum class LineResult : std::uint8_t {
  kOtherKind,  ///< Not such a line.
  kRead,
  kCutShort,  ///< Such a line, but fields are missing: the file or the line was cut.
  kAbsurd,    ///< Such a line, but a number is negative, not finite or contradicts another.
};

/// Reads `text` as an iteration line. `unknown` collects names of fields that
/// this reader does not know, so that a new release is seen, not ignored.
[[nodiscard]] LineResult parse_iteration(const LogLine& line, IterationLine& out,
                                         std::map<std::string, std::int64_t>& unknown);

/// The line every 10 s.
struct StatsLine {
  std::int64_t rank = 0;
  std::optional<std::int64_t> stamp;
  double prompt_tokens_per_s = 0;
  double generation_tokens_per_s = 0;
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::optional<double> kv_usage;         ///< In [0, 1].
  std::optional<double> prefix_hit_rate;  ///< In [0, 1].
};

[[nodiscard]] LineResult parse_stats(const LogLine& line, StatsLine& out,
                                     std::map<std::string, std::int64_t>& unknown);

/// Splits "a=1, b=F(x=2, y='q, r'), c=[1, 2]" or "'a': 1, 'b': {...}" at the
/// top-level commas, and each part at the first top-level `separator` ('=' or
/// ':'). Quotes around keys and plain string values are taken off; values keep
/// their Python spelling otherwise (True, None, torch.bfloat16).
/// `complete` is false if brackets or quotes do not close: the line was cut.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> split_python_pairs(std::string_view text,
                                                                                  char separator,
                                                                                  bool& complete);

}  // namespace kneepoint::calibrate
