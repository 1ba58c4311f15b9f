// From a command line to a resolved run.
#pragma once

#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include "sim/run_config.h"
#include "sim/run_config.pb.h"
#include "sim/usage_error.h"
#include "sim/vllm_flags.h"

namespace kneepoint::sim {

inline constexpr const char* kVersion = "0.1.0";

/// Parses and resolves the arguments of `simulate`; nothing if they were answered
/// already (--help, --version, --list-schedulers, --print-config), the text having
/// gone to `out`. Throws UsageError, SpecError or ConfigError: one line.
[[nodiscard]] std::optional<RunConfig> parse_simulate(std::span<const std::string> arguments, std::ostream& out);

/// vLLM's defaults for what `asked` leaves open, and the sizes that follow.
/// `asked.trace` may be absent: whoever brings its own client needs none.
[[nodiscard]] RunConfig resolve(const pb::RunConfig& asked);

/// vLLM's limits for an API server on a GPU (spec of 0.32, section 6).
struct DeviceDefaults {
  std::int64_t batched_tokens = 2048;
  std::int64_t seqs = 256;
  const char* because = "vLLM's default on smaller GPUs";
};
[[nodiscard]] DeviceDefaults device_defaults(const hw::GpuSpec& gpu);

/// Every decisive field set; resolve() of it gives `config` again.
[[nodiscard]] pb::RunConfig as_proto(const RunConfig& config, const pb::RunConfig& asked);

/// As --print-config writes it.
[[nodiscard]] std::string as_text(const pb::RunConfig& config);

/// Throws UsageError naming file, line and field.
[[nodiscard]] pb::RunConfig read_run_config(const std::string& file);
/// The same for a text; `from` is named in errors.
[[nodiscard]] pb::RunConfig parse_run_config(const std::string& text, const std::string& from);

/// What a command line asks for: its --run-config, overridden flag by flag.
[[nodiscard]] pb::RunConfig asked_for(const ParsedFlags& parsed);

}  // namespace kneepoint::sim
