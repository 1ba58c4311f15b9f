#include "calibrate/microbench/decode_items.h"

#include <algorithm>
#include <numeric>

namespace kneepoint::microbench {

namespace {
constexpr std::int64_t kGrain = 64;  // Tokens: a tile for each warp.
constexpr std::int64_t kLeastTokens = 128;
constexpr std::int64_t kMostParts = 64;  // Of one sequence: merging is serial.
constexpr std::int64_t kRounds = 8;
constexpr std::int64_t kBlocksOfAnSm = 2;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
}  // namespace

std::int32_t decode_part_tokens(const std::vector<std::int32_t>& contexts, int num_kv_heads, int num_sms) {
  const std::int64_t total = std::accumulate(contexts.begin(), contexts.end(), std::int64_t{0});
  const std::int64_t longest = contexts.empty() ? 0 : *std::max_element(contexts.begin(), contexts.end());
  const std::int64_t shared = divide_up(total * num_kv_heads, kRounds * kBlocksOfAnSm * num_sms);
  const std::int64_t tokens = std::max({shared, kLeastTokens, divide_up(longest, kMostParts)});
  return static_cast<std::int32_t>(divide_up(tokens, kGrain) * kGrain);
}

DecodePlan plan_decode(const std::vector<std::int32_t>& contexts, std::int32_t part_tokens) {
  DecodePlan plan;
  plan.first_item.push_back(0);
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    const std::int64_t parts = divide_up(contexts[i], part_tokens);
    // Equal parts: three of 352 rather than two of 512 and one of 32.
    const std::int64_t length = divide_up(divide_up(contexts[i], parts), kGrain) * kGrain;
    for (std::int64_t begin = 0; begin < contexts[i]; begin += length) {
      plan.items.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(begin),
                            static_cast<std::int32_t>(std::min<std::int64_t>(begin + length, contexts[i]))});
    }
    plan.first_item.push_back(static_cast<std::int32_t>(plan.items.size()));
    plan.merge = plan.merge || plan.first_item[i + 1] - plan.first_item[i] > 1;
  }
  return plan;
}

}  // namespace kneepoint::microbench
