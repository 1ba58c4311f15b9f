// What a user could turn, to be tried by `simulate knee`.
#pragma once

#include <vector>

#include "sim/find_knees.h"
#include "sim/run_config.pb.h"

namespace kneepoint::sim {

/// Twice the KV blocks, an FP8 KV cache, half and twice the token budget, as far as
/// they make sense for `config`, which `asked` came to; and Poisson arrivals, if
/// `smoothed` is not null.
[[nodiscard]] std::vector<Change> possible_changes(const pb::RunConfig& asked, const RunConfig& config,
                                                   const KneeWorkload* smoothed);

}  // namespace kneepoint::sim
