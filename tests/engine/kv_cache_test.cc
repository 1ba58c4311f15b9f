// What a request's tokens need and what a prefix hit saves, worked by hand.
#include "engine/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kneepoint::engine {
namespace {

using testing::ElementsAre;

/// Requests of one letter of the alphabet share everything: block i of letter c has the key (c, i).
class Letters final : public BlockKeySource {
 public:
  BlockKey block_key(RequestId id, std::int32_t index) override {
    return {.high = letter.at(id), .low = static_cast<std::uint64_t>(index)};
  }
  std::map<RequestId, std::uint64_t> letter;
};

class KvCacheTest : public testing::Test {
 protected:
  Request request(RequestId id, std::uint64_t letter, std::int32_t tokens) {
    keys_.letter[id] = letter;
    Request r;
    r.id = id;
    r.prompt_tokens = tokens;
    r.num_tokens = tokens;
    return r;
  }

  static SchedulerConfig config(std::int64_t num_blocks) {
    SchedulerConfig config;
    config.block_size = 16;
    config.num_blocks = num_blocks;
    config.max_model_len = 512;
    return config;
  }

  /// Admits the whole known sequence.
  static bool admit_all(KvCache& cache, Request& r, bool others_running = false) {
    std::vector<BlockId> hit;
    const std::int32_t hit_tokens = cache.find_hit(r, hit);
    const bool fits = cache.admit(r, hit, r.num_tokens - hit_tokens, others_running);
    r.num_computed_tokens = fits ? r.num_tokens : 0;
    return fits;
  }

  Letters keys_;
};

// A first request has computed all its tokens; what does a twin of `tokens` tokens hit?
struct Hit {
  std::int32_t first_tokens;
  std::int32_t tokens;
  SpeculativeMethod method;
  std::int32_t hit_tokens;
};

const Hit kHits[] = {
    {48, 49, SpeculativeMethod::kNone, 48},  // One token left to compute.
    {48, 48, SpeculativeMethod::kNone, 32},  // The last token must be computed, so its block is.
    {48, 33, SpeculativeMethod::kNone, 32},
    {48, 16, SpeculativeMethod::kNone, 0},
    {47, 60, SpeculativeMethod::kNone, 32},  // Only full blocks have keys.
    {100, 200, SpeculativeMethod::kNone, 96},
    {48, 49, SpeculativeMethod::kEagle, 32},  // The last block of a hit is dropped.
    {48, 17, SpeculativeMethod::kEagle, 0},
    {48, 49, SpeculativeMethod::kNgram, 48},
    {48, 49, SpeculativeMethod::kDraftModel, 48},
};

TEST_F(KvCacheTest, HitsFullBlocksButNeverTheLastToken) {
  for (const Hit& row : kHits) {
    SchedulerConfig with = config(40);
    with.spec_method = row.method;
    KvCache cache(with, keys_);
    Request first = request(1, 'a', row.first_tokens);
    ASSERT_TRUE(admit_all(cache, first));
    std::vector<BlockId> hit;
    EXPECT_EQ(cache.find_hit(request(2, 'a', row.tokens), hit), row.hit_tokens) << row.first_tokens;
    EXPECT_EQ(cache.find_hit(request(3, 'b', row.tokens), hit), 0);
  }
}

// Nine usable blocks; the first request holds `held` of them. Is a newcomer of `tokens` tokens, `chunk` of
// them now, admitted? cdiv(tokens, 16) blocks must be free, and the watermark beside others.
struct Admission {
  const char* story;
  std::int32_t held;
  std::int32_t tokens;
  std::int32_t chunk;
  bool whole_sequence;
  double watermark;
  bool fits;
};

const Admission kAdmissions[] = {
    {"6 of 6 free", 3, 96, 96, true, 0, true},
    {"7 of 6 free", 3, 97, 97, true, 0, false},
    {"a chunk of 1 block fits, the whole does not", 3, 97, 16, true, 0, false},
    {"and the whole is not asked for", 3, 97, 16, false, 0, true},
    {"the chunk itself must fit", 3, 200, 97, false, 0, false},
    {"int(0.2 * 10) = 2 blocks stay free: 4 fit", 3, 64, 64, true, 0.2, true},
    {"5 do not", 3, 65, 65, true, 0.2, false},
    {"nobody else runs: no watermark", 0, 144, 144, true, 0.2, true},
    {"but no more than there are", 0, 145, 145, true, 0, false},
};

TEST_F(KvCacheTest, AdmitsWhatFits) {
  for (const Admission& row : kAdmissions) {
    SchedulerConfig with = config(10);
    with.scheduler_reserve_full_isl = row.whole_sequence;
    with.watermark = row.watermark;
    KvCache cache(with, keys_);
    Request holder = request(1, 'a', 16 * row.held);
    if (row.held > 0) {
      ASSERT_TRUE(admit_all(cache, holder));
    }
    const std::vector<BlockId> before = cache.pool().free_queue();
    Request newcomer = request(2, 'b', row.tokens);
    EXPECT_EQ(cache.admit(newcomer, {}, row.chunk, row.held > 0), row.fits) << row.story;
    if (!row.fits) {
      EXPECT_EQ(cache.pool().free_queue(), before) << "a failure changes nothing";
      EXPECT_TRUE(newcomer.blocks.empty());
    }
  }
}

// A hit that nobody holds leaves the free queue, so it needs room too. Eight usable blocks: `a` leaves 3
// cached blocks behind, `h` holds 5 then. `a` again with 80 tokens: 3 hits + 2 new need 5 of 3 free.
TEST_F(KvCacheTest, CountsTheHitsItTakesOutOfTheFreeQueue) {
  KvCache cache(config(9), keys_);
  Request a = request(1, 'a', 48);
  ASSERT_TRUE(admit_all(cache, a));
  cache.release(a);
  Request holder = request(2, 'h', 80);
  ASSERT_TRUE(admit_all(cache, holder));
  ASSERT_EQ(cache.pool().num_free(), 3);
  Request again = request(3, 'a', 80);
  std::vector<BlockId> hit;
  ASSERT_EQ(cache.find_hit(again, hit), 48);
  EXPECT_FALSE(cache.admit(again, hit, 32, true));
  // 49 tokens: 3 hits + 1 new need 4 of 3. After the holder is gone they fit.
  cache.release(holder);
  EXPECT_TRUE(cache.admit(again, hit, 32, false));
  EXPECT_THAT(again.blocks, ElementsAre(1, 2, 3, testing::_, testing::_));
}

TEST_F(KvCacheTest, TakesABlockWhenTheLastIsFull) {
  KvCache cache(config(4), keys_);
  Request r = request(1, 'a', 15);
  ASSERT_TRUE(admit_all(cache, r));
  EXPECT_THAT(r.blocks, ElementsAre(1));
  r.num_tokens = 16;  // Token 16 fits the first block; token 17 needs the second.
  EXPECT_TRUE(cache.extend(r, 1));
  EXPECT_THAT(r.blocks, ElementsAre(1));
  r.num_computed_tokens = 16;
  r.num_tokens = 17;
  EXPECT_TRUE(cache.extend(r, 1));
  EXPECT_THAT(r.blocks, ElementsAre(1, 2));
}

// Lookahead: eagle writes k drafts behind the planned tokens, up to max_model_len.
TEST_F(KvCacheTest, LooksAheadForDraftsUpToTheLongestSequence) {
  SchedulerConfig with = config(8);
  with.spec_method = SpeculativeMethod::kEagle;
  with.num_speculative_tokens = 4;
  KvCache cache(with, keys_);
  Request r = request(1, 'a', 45);  // 45 + 4 = 49 tokens: 4 blocks.
  ASSERT_TRUE(admit_all(cache, r));
  EXPECT_EQ(r.blocks.size(), 4U);
  with.max_model_len = 48;  // min(49, 48): 3 blocks.
  KvCache shorter(with, keys_);
  Request s = request(2, 'a', 45);
  ASSERT_TRUE(admit_all(shorter, s));
  EXPECT_EQ(s.blocks.size(), 3U);
}

TEST_F(KvCacheTest, WithoutCachingNothingIsFound) {
  SchedulerConfig with = config(8);
  with.enable_prefix_caching = false;
  KvCache cache(with, keys_);
  Request r = request(1, 'a', 48);
  ASSERT_TRUE(admit_all(cache, r));
  std::vector<BlockId> hit;
  EXPECT_EQ(cache.find_hit(request(2, 'a', 49), hit), 0);
  cache.release(r);
  EXPECT_THAT(cache.pool().free_queue(), ElementsAre(3, 2, 1, 4, 5, 6, 7));
}

// Window 32, blocks of 16, 100 tokens computed, none in flight: 100 - 32 + 1 = 69 tokens are passed,
// that is 4 blocks, which leave from the highest down. With 40 in flight only 60 count: 29 passed, 1 block.
TEST_F(KvCacheTest, FreesTheBlocksThatAWindowHasPassed) {
  SchedulerConfig with = config(12);
  with.sliding_window = 32;
  with.enable_prefix_caching = false;
  KvCache cache(with, keys_);
  Request r = request(1, 'a', 100);
  ASSERT_TRUE(admit_all(cache, r));
  EXPECT_THAT(r.blocks, ElementsAre(1, 2, 3, 4, 5, 6, 7));
  r.num_in_flight_tokens = 40;
  r.num_tokens = 101;
  EXPECT_TRUE(cache.extend(r, 1));
  EXPECT_THAT(r.blocks, ElementsAre(0, 2, 3, 4, 5, 6, 7));
  r.num_in_flight_tokens = 0;
  EXPECT_TRUE(cache.extend(r, 1));
  EXPECT_THAT(r.blocks, ElementsAre(0, 0, 0, 0, 5, 6, 7));
  EXPECT_THAT(cache.pool().free_queue(), ElementsAre(4, 3, 2, 1, 8, 9, 10, 11));
}

// Window 32, blocks of 16: a run of cdiv(31, 16) = 2 blocks is a hit. What is registered of 100 prompt
// tokens (6 full blocks) under each retention, and so what a twin and a longer relative hit.
struct Retention {
  const char* story;
  std::optional<std::int64_t> interval;
  std::int32_t shared_tokens;
  std::int32_t hit_tokens;
};

const Retention kRetentions[] = {
    {"prompt end only: blocks 4 and 5 end a replay of the prompt", 0, 100, 96},
    {"and nothing before", 0, 60, 0},
    {"dense: any run of two", std::nullopt, 60, 48},
    {"every 64 tokens, period 4: blocks 2 and 3", 64, 67, 64},
    {"every 64 tokens: not blocks 0 and 1", 64, 50, 0},
    {"every 32 tokens: a run is the period, so all", 32, 60, 48},
};

TEST_F(KvCacheTest, RetainsSparselyBehindAWindow) {
  for (const Retention& row : kRetentions) {
    SchedulerConfig with = config(20);
    with.sliding_window = 32;
    with.prefix_cache_retention_interval = row.interval;
    KvCache cache(with, keys_);
    Request first = request(1, 'a', 100);
    ASSERT_TRUE(admit_all(cache, first));
    std::vector<BlockId> hit;
    EXPECT_EQ(cache.find_hit(request(2, 'a', row.shared_tokens), hit), row.hit_tokens) << row.story;
  }
}

// On an empty pool of blocks of 16: the whole sequence, reserved or not, as all of it must be there before the next
// token.
TEST_F(KvCacheTest, SaysWhatItWouldNeedOnAnEmptyPool) {
  SchedulerConfig with = config(4);
  KvCache reserving(with, keys_);
  const Request r = request(1, 'a', 200);
  EXPECT_EQ(reserving.blocks_on_empty_pool(r, 64), 13);
  with.scheduler_reserve_full_isl = false;
  KvCache chunking(with, keys_);
  EXPECT_EQ(chunking.blocks_on_empty_pool(r, 64), 13);
  // A window of 16 with 2048 tokens in flight asks for at most cdiv(min(15 + 2048, 512), 16) + 1 = 33.
  with.scheduler_reserve_full_isl = true;
  with.sliding_window = 16;
  with.max_num_batched_tokens = 20;  // cdiv(15 + 20, 16) + 1 = 4.
  KvCache window(with, keys_);
  EXPECT_EQ(window.blocks_on_empty_pool(r, 20), 4);
}

}  // namespace
}  // namespace kneepoint::engine
