// What a run says about leaving the measured range: what a user should know, and
// nothing that holds by construction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <string>

#include "hw/fitted_times.h"
#include "hw/rates.h"
#include "hw/roofline_step.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

using testing::HasSubstr;

Deployment llama() {
  Deployment d;
  d.model = load_model("llama-3.1-8b");
  d.gpu = load_gpu("h100");
  d.max_num_batched_tokens = 8192;
  d.max_num_seqs = 256;
  d.max_model_len = 131072;
  return d;
}

// 64 decodes beside the last 7 tokens of one prompt and the first `first` of another.
std::vector<Extrapolation> said_of(std::int64_t first) {
  const auto model = make_roofline_step(llama());
  const std::array chunks{Chunk{7, 500}, Chunk{first, 0}};
  StepShape step;
  step.decodes = {64, 64 * 1000, 1000, {}};
  step.chunks = chunks;
  step.num_tokens = step.padded_tokens = 64 + 7 + first;
  step.num_sampled = 65;
  step.graph_mode = GraphMode::kNone;
  return model->extrapolations(step);
}

TEST(ClaimedRange, AnOrdinaryStepSaysNothing) { EXPECT_THAT(said_of(900), testing::IsEmpty()); }

TEST(ClaimedRange, APromptLongerThanAnyMeasuredIsSaid) {
  const auto said = said_of(20000);  // Measured to 16,384.
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said.front().shape, HasSubstr("measured 1 to 16384"));
}

TEST(ClaimedRange, LmHeadsAndRoutersAreCarriedOnButNotCalledMeasured) {
  const FittedTimes times(load_gpu("h100"), load_rates("h100"));
  const GemmShape head{.m = 8, .n = 128256, .k = 4096}, router{.m = 8, .n = 8, .k = 4096};
  for (const GemmShape& shape : {head, router}) {
    EXPECT_EQ(times.outside_range(shape), "");
    EXPECT_EQ(times.gemm(shape, CacheState::kCold).confidence, Confidence::kInterpolated);
  }
  const GemmShape inside{.m = 8, .n = 4096, .k = 4096}, beyond{.m = 8, .n = 400000, .k = 4096};
  EXPECT_EQ(times.gemm(inside, CacheState::kCold).confidence, Confidence::kMeasured);
  EXPECT_THAT(times.outside_range(beyond), HasSubstr("n = 400000, measured 1024 to 65536"));
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_rates(text, "x"));
  } catch (const SpecError& error) {
    return error.what();
  }
  return "";
}

TEST(ClaimedRange, AClaimNeedsAReasonAndMustHoldWhatWasMeasured) {
  std::ostringstream out;
  write_rates(out, load_rates("h100"));
  const std::string text = out.str();
  EXPECT_EQ(error_of(text), "") << "what is written is read";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  };
  EXPECT_THAT(error_of(with("because: \"tiles of outputs are independent: beyond a filled GPU time is linear in n, below one "
                            "wave it is constant\"",
                            "because: \"\"")),
              HasSubstr("range 'n': claims 1 to 262144"));
  EXPECT_THAT(error_of(with("claimed_max: 262144", "claimed_max: 2000")), HasSubstr("which must hold 1024 to 65536"));
}

}  // namespace
}  // namespace kneepoint::hw
