// --speculative-config: drafts as vLLM's JSON names them.
#pragma once

#include <string>

#include "sim/run_config.h"

namespace kneepoint::sim {

/// Fills the engine's, the deployment's and the acceptance's part of `config` from
/// the JSON text; nothing for "". Throws UsageError, naming the key.
///
/// Keys: method (ngram, eagle, eagle3, mtp, draft_model), num_speculative_tokens,
/// model (the draft model's config), disable_eagle_block_drop, and, as with
/// rejection_sample_method "synthetic", synthetic_acceptance_rates: a list of
/// unconditional rates, one per position, not rising.
void read_speculative_config(const std::string& text, RunConfig& config);

}  // namespace kneepoint::sim
