#include "sim/knee_changes.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "sim/options.h"

namespace kneepoint::sim {
namespace {

// What `asked` comes to; nothing if no server starts with it, which is an answer to
// a question that nobody asked.
std::optional<RunConfig> if_it_starts(const pb::RunConfig& asked) {
  try {
    return resolve(asked);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

void add_blocks(const RunConfig& config, std::vector<Change>& changes) {
  Change change;
  change.config = config;
  change.config.engine.num_blocks = 2 * (config.engine.num_blocks - 1) + 1;
  change.name = fmt::format("2x KV blocks ({})", change.config.engine.num_blocks);
  changes.push_back(std::move(change));
}

void add_fp8_kv(const pb::RunConfig& asked, const RunConfig& config, std::vector<Change>& changes) {
  if (!config.server_file.empty() || config.deployment.kv_cache == hw::Precision::kFp8) {
    return;
  }
  pb::RunConfig with = asked;
  with.set_kv_cache_dtype("fp8");
  if (std::optional<RunConfig> resolved = if_it_starts(with)) {
    Change change;
    change.name = fmt::format("an FP8 KV cache ({} blocks)", resolved->engine.num_blocks);
    change.config = std::move(*resolved);
    changes.push_back(std::move(change));
  }
}

void add_token_budget(const pb::RunConfig& asked, std::int64_t tokens, std::vector<Change>& changes) {
  pb::RunConfig with = asked;
  with.set_max_num_batched_tokens(tokens);
  if (std::optional<RunConfig> resolved = if_it_starts(with)) {
    Change change;
    change.name = fmt::format("max_num_batched_tokens {}", tokens);
    change.config = std::move(*resolved);
    changes.push_back(std::move(change));
  }
}

}  // namespace

std::vector<Change> possible_changes(const pb::RunConfig& asked, const RunConfig& config,
                                     const KneeWorkload* smoothed) {
  std::vector<Change> changes;
  add_blocks(config, changes);
  add_fp8_kv(asked, config, changes);
  add_token_budget(asked, config.engine.max_num_batched_tokens / 2, changes);
  add_token_budget(asked, config.engine.max_num_batched_tokens * 2, changes);
  if (smoothed != nullptr) {
    Change change;
    change.name = "Poisson arrivals at the same rate";
    change.config = config;
    change.workload = smoothed;
    change.smooths_arrivals = true;
    changes.push_back(std::move(change));
  }
  return changes;
}

}  // namespace kneepoint::sim
