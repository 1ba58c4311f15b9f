// Two sequences share block j exactly if all their tokens up to the end of j are
// the same. Each case writes two prompts over contents A, B, ... and says how
// many leading blocks of 4 tokens they share.
#include "sim/content_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kneepoint::sim {
namespace {

using traces::PromptSegment;
using traces::TraceRecord;

constexpr std::uint64_t kA = 1;
constexpr std::uint64_t kB = 2;
constexpr std::uint64_t kAnswer = 9;

TraceRecord record(std::vector<PromptSegment> prompt, std::int64_t tokens, std::uint64_t salt = 0) {
  TraceRecord r;
  r.prompt = std::move(prompt);
  r.prompt_tokens = tokens;
  r.salt = salt;
  return r;
}

TraceRecord answered(TraceRecord r) {
  r.output_content = kAnswer;
  return r;
}

struct Case {
  const char* name;
  TraceRecord first;
  TraceRecord second;
  int blocks;  // Looked at.
  int shared;
};

const Case kCases[] = {
    {"SamePrompt", record({{kA, 0, 12}}, 12), record({{kA, 0, 12}}, 12), 3, 3},
    {"SamePromptCutElsewhere", record({{kA, 0, 5}, {kA, 5, 7}}, 12), record({{kA, 0, 12}}, 12), 3, 3},
    {"TailDiffersInThirdBlock", record({{kA, 0, 9}, {kB, 0, 3}}, 12), record({{kA, 0, 12}}, 12), 3, 2},
    {"SharedPrefixEndsOffABlockEdge", record({{kA, 0, 6}, {kB, 0, 6}}, 12), record({{kA, 0, 6}, {kA, 20, 6}}, 12), 3, 1},
    {"SameTokensAtAnotherPlace", record({{kB, 0, 4}, {kA, 0, 8}}, 12), record({{kA, 0, 12}}, 12), 3, 0},
    {"OtherSalt", record({{kA, 0, 12}}, 12, 1), record({{kA, 0, 12}}, 12, 2), 3, 0},
    {"UnsharedShareNothing", record({}, 12), record({}, 12), 3, 0},
    // 12 prompt tokens and 8 of the answer against a next turn that quotes both.
    {"AnswerReturnsInTheNextTurn", answered(record({{kA, 0, 12}}, 12)),
     record({{kA, 0, 12}, {kAnswer, 0, 8}, {kB, 0, 4}}, 24), 5, 5},
    {"AnswerOffTheEdge", answered(record({{kA, 0, 10}}, 10)),
     record({{kA, 0, 10}, {kAnswer, 0, 6}, {kB, 0, 8}}, 24), 4, 4},
};

class SharedBlocks : public testing::TestWithParam<Case> {};

TEST_P(SharedBlocks, AreTheEqualPrefix) {
  const Case& c = GetParam();
  ContentKeys keys(4);
  keys.add(10, c.first);
  keys.add(11, c.second);
  for (int j = 0; j < c.blocks; ++j) {
    EXPECT_EQ(keys.block_key(10, j) == keys.block_key(11, j), j < c.shared) << "block " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(, SharedBlocks, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(ContentKeys, ARequestFindsItsOwnBlocksAgain) {
  ContentKeys keys(4);
  keys.add(1, record({}, 12));
  const engine::BlockKey before = keys.block_key(1, 2);
  EXPECT_EQ(keys.block_key(1, 2), before);
  EXPECT_FALSE(keys.block_key(1, 1) == before);
}

}  // namespace
}  // namespace kneepoint::sim
