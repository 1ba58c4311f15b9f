// `simulate explain`: what one step costs, operator by operator.
#pragma once

#include <span>
#include <string>

namespace kneepoint::sim {

/// Takes the step's make-up (--batch, --context, --prompts, --prompt-tokens,
/// --cached-tokens), --dot or --json FILE, and the server's flags. Exit status;
/// wrong input throws.
[[nodiscard]] int run_explain(std::span<const std::string> arguments);

}  // namespace kneepoint::sim
