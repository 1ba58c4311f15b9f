// The engine beside the slow, obvious model: 100,000 random steps, every decision
// and every list equal after each; and the comparison notices every reversed rule.
#include <gtest/gtest.h>

#include "tests/laws/engine/side_by_side.h"

namespace kneepoint::laws {
namespace {

TEST(EngineSelfcheck, AgreesWithTheObviousModelOn100000Steps) {
  std::int64_t steps = 0;
  Seen seen;
  for (std::uint64_t seed = 0; steps < 100'000; ++seed) {
    SideBySide both(seed, Mutation::kNone, seen);
    const auto difference = both.run();
    ASSERT_FALSE(difference) << "seed " << seed << ": " << *difference;
    steps += both.steps();
  }
  EXPECT_EQ(seen.count.size(), 10 + 15) << "ten reasons to stop admission, and the rest of note()";
  for (const auto& [what, times] : seen.count) {
    EXPECT_GE(times, 20) << what << " was hardly met";
  }
}

// A rule whose reversal nobody notices is not tested. Most show within a few cases.
TEST(EngineSelfcheck, NoticesEachReversedRule) {
  constexpr std::uint64_t kCasesToTry = 1000;
  for (int m = 1; m <= kNumMutations; ++m) {
    bool noticed = false;
    for (std::uint64_t seed = 0; seed < kCasesToTry && !noticed; ++seed) {
      Seen ignored;
      noticed = SideBySide(seed, static_cast<Mutation>(m), ignored).run().has_value();
    }
    EXPECT_TRUE(noticed) << "mutation " << m << " passes for the rules";
  }
}

}  // namespace
}  // namespace kneepoint::laws
