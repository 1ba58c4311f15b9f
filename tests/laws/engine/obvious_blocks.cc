// The model's blocks request by request: allocate, look up, register, free.
#include <algorithm>

#include "tests/laws/engine/obvious_engine.h"

namespace kneepoint::laws {

namespace {

int ceil_div(int a, int b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace

/// Blocks wholly before the window once `tokens` are there; 0 without a window.
int ObviousEngine::gone(int tokens) const {
  if (!config_.sliding_window) {
    return 0;
  }
  return std::max(0, tokens - static_cast<int>(*config_.sliding_window) + 1) / block_size();
}

int ObviousEngine::run_length() const {
  return ceil_div(static_cast<int>(*config_.sliding_window) - 1, block_size()) + (eagle() ? 1 : 0);
}

std::vector<int> ObviousEngine::lookup(const Request& r) {
  std::vector<int> hit;
  if (!config_.enable_prefix_caching) {
    return hit;
  }
  if (config_.sliding_window) {
    hit = window_lookup(r);
  } else {
    const int limit = is(Mutation::kHitsWholePrompt) ? r.num_tokens() : r.num_tokens() - 1;
    for (int i = 0; i < limit / block_size(); ++i) {
      const int block = pool_.find(keys_.block_key(r.in.id, i));
      if (block == 0) {
        break;
      }
      hit.push_back(block);
    }
  }
  if (eagle() && !hit.empty()) {
    hit.pop_back();
  }
  if (is(Mutation::kLookupRefreshes)) {
    for (const int block : hit) {
      pool_.refresh(block);
    }
  }
  return hit;
}

/// Of all places where a long enough run of cached blocks ends, the rightmost; else the run at the start.
std::vector<int> ObviousEngine::window_lookup(const Request& r) {
  std::vector<int> found;
  for (int i = 0; i < (r.num_tokens() - 1) / block_size(); ++i) {
    found.push_back(pool_.find(keys_.block_key(r.in.id, i)));
  }
  const int enough = std::max(run_length(), 1);
  for (int end = static_cast<int>(found.size()); end >= enough; --end) {
    const auto stop = found.begin() + end;
    if (std::count(stop - enough, stop, 0) == 0) {
      std::vector<int> hit(static_cast<std::size_t>(end - enough), 0);
      hit.insert(hit.end(), stop - enough, stop);
      return hit;
    }
  }
  found.erase(std::ranges::find(found, 0), found.end());
  return found;
}

int ObviousEngine::blocks_needed(const Request& r, int tokens, int computed, const std::vector<int>& hit,
                                 bool in_gate) const {
  const int have = static_cast<int>(r.table.size() + hit.size());
  int want = ceil_div(tokens, block_size());
  int revived = 0;
  for (int i = gone(computed); i < static_cast<int>(hit.size()); ++i) {
    const int block = hit[static_cast<std::size_t>(i)];
    revived += block != 0 && pool_.is_free(block) ? 1 : 0;
  }
  if (!config_.sliding_window) {
    return std::max(want - have, 0) + revived;
  }
  if (in_gate) {
    const std::int64_t in_flight = batches_in_flight(config_) * config_.max_num_batched_tokens;
    const std::int64_t most = std::min(*config_.sliding_window - 1 + in_flight, config_.max_model_len);
    want = std::min(want, ceil_div(static_cast<int>(most), block_size()) + 1);
  }
  if (r.cached_something) {
    return std::max(want - static_cast<int>(r.table.size()), 0);
  }
  return std::max(want - std::max(gone(computed), have), 0) + revived;
}

bool ObviousEngine::allocate(Request& r, int n, const std::vector<int>& hit, bool admission) {
  const int max_len = static_cast<int>(config_.max_model_len);
  const int computed = r.computed + block_size() * static_cast<int>(hit.size());
  int kept_free = 0;
  if (admission && !running_.empty() && !is(Mutation::kIgnoresWatermark)) {
    kept_free = static_cast<int>(config_.watermark * static_cast<double>(config_.num_blocks));
  }
  if (admission && config_.scheduler_reserve_full_isl && !is(Mutation::kIgnoresWholeSequenceGate) &&
      blocks_needed(r, std::min(r.num_tokens(), max_len), computed, hit, true) + kept_free >
          pool_.num_free()) {
    return false;
  }
  free_passed_blocks(r, is(Mutation::kWindowKeepsInFlight) ? computed : computed - r.in_flight);
  const bool looks_ahead = eagle() || config_.spec_method == engine::SpeculativeMethod::kDraftModel;
  const int ahead = looks_ahead ? static_cast<int>(config_.num_speculative_tokens) : 0;
  const int until = std::min(computed + n + ahead, max_len);
  if (blocks_needed(r, until, computed, hit, false) + kept_free > pool_.num_free()) {
    return false;
  }
  for (int i = 0; i < static_cast<int>(hit.size()); ++i) {
    const int block = i < gone(computed) ? 0 : hit[static_cast<std::size_t>(i)];
    if (block != 0) {
      pool_.hold(block);
    }
    r.table.push_back(block);
  }
  if (!hit.empty()) {
    r.cached_something = true;
    r.registered = static_cast<int>(hit.size());
  }
  while (static_cast<int>(r.table.size()) < ceil_div(until, block_size())) {
    r.table.push_back(pool_.take());
  }
  if (!is(Mutation::kRegistersAfterStep)) {
    register_blocks(r, std::min(computed + n, r.num_tokens()));
  }
  return true;
}

/// From the highest passed block down to the first that was passed before.
void ObviousEngine::free_passed_blocks(Request& r, int settled) {
  std::vector<int> freed;
  for (int i = std::min(gone(settled), static_cast<int>(r.table.size())) - 1; i >= 0; --i) {
    int& block = r.table[static_cast<std::size_t>(i)];
    if (block == 0) {
      break;
    }
    freed.push_back(block);
    block = 0;
  }
  if (is(Mutation::kWindowFreesAscending)) {
    std::ranges::reverse(freed);
  }
  pool_.free_in_order(freed);
}

void ObviousEngine::register_blocks(Request& r, int tokens) {
  if (!config_.enable_prefix_caching) {
    return;
  }
  for (; (r.registered + 1) * block_size() <= tokens; ++r.registered) {
    const int block = r.table[static_cast<std::size_t>(r.registered)];
    r.cached_something = true;
    if (block != 0 && retained(r, r.registered)) {
      pool_.register_key(block, keys_.block_key(r.in.id, r.registered));
    }
  }
}

bool ObviousEngine::retained(const Request& r, int block) const {
  if (!config_.sliding_window || !config_.prefix_cache_retention_interval ||
      is(Mutation::kWindowRetainsAll)) {
    return true;
  }
  const int e = eagle() ? 1 : 0;
  const int p = static_cast<int>(*config_.prefix_cache_retention_interval) / block_size();
  if (p > 0 && (run_length() >= p || (block >= e && (block - e) % p >= p - run_length()))) {
    return true;
  }
  const int prompt = r.in.prompt_tokens;
  std::vector<int> replay_ends;
  if (e == 0) {
    replay_ends = {(prompt - 1) / block_size()};
  } else {
    replay_ends = {std::max((prompt - 1) / block_size() - 1, 0), std::max(prompt / block_size() - 1, 0)};
  }
  return std::ranges::any_of(replay_ends,
                             [&](int x) { return block >= x + e - run_length() && block < x + e; });
}

void ObviousEngine::release(Request& r) {
  std::vector<int> order = r.table;
  if (!is(Mutation::kFreesHeadFirst)) {
    std::ranges::reverse(order);
  }
  pool_.free_in_order(order);
  r.table.clear();
  r.registered = 0;
  r.cached_something = false;
}

}  // namespace kneepoint::laws
