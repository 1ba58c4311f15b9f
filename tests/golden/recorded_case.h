// Recorded workloads: what was fed to vLLM's own scheduler, and what it decided.
//
// A file is either lines of {"seed" or "name", "script", "trace"}, or a list of
// {"name", "note", "script"} whose traces lie in golden/NAME.jsonl beside it;
// both may be gzipped. tests/golden/vllm/README.md tells the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/scheduler_config.h"

namespace kneepoint::golden {

/// A file that cannot be read or is no recording: says which, where and why.
struct RecordingError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Token = std::int64_t;

inline constexpr Token kFirstGeneratedToken = 1'000'000;

struct ScriptRequest {
  std::string name;
  engine::NewRequest request;  ///< Its id is the rank of `name`, so that ties go as between strings.
  std::int64_t at = 0;         ///< Engine iteration before which it arrives.
  std::string salt;
  bool ignore_eos = true;
  std::vector<Token> prompt;
  std::vector<Token> stop_tokens;
  std::vector<Token> outputs;          ///< What it generates; then tokens nobody else has.
  std::vector<std::int32_t> accepted;  ///< Drafts accepted at each verification, cycled; empty: all.
};

struct ScriptAbort {
  std::int64_t at = 0;
  engine::RequestId id = engine::kNoRequest;
};

struct Script {
  engine::SchedulerConfig config;
  Token eos_token = 2;
  std::int64_t max_iterations = 10000;
  std::vector<ScriptRequest> requests;  ///< In order of arrival.
  std::vector<std::string> names;       ///< By RequestId.
  std::vector<ScriptAbort> aborts;      ///< In order of time.
};

struct RecordedCase {
  std::string name;
  Script script;
  std::vector<nlohmann::json> trace;  ///< Events; at least one.
};

/// Calls `visit` for each case of the file, one in memory at a time. Throws
/// RecordingError if the file is missing, damaged, no recording, or has no case.
void for_each_case(const std::filesystem::path& file, const std::function<void(const RecordedCase&)>& visit);

/// `where` begins the error messages.
[[nodiscard]] Script parse_script(const nlohmann::json& json, const std::string& where);

}  // namespace kneepoint::golden
