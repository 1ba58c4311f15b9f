// CUDA graph sizes and padding, at each boundary and one beyond it.
#include <gtest/gtest.h>

#include "hw/deployment.h"

namespace kneepoint::hw {
namespace {

Deployment deployment(std::int64_t max_num_seqs, std::int64_t batched_tokens, std::int64_t drafts = 0) {
  Deployment d;
  d.max_num_seqs = max_num_seqs;
  d.max_num_batched_tokens = batched_tokens;
  d.num_speculative_tokens = drafts;
  return d;
}

struct Case {
  const char* why;
  std::int64_t max_num_seqs, batched_tokens, drafts, num_tokens;
  bool uniform_decode;
  GraphMode mode;
  std::int64_t padded;
};

constexpr GraphMode kFull = GraphMode::kFull, kPiecewise = GraphMode::kPiecewise, kNone = GraphMode::kNone;

const Case kCases[] = {
    {"smallest", 256, 8192, 0, 1, true, kFull, 1},
    {"1, 2, 4, 8: a batch of 3", 256, 8192, 0, 3, true, kFull, 4},
    {"5 to 8 share a graph", 256, 8192, 0, 5, true, kFull, 8},
    {"by 8 up to 248", 256, 8192, 0, 241, true, kFull, 248},
    {"then 256", 256, 8192, 0, 249, true, kFull, 256},
    {"256 is max_num_seqs: the last FULL", 256, 8192, 0, 256, true, kFull, 256},
    {"a prefill beside it is PIECEWISE", 256, 8192, 0, 256, false, kPiecewise, 256},
    {"by 16 from 256", 256, 8192, 0, 257, false, kPiecewise, 272},
    {"512 is the ceiling", 256, 8192, 0, 512, false, kPiecewise, 512},
    {"beyond it nothing is captured nor padded", 256, 8192, 0, 513, false, kNone, 513},
    {"2 x max_num_seqs caps: 2 x 10 = 20 holds 16", 10, 8192, 0, 16, false, kPiecewise, 16},
    {"17 is beyond 16, the last up to 20", 10, 8192, 0, 17, false, kNone, 17},
    {"max_num_seqs 10 is added", 10, 8192, 0, 9, true, kFull, 10},
    {"and serves other batches", 10, 8192, 0, 9, false, kPiecewise, 10},
    {"a uniform batch above max_num_seqs", 10, 8192, 0, 11, true, kPiecewise, 16},
    {"batched tokens cap and are added", 256, 100, 0, 97, false, kPiecewise, 100},
    {"nothing above them", 256, 100, 0, 101, false, kNone, 101},
    // k = 3: FULL sizes are multiples of 4.
    {"one request of 1 + 3 tokens", 64, 8192, 3, 4, true, kFull, 4},
    {"two", 64, 8192, 3, 8, true, kFull, 8},
    {"64 requests", 64, 8192, 3, 256, true, kFull, 256},
    {"not uniform: 5 tokens", 64, 8192, 3, 5, false, kPiecewise, 8},
    // k = 2: 8 is no multiple of 3; the capture size 8 serves as 9.
    {"sizes round up to whole requests", 64, 8192, 2, 9, true, kFull, 9},
    {"three requests of 3: max_num_seqs 3 holds", 3, 8192, 2, 9, true, kFull, 9},
};

TEST(GraphSizes, PadEachBatchToTheNextGraph) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.why);
    const GraphSizes sizes(deployment(c.max_num_seqs, c.batched_tokens, c.drafts));
    const GraphChoice choice = sizes.choose(c.num_tokens, c.uniform_decode);
    EXPECT_EQ(choice.mode, c.mode);
    EXPECT_EQ(choice.padded_tokens, c.padded);
  }
}

TEST(GraphSizes, CountAsTheListSays) {
  // 1, 2, 4; 8 .. 248 by 8: 31; 256 .. 512 by 16: 17; 51 PIECEWISE in all. FULL up
  // to 256: 3 + 31 + 1 = 35.
  const GraphSizes sizes(deployment(256, 8192));
  EXPECT_EQ(sizes.num_graphs(), 51 + 35);
  EXPECT_EQ(sizes.largest(), 512);
}

TEST(GraphSizes, GoHigherOnDataCentreBlackwell) {
  Deployment d = deployment(1024, 16384);
  d.gpu.data_centre_blackwell = true;
  EXPECT_EQ(GraphSizes(d).choose(1000, false).padded_tokens, 1008);
  EXPECT_EQ(GraphSizes(d).largest(), 1024);
}

TEST(GraphSizes, AreNoneWhenEager) {
  Deployment d = deployment(256, 8192);
  d.enforce_eager = true;
  EXPECT_EQ(GraphSizes(d).num_graphs(), 0);
  EXPECT_EQ(GraphSizes(d).choose(8, true).mode, kNone);
}

TEST(GraphSizes, NeverPadBelowTheBatch) {
  for (const std::int64_t drafts : {0, 1, 2, 5}) {
    const GraphSizes sizes(deployment(100, 2048, drafts));
    for (std::int64_t n = 1; n <= 700; ++n) {
      for (const bool uniform : {false, true}) {
        const GraphChoice choice = sizes.choose(n, uniform);
        EXPECT_GE(choice.padded_tokens, n);
        EXPECT_LE(choice.padded_tokens, n + 16 * (1 + drafts));
      }
    }
  }
}

}  // namespace
}  // namespace kneepoint::hw
