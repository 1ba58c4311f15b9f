// The order of the free queue, worked by hand: each row is a short story.
#include "engine/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace kneepoint::engine {
namespace {

using testing::ElementsAre;

constexpr BlockKey key(std::uint64_t content) {
  return {.high = content, .low = 0};
}

std::vector<BlockId> take(BlockPool& pool, int count) {
  std::vector<BlockId> blocks;
  for (int i = 0; i < count; ++i) {
    blocks.push_back(pool.take());
  }
  return blocks;
}

TEST(BlockPool, StartsAscendingWithoutTheNullBlock) {
  const BlockPool pool(5);
  EXPECT_THAT(pool.free_queue(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(pool.num_usable(), 4);
}

TEST(BlockPool, ANullBlockAloneIsAnEmptyPool) {
  const BlockPool pool(1);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_THAT(pool.free_queue(), ElementsAre());
}

// After taking 1 2 3 of six, some of them with keys, the table is freed. Left in the queue: 4 5.
struct Freed {
  const char* story;
  std::vector<BlockId> keyed;
  std::vector<BlockId> table;
  std::vector<BlockId> queue;
};

const Freed kFreed[] = {
    {"no keys: the group goes to the head, tail block of the request first", {}, {1, 2, 3}, {3, 2, 1, 4, 5}},
    {"all keys: to the tail, tail block of the request first", {1, 2, 3}, {1, 2, 3}, {4, 5, 3, 2, 1}},
    {"a full prompt and a part block", {1, 2}, {1, 2, 3}, {3, 4, 5, 2, 1}},
    {"null blocks are passed over", {1}, {kNullBlock, 1, kNullBlock, 2}, {2, 4, 5, 1}},
    {"keys in the middle only split the groups", {2}, {1, 2, 3}, {3, 1, 4, 5, 2}},
};

TEST(BlockPool, FreesTailFirstInTwoGroups) {
  for (const Freed& row : kFreed) {
    BlockPool pool(6);
    ASSERT_THAT(take(pool, 3), ElementsAre(1, 2, 3));
    for (const BlockId block : row.keyed) {
      pool.register_key(block, key(static_cast<std::uint64_t>(block)));
    }
    pool.free_tail_first(row.table);
    EXPECT_EQ(pool.free_queue(), row.queue) << row.story;
  }
}

// Two requests end in one update: the later one's part block ends up ahead.
TEST(BlockPool, TheLaterOfTwoGroupsIsAhead) {
  BlockPool pool(6);
  const std::vector<BlockId> first = take(pool, 2);
  const std::vector<BlockId> second = take(pool, 2);
  pool.free_tail_first(first);
  pool.free_tail_first(second);
  EXPECT_THAT(pool.free_queue(), ElementsAre(4, 3, 2, 1, 5));
}

TEST(BlockPool, ASharedBlockIsFreeWhenItsLastHolderGoes) {
  BlockPool pool(4);
  const std::vector<BlockId> table = take(pool, 1);
  pool.register_key(1, key(7));
  pool.touch(1);
  EXPECT_EQ(pool.ref_cnt(1), 2);
  pool.free_tail_first(table);
  EXPECT_THAT(pool.free_queue(), ElementsAre(2, 3));
  pool.free_tail_first(table);
  EXPECT_THAT(pool.free_queue(), ElementsAre(2, 3, 1));
}

// A block that is hit again leaves its place, and comes back to the tail: least recently used.
TEST(BlockPool, AHitRefreshesItsPlace) {
  BlockPool pool(4);
  const std::vector<BlockId> table = take(pool, 3);
  for (const BlockId block : table) {
    pool.register_key(block, key(static_cast<std::uint64_t>(block)));
  }
  pool.free_tail_first(table);
  ASSERT_THAT(pool.free_queue(), ElementsAre(3, 2, 1));
  const BlockId found = pool.find(key(3));
  ASSERT_EQ(found, 3);
  pool.touch(found);
  EXPECT_THAT(pool.free_queue(), ElementsAre(2, 1));
  pool.free_tail_first(std::vector<BlockId>{found});
  EXPECT_THAT(pool.free_queue(), ElementsAre(2, 1, 3));
}

TEST(BlockPool, TakingABlockForgetsItsContent) {
  BlockPool pool(2);
  const std::vector<BlockId> table = take(pool, 1);
  pool.register_key(1, key(7));
  pool.free_tail_first(table);
  EXPECT_EQ(pool.find(key(7)), 1);
  EXPECT_EQ(pool.take(), 1);
  EXPECT_EQ(pool.find(key(7)), kNullBlock);
  EXPECT_FALSE(pool.has_key(1));
}

// Blocks 1, 2, 3 are registered under one key in the order 2, 1, 3. Evicting them one by one, in each
// order, always leaves the earliest registered of the rest.
struct Eviction {
  std::vector<BlockId> order;        // In which they are freed, and so evicted.
  std::vector<BlockId> found_after;  // What find() says after each eviction.
};

const Eviction kEvictions[] = {
    {{2, 1, 3}, {1, 3, kNullBlock}}, {{1, 2, 3}, {2, 3, kNullBlock}}, {{3, 2, 1}, {2, 1, kNullBlock}},
    {{3, 1, 2}, {2, 2, kNullBlock}}, {{1, 3, 2}, {2, 2, kNullBlock}}, {{2, 3, 1}, {1, 1, kNullBlock}},
};

TEST(BlockPool, OfDuplicatesTheEarliestStillRegisteredIsFound) {
  for (const Eviction& row : kEvictions) {
    BlockPool pool(4);
    ASSERT_THAT(take(pool, 3), ElementsAre(1, 2, 3));
    for (const BlockId block : {2, 1, 3}) {
      pool.register_key(block, key(9));
    }
    EXPECT_EQ(pool.find(key(9)), 2);
    for (const BlockId block : row.order) {
      pool.free_tail_first(std::vector<BlockId>{block});
    }
    std::vector<BlockId> found;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(pool.take(), row.order[static_cast<std::size_t>(i)]);
      found.push_back(pool.find(key(9)));
    }
    EXPECT_EQ(found, row.found_after);
  }
}

TEST(BlockPool, ABlockRegisteredAgainIsTheNewest) {
  BlockPool pool(3);
  const std::vector<BlockId> both = take(pool, 2);
  pool.register_key(1, key(9));
  pool.register_key(2, key(9));
  pool.free_tail_first(std::vector<BlockId>{1});
  ASSERT_EQ(pool.take(), 1);  // Forgotten here.
  pool.register_key(1, key(9));
  EXPECT_EQ(pool.find(key(9)), 2);
}

TEST(BlockPool, ResetForgetsAllContentButNotTheOrder) {
  BlockPool pool(4);
  const std::vector<BlockId> table = take(pool, 2);
  pool.register_key(1, key(1));
  EXPECT_FALSE(pool.reset_prefix_cache()) << "blocks are held";
  EXPECT_EQ(pool.find(key(1)), 1);
  pool.free_tail_first(table);
  ASSERT_THAT(pool.free_queue(), ElementsAre(2, 3, 1));
  EXPECT_TRUE(pool.reset_prefix_cache());
  EXPECT_EQ(pool.find(key(1)), kNullBlock);
  EXPECT_THAT(pool.free_queue(), ElementsAre(2, 3, 1));
}

// The state of a server that was idle when its log began: 3 first, 1 with content 7, then 2 and 4.
TEST(BlockPool, TakesThePlaceOfAnIdleServersPool) {
  BlockPool pool(5);
  const std::vector<BlockId> before = take(pool, 2);  // Content from before does not stay.
  pool.register_key(before.front(), key(5));
  pool.free_tail_first(before);
  const std::vector<FreeBlock> queue = {{3, {}}, {1, key(7)}, {2, {}}, {4, {}}};
  pool.preset_free_queue(queue);
  EXPECT_THAT(pool.free_queue(), ElementsAre(3, 1, 2, 4));
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(pool.find(key(7)), 1);
  EXPECT_EQ(pool.find(key(5)), kNullBlock);
  EXPECT_THAT(take(pool, 2), ElementsAre(3, 1));
  EXPECT_EQ(pool.find(key(7)), kNullBlock) << "taken anew, it holds nothing of old";
}

}  // namespace
}  // namespace kneepoint::engine
