// Paired tests against closed forms, tables and enumeration; what a comparison says.
#include "sim/compare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "sim/compare_command.h"
#include "sim/compare_report.h"
#include "sim/compare_tests.h"
#include "sim/usage_error.h"
#include "tests/sim/study_support.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing_support::OwnFolder;
using Values = std::vector<double>;

PairedTest test_of(const Values& differences) {
  return paired_test(Values(differences.size(), 10.0), [&] {
    Values b;
    for (const double d : differences) b.push_back(10.0 + d);
    return b;
  }());
}

TEST(PairedTTest, WithTwoDegreesOfFreedomHasAClosedForm) {
  // d = 1, 2, 3: mean 2, s 1, t = 2 sqrt 3. Two degrees of freedom:
  // p = 1 - t / sqrt(t^2 + 2); t(0.975) = 4.302652730 (tables).
  const PairedTest test = test_of({1, 2, 3});
  const double t = 2 * std::sqrt(3.0);
  EXPECT_NEAR(*test.p_t, 1 - t / std::sqrt(t * t + 2), 1e-12);
  EXPECT_NEAR(*test.low, 2 - 4.302652730 / std::sqrt(3.0), 1e-8);
  EXPECT_NEAR(*test.high, 2 + 4.302652730 / std::sqrt(3.0), 1e-8);
  EXPECT_DOUBLE_EQ(test.mean_a, 10);
  EXPECT_DOUBLE_EQ(test.mean_b, 12);
}

TEST(PairedTTest, WithOneDegreeOfFreedomIsCauchys) {
  // d = 1, 3: mean 2, s = sqrt 2, t = 2, p = 1 - (2/pi) atan t.
  EXPECT_NEAR(*test_of({1, 3}).p_t, 1 - 2 / std::numbers::pi * std::atan(2.0), 1e-12);
  EXPECT_NEAR(*test_of({-1, -3}).p_t, 1 - 2 / std::numbers::pi * std::atan(2.0), 1e-12) << "two-sided";
}

TEST(PairedTTest, NothingIsTestedWhereNothingVaries) {
  for (const Values& d : {Values{5}, Values{5, 5, 5}, Values{0, 0}}) {
    const PairedTest test = test_of(d);
    EXPECT_EQ(test.difference, d.front());
    EXPECT_FALSE(test.p_t || test.p_wilcoxon || test.low || test.high);
  }
}

TEST(SignedRanks, SmallCasesByHand) {
  const struct {
    Values differences;
    double p;
  } kCases[] = {
      {{1, 2, 3}, 2.0 / 8},         // Only {} sums to 0.
      {{-1, -2, -3}, 2.0 / 8},      // The other side.
      {{1, 2, 3, 4, 5}, 2.0 / 32},  // Five seeds: never below 0.0625.
      {{-1, 2, 3}, 4.0 / 8},        // {} and {1}: sums 0 and 1.
      {{0, 1, -1, 2}, 6.0 / 8},     // 0 drops out; ranks 1.5 1.5 3, W- = 1.5: {}, {1.5}, {1.5}.
      {{1, -1}, 1},                 // Even.
      {{1, 2, 3, 4, 5, 6, 7, -8, 9, 10},
       50.0 / 1024},  // W = 8 for n = 10: 0.0488 (tables, critical at 0.05).
  };
  for (const auto& c : kCases) {
    EXPECT_DOUBLE_EQ(wilcoxon_p(c.differences), c.p) << testing::PrintToString(c.differences);
  }
}

// The definition, sign by sign.
double by_enumeration(const Values& differences) {
  Values ranks;
  for (const double d : differences) {
    double below = 0, equal = 0;
    for (const double other : differences) {
      below += std::abs(other) < std::abs(d) ? 1 : 0;
      equal += std::abs(other) == std::abs(d) ? 1 : 0;
    }
    ranks.push_back(below + (equal + 1) / 2);
  }
  const std::size_t n = differences.size();
  double observed = 0, total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    observed += differences[i] > 0 ? ranks[i] : 0;
    total += ranks[i];
  }
  const double smaller = std::min(observed, total - observed);
  int in_tail = 0;
  for (unsigned signs = 0; signs < (1U << n); ++signs) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += (signs >> i & 1U) != 0 ? ranks[i] : 0;
    }
    in_tail += sum <= smaller ? 1 : 0;
  }
  return std::min(1.0, 2.0 * in_tail / static_cast<double>(1U << n));
}

TEST(SignedRanks, AgreesWithEnumerationOfAllSigns) {
  unsigned state = 1;  // A small generator of our own: whole numbers, so ties are common.
  for (int round = 0; round < 200; ++round) {
    Values differences;
    for (std::size_t i = 0; i < 1 + static_cast<std::size_t>(round % 11); ++i) {
      state = state * 1664525U + 1013904223U;
      const int value = static_cast<int>(state >> 16 & 15U) - 7;
      differences.push_back(value == 0 ? 8 : value);
    }
    EXPECT_NEAR(wilcoxon_p(differences), by_enumeration(differences), 1e-12)
        << testing::PrintToString(differences);
  }
}

TEST(SignedRanks, HundredsOfPairsStayADistribution) {
  Values differences;
  for (int i = 1; i <= static_cast<int>(kMostPairs); ++i) {
    differences.push_back(i % 2 == 0 ? i : -i);
  }
  // W+ = 2 + 4 + ... + 200 = 10100, W- = 10000, mean 10050, variance n(n+1)(2n+1)/24:
  // z = 50.5 / 819.1, p about 0.95 by the normal limit.
  EXPECT_NEAR(wilcoxon_p(differences), 0.951, 0.002);
}

std::string result_text(std::uint64_t seed, double ttft, const std::string& seqs = "256") {
  return fmt::format(R"({{"mean_ttft_ms": {}, "output_throughput": 100.0, "preemptions": 0, "seed": {},
    "inputs": [{{"role": "trace", "name": "t.pb", "sha256": "{}"}}],
    "configuration": "# c\nmodel: \"m\"\nmax_num_seqs: {}\nsim_seed: {}\n"}})",
                     ttft, seed, seqs == "512" ? "aa" : "bb", seqs, seed);
}

TEST(Compare, PairsFoldersOfResultsBySeed) {
  const OwnFolder folder;
  for (const auto& [name, seed, ttft, seqs] : {std::tuple{"a/s1", 1U, 10.0, "256"},
                                               {"a/s2", 2U, 20.0, "256"},
                                               {"a/s3", 3U, 30.0, "256"},
                                               {"b/x3", 3U, 33.0, "512"},
                                               {"b/x1", 1U, 11.0, "512"},
                                               {"b/x2", 2U, 22.0, "512"},
                                               {"b/x9", 9U, 1.0, "512"}}) {
    std::filesystem::create_directories(folder / name);
    folder.write(std::string(name) + "/result.json", result_text(seed, ttft, seqs));
  }
  const Comparison c = compare((folder / "a").string(), (folder / "b").string(), {});
  EXPECT_EQ(c.seeds, (std::vector<std::uint64_t>{1, 2, 3}));
  ASSERT_EQ(c.metrics.front().key, "mean_ttft_ms");
  // By seed the differences are 1, 2, 3: the first test above.
  EXPECT_NEAR(*c.metrics.front().test.p_t, 0.0741799, 1e-6);
  const auto differences = configuration_differences(c);
  ASSERT_EQ(differences.size(), 1U) << "the seed is not a difference";
  EXPECT_EQ(differences[0].field, "max_num_seqs");
  EXPECT_EQ(differences[0].b, "512");
  const std::string table = compare_table(c);
  EXPECT_THAT(table, HasSubstr("different traces"));
  EXPECT_THAT(table, HasSubstr("1 results have no partner"));
  EXPECT_THAT(table, HasSubstr("cannot be below 0.25"));
  const Json json = Json::parse(compare_json(c));
  EXPECT_EQ(json["metrics"][0]["p_signed_ranks"], 0.25);
  EXPECT_EQ(json["metrics"][0]["verdict"], "none shown");
}

TEST(Compare, OneSeedGivesNoSignificanceAndSaysSo) {
  const OwnFolder folder;
  const std::string a = folder.write("a.json", result_text(0, 10));
  const std::string b = folder.write("b.json", result_text(0, 11));
  const std::string table = compare_table(compare(a, b, {}));
  EXPECT_THAT(table, HasSubstr("one seed: no significance can be given"));
  EXPECT_THAT(table, HasSubstr("+10.0 %"));
  EXPECT_THAT(table, testing::Not(HasSubstr("B higher")));
}

// The same seed gives the same arrivals to both: a configuration against itself
// differs by nothing, and against one with a slower GPU in every run.
TEST(Compare, RunConfigsMeetTheSameArrivals) {
  const OwnFolder folder;
  const std::string trace = folder.write_trace("t.pb", 60);
  const std::string same = fmt::format("trace: \"{}\" request_rate: 40 gpu: \"h100\"\n", trace);
  const std::string a = folder.write("a.textproto", same);
  const std::string b = folder.write("b.textproto", same);
  const std::string slow =
      folder.write("c.textproto", fmt::format("trace: \"{}\" request_rate: 40 gpu: \"l40s\"\n", trace));
  CompareOptions options;
  options.num_seeds = 6;
  const Comparison equal = compare(a, b, options);
  for (const ComparedMetric& metric : equal.metrics) {
    EXPECT_EQ(metric.test.difference, 0) << metric.key;
  }
  EXPECT_THAT(compare_table(equal), HasSubstr("equal in every run"));

  options.threads = 1;
  const Comparison slower = compare(a, slow, options);
  options.threads = 8;
  EXPECT_EQ(compare_json(slower), compare_json(compare(a, slow, options)));
  const PairedTest& ttft = slower.metrics.front().test;
  EXPECT_GT(*ttft.low, 0);
  EXPECT_DOUBLE_EQ(*ttft.p_wilcoxon, 2.0 / 64) << "all six in the same direction";
}

TEST(Compare, SeedsWithoutEffectAreNoSample) {
  const OwnFolder folder;
  const std::string trace = folder.write_trace("t.pb", 20);
  const std::string a = folder.write("a.textproto", fmt::format("trace: \"{}\" gpu: \"h100\"\n", trace));
  const std::string b = folder.write("b.textproto", fmt::format("trace: \"{}\" gpu: \"l40s\"\n", trace));
  const Comparison c = compare(a, b, {.num_seeds = 3});
  EXPECT_THAT(compare_table(c), HasSubstr("the seeds change nothing here"));
  EXPECT_FALSE(c.metrics.front().test.p_t);
}

TEST(Compare, WrongSidesAreOneClearLine) {
  const OwnFolder folder;
  const std::string good = folder.write("a.json", result_text(0, 10));
  const std::string other_seed = folder.write("b.json", result_text(1, 10));
  const std::string no_trace = folder.write("n.textproto", "gpu: \"h100\"\n");
  std::filesystem::create_directories(folder / "twice/x");
  std::filesystem::create_directories(folder / "twice/y");
  std::filesystem::create_directories(folder / "empty");
  folder.write("twice/x/result.json", result_text(0, 10));
  folder.write("twice/y/result.json", result_text(0, 11));
  const struct {
    std::vector<std::string> words;
    const char* says;
  } kCases[] = {
      {{good}, "two are needed"},
      {{good, (folder / "absent").string()}, "is not there"},
      {{good, folder.write("c.json", "{\"x\": 1}")}, "is no result"},
      {{good, folder.write("t.txt", "")}, "is needed"},
      {{good, other_seed}, "no seed in common"},
      {{good, (folder / "empty").string()}, "has no result.json"},
      {{good, (folder / "twice").string()}, "each seed must be there once"},
      {{good, good, "--seeds", "3"}, "results have their seeds"},
      {{no_trace, no_trace}, "has no trace"},
      {{no_trace, folder.write("u.textproto", "gpuu: \"h100\"\n")}, ""},
      {{no_trace, no_trace, "--seeds", "0"}, "--seeds"},
  };
  for (const auto& c : kCases) {
    try {
      (void)run_compare(c.words);
      ADD_FAILURE() << c.says;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.says));
      EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    }
  }
}

}  // namespace
}  // namespace kneepoint::sim
