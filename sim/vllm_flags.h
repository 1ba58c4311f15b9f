// The flags of `simulate`: vLLM's by vLLM's names, and ours.
//
// One table (sim/vllm_flags_table.cc) classes them all. A modelled flag sets the
// field of that name in sim/run_config.proto. A flag without influence on
// decisions and times is taken, so that a `vllm serve` line can be pasted as it
// is, and listed once on stderr. A flag with influence that is not modelled is an
// error that says so, unless its value asks for what is simulated anyway.
//
// The dialect is vLLM's: `--flag value` and `--flag=value`, underscores for
// dashes, `--no-` before a switch, -tp and -O3, and JSON either whole or by key:
//
//     --speculative-config '{"method": "ngram", "num_speculative_tokens": 4}'
//     -sc.method ngram -sc.num_speculative_tokens 4
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/run_config.pb.h"

namespace kneepoint::sim {

enum class FlagClass : std::uint8_t {
  kModelled,     ///< vLLM's; has an effect here.
  kOurs,         ///< Ours; has an effect.
  kNoInfluence,  ///< vLLM's; changes neither decisions nor times.
  kNotModelled,  ///< vLLM's; would, but is not modelled yet.
};

enum class FlagValue : std::uint8_t {
  kNone,      ///< A switch, with a --no- form.
  kOne,       ///< One value.
  kSize,      ///< One whole number, also as 8k or 8K.
  kOptional,  ///< May be followed by a value.
  kMany,      ///< Everything up to the next flag.
  kJson,      ///< One JSON object, or its keys one by one.
};

struct Flag {
  std::string_view name;  ///< Without dashes: "max-num-seqs".
  FlagValue value = FlagValue::kOne;
  std::string_view help = "";   ///< One line; for kNotModelled: what is not modelled.
  std::string_view alias = "";  ///< The short form with its dash: "-tp".
  /// kNotModelled: values that ask for nothing else than is simulated, between
  /// bars: "auto|vllm". For a switch "true" or "false", and "" means false.
  std::string_view neutral = "";
  FlagClass group = FlagClass::kOurs;
  std::string_view section = "";  ///< Heading in --help.
};

/// All flags, in the order of --help.
[[nodiscard]] std::span<const Flag> flags();

/// What an environment assignment in front of a pasted line stands for.
struct EnvironmentVariable {
  std::string_view name;
  std::string_view flag;  ///< The flag that does the same; "": without influence.
};
[[nodiscard]] std::span<const EnvironmentVariable> environment_variables();

/// What a command line says.
struct ParsedFlags {
  pb::RunConfig config;
  std::vector<std::string> without_influence;  ///< As written, once each.
  std::string run_config_file;
  bool help = false;
  bool version = false;
  bool list_schedulers = false;
  bool print_config = false;
};

/// Takes flags and a positional model; environment assignments and the words
/// "vllm serve" or "python3 -m vllm.entrypoints.openai.api_server" may stand
/// between. Throws UsageError, for an unknown flag with the closest known one.
[[nodiscard]] ParsedFlags parse_flags(std::span<const std::string> arguments);

/// A size as vLLM reads it: 8k = 8,000, 8K = 8,192, 25.6k = 25,600; m, g, t and M,
/// G, T alike. Throws UsageError, naming `flag`.
[[nodiscard]] std::int64_t parse_size(const std::string& flag, const std::string& text);

/// The text of --help.
[[nodiscard]] std::string help_text();

}  // namespace kneepoint::sim
