// The flags of `simulate`: vLLM's by vLLM's names, and ours.
//
// One table classes them all. A modelled flag sets the field of that name in
// sim/run_config.proto. A flag without influence on decisions and times is taken,
// so that a `vllm serve` line can be pasted as it is, and listed once on stderr.
// A flag with influence that is not modelled is an error that says so, unless it
// is given its neutral value.
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
  kOne,
  kOptional,  ///< A switch that may be followed by a value.
  kMany,      ///< Everything up to the next flag.
};

struct Flag {
  std::string_view name;   ///< Without dashes: "max-num-seqs".
  std::string_view alias;  ///< With its dash, if there is a short form: "-tp".
  FlagClass group;
  FlagValue value;
  std::string_view help;   ///< One line; for kNotModelled what is not modelled.
  std::string_view neutral = "";  ///< kNotModelled: the value that asks for nothing.
};

/// All flags, in the order of --help.
[[nodiscard]] std::span<const Flag> flags();

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

/// Takes flags and a positional model, after an optional "vllm serve". Throws
/// UsageError with the closest known flag for an unknown one.
[[nodiscard]] ParsedFlags parse_flags(std::span<const std::string> arguments);

/// A size as vLLM reads it: 8k = 8,000, 8K = 8,192, 25.6k = 25,600; m, g, t and M,
/// G, T alike. Throws UsageError, naming `flag`.
[[nodiscard]] std::int64_t parse_size(const std::string& flag, const std::string& text);

/// The text of --help.
[[nodiscard]] std::string help_text();

}  // namespace kneepoint::sim
