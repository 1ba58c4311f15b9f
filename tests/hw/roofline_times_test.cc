// Operator times from a data sheet: floors, monotony and orders of magnitude that
// a reader can check by hand.
#include "hw/roofline_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "hw/operator_graph.h"

namespace kneepoint::hw {
namespace {

// Times over sizes from 1 to 2^20, sixteen to an octave.
void expect_never_falls(const std::string& what, const std::function<double(std::int64_t)>& seconds) {
  double before = 0;
  for (int i = 0; i <= 20 * 16; ++i) {
    const std::int64_t size = std::llround(std::exp2(i / 16.0));
    const double now = seconds(size);
    ASSERT_GE(now, before * (1 - 1e-12)) << what << " at " << size;
    before = now;
  }
}

TEST(RooflineTimesTest, NeverFallAsASizeGrows) {
  for (const char* name : {"h100", "l40s", "a100", "rtx-pro-6000"}) {
    const RooflineTimes times(load_gpu(name));
    const std::string gpu = name;
    for (const Precision p : {Precision::kBf16, Precision::kFp8, Precision::kInt4}) {
      expect_never_falls(gpu + " gemm m", [&](auto m) {
        return times.gemm({p, m, 4096, 4096}, CacheState::kCold).seconds;
      });
      expect_never_falls(gpu + " gemm n", [&](auto n) {
        return times.gemm({p, 64, n, 4096}, CacheState::kCold).seconds;
      });
      expect_never_falls(gpu + " gemm k", [&](auto k) {
        return times.gemm({p, 64, 4096, k}, CacheState::kCold).seconds;
      });
      expect_never_falls(gpu + " experts", [&](auto tokens) {
        return times
            .moe({.precision = p,
                  .num_tokens = tokens,
                  .hidden_size = 2048,
                  .intermediate_size = 768,
                  .top_k = 8,
                  .num_experts = 128},
                 CacheState::kCold)
            .seconds;
      });
    }
    for (const Precision kv : {Precision::kBf16, Precision::kFp8}) {
      expect_never_falls(gpu + " decode context", [&](auto context) {
        return times.decode_attention({kv, 8, 8 * context, context, 32, 8, 128}, CacheState::kCold).seconds;
      });
      expect_never_falls(gpu + " decode count", [&](auto count) {
        return times.decode_attention({kv, count, 100 * count, 100, 32, 8, 128}, CacheState::kCold).seconds;
      });
      expect_never_falls(gpu + " prefill tokens", [&](auto tokens) {
        return times.prefill_attention({kv, 1, tokens, 0, 32, 8, 128}).seconds;
      });
      expect_never_falls(gpu + " prefill context", [&](auto old) {
        return times.prefill_attention({kv, 1, 64, old, 32, 8, 128}).seconds;
      });
    }
    expect_never_falls(gpu + " all-reduce", [&](auto bytes) {
      return times.collective({Collective::kAllReduce, 4, bytes}).seconds;
    });
    expect_never_falls(gpu + " elementwise", [&](auto bytes) { return times.elementwise({bytes}).seconds; });
  }
}

TEST(RooflineTimesTest, ALargeProductReachesTheTablesShare) {
  // 2 * 2048 * 28672 * 4096 FLOP at 83 % of 989 TFLOP/s: 586 us; its bytes, 370 MB
  // at 85 % of 3.35 TB/s, 130 us, hide behind it but for (1 + 0.22^4)^(1/4); 3 us to start.
  const RooflineTimes times(load_gpu("h100"));
  EXPECT_NEAR(times.gemm({Precision::kBf16, 2048, 28672, 4096}, CacheState::kCold).seconds * 1e6, 589, 2);
}

TEST(RooflineTimesTest, ASmallBatchReadsItsWeights) {
  // 235 MB of weights at 85 % of 3.35 TB/s: 82.5 us, and 3 to start.
  const RooflineTimes times(load_gpu("h100"));
  EXPECT_NEAR(times.gemm({Precision::kBf16, 1, 28672, 4096}, CacheState::kCold).seconds * 1e6, 85.5, 0.5);
}

TEST(RooflineTimesTest, EverythingIsAnEstimate) {
  const RooflineTimes times(load_gpu("a100"));
  EXPECT_EQ(times.gemm({Precision::kBf16, 1, 8, 8}, CacheState::kCold).confidence, Confidence::kEstimated);
  EXPECT_NE(times.provenance().find("estimated"), std::string::npos);
}

TEST(RooflineTimesTest, NothingToDoTakesNoTime) {
  const RooflineTimes times(load_gpu("a100"));
  EXPECT_EQ(times.gemm({Precision::kBf16, 0, 8, 8}, CacheState::kCold).seconds, 0);
  EXPECT_EQ(times.collective({Collective::kAllReduce, 1, 100}).seconds, 0);
  EXPECT_EQ(times.elementwise({0}).seconds, 0);
}

}  // namespace
}  // namespace kneepoint::hw
