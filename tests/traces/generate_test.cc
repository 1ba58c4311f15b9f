// Generated workloads: their arrivals and lengths follow the laws they are named
// after, their sessions the rules of a conversation.
#include "traces/generate.h"

#include <gmock/gmock.h>

#include <boost/math/distributions/gamma.hpp>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/traces/traces_support.h"
#include "traces/exact_math.h"
#include "traces/fit.h"
#include "traces/statistics.h"

namespace kneepoint::traces {
namespace {

using testing::HasSubstr;

ArrivalOptions process(std::string name, double rate = 10, std::uint64_t requests = 50'000) {
  ArrivalOptions options;
  options.process = std::move(name);
  options.rate = rate;
  options.num_requests = requests;
  options.seed = 11;
  return options;
}

std::vector<double> times(const ArrivalOptions& options) {
  const auto arrivals = make_arrivals(options);
  std::vector<double> out(options.num_requests);
  for (double& t : out) t = arrivals->next_s();
  return out;
}

// sqrt(n) times the largest distance of intervals, in units of 1 / rate, from a
// distribution; above 1.95 once in a thousand.
double ks(const std::vector<double>& at, double rate, const std::function<double(double)>& cdf) {
  std::vector<double> x;
  for (std::size_t i = 0; i < at.size(); ++i) x.push_back((at[i] - (i == 0 ? 0 : at[i - 1])) * rate);
  std::ranges::sort(x);
  const auto n = static_cast<double>(x.size());
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst =
        std::max({worst, cdf(x[i]) - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - cdf(x[i])});
  }
  return worst * std::sqrt(n);
}

double exponential_cdf(double x) {
  return 1 - std::exp(-x);
}

TEST(Arrivals, PoissonIntervalsAreExponential) {
  EXPECT_LT(ks(times(process("poisson")), 10, exponential_cdf), 1.95);
}

TEST(Arrivals, GammaIntervalsHaveShapeBurstiness) {
  ArrivalOptions options = process("gamma");
  options.burstiness = 0.2;
  const boost::math::gamma_distribution<> gamma(0.2, 1 / 0.2);
  EXPECT_LT(ks(times(options), 10, [&](double x) { return boost::math::cdf(gamma, std::max(x, 0.0)); }),
            1.95);
  // CV = 1 / sqrt(burstiness): the same process by its other name.
  ArrivalOptions by_cv = process("gamma");
  by_cv.cv = std::sqrt(5.0);
  EXPECT_NEAR(times(options).back() / times(by_cv).back(), 1, 1e-9);
}

TEST(Arrivals, WeibullOfACvHasItsMeanAndThatCv) {
  // cv^2 = Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1; at k = 1/2: 24/4 - 1 = 5.
  EXPECT_NEAR(weibull_shape_of_cv(std::sqrt(5.0)), 0.5, 1e-6);
  ArrivalOptions options = process("weibull");
  options.shape = 0.5;
  // Mean Gamma(3) = 2, so intervals of mean 1 have scale 1/2.
  EXPECT_LT(ks(times(options), 10, [](double x) { return 1 - std::exp(-std::sqrt(2 * x)); }), 1.95);
}

TEST(Arrivals, ParetoIntervalsHaveTheirTail) {
  ArrivalOptions options = process("pareto");
  options.shape = 2.5;
  EXPECT_LT(ks(times(options), 10, [](double x) { return 1 - std::pow(1 + x / 1.5, -2.5); }), 1.95);
}

TEST(Arrivals, ConstantIsConstant) {
  const auto at = times(process("constant", 4, 8));
  for (std::size_t i = 0; i < at.size(); ++i) EXPECT_DOUBLE_EQ(at[i], static_cast<double>(i + 1) / 4);
}

// Two states of rates 1 : 9 lasting 30 s and 10 s: mean weight (30 + 90)/40 = 3,
// so at a mean rate of 10 the busy one runs at 30/s and holds 3/4 of the requests.
TEST(Arrivals, ModulatedPoissonSpendsItsTimeAndRequestsAsItsStatesSay) {
  ArrivalOptions options = process("mmpp", 10, 200'000);
  options.states = {{1, 30}, {9, 10}};
  const auto at = times(options);
  EXPECT_NEAR(200'000 / at.back(), 10, 0.7);
  std::map<long, int> per_second;
  for (const double t : at) ++per_second[std::lround(std::floor(t))];
  double in_busy = 0;  // Between the two rates, 3.3/s and 30/s, lies 13.
  for (const auto& [second, count] : per_second) in_busy += count > 13 ? count : 0;
  EXPECT_NEAR(in_busy / 200'000, 0.75, 0.04);
}

TEST(Arrivals, BenchEndsAtItsCountOverItsRate) {
  ArrivalOptions options = process("vllm-bench", 8, 1000);
  options.burstiness = 0.5;
  EXPECT_NEAR(times(options).back(), 1000 / 8.0, 1e-9);
  options.ramp_up = "linear";
  options.ramp_from = 1;
  options.ramp_to = 100;
  // Unscaled: the mean of the sum of 1 / rate over the ramp, n ln(100) / 99 = 46.5 s.
  EXPECT_NEAR(times(options).back(), 1000 * std::log(100.0) / 99, 8);
}

// 1 + sin(2 pi t / 100) at 10/s: the first half of each period holds
// 1/2 + 1/pi = 81.8 % of its requests. A spike of 5 in [20, 30) of each... none here.
TEST(Envelope, HarmonicsMoveRequestsIntoTheDay) {
  ArrivalOptions options = process("poisson", 10, 100'000);
  options.envelope.harmonics = {{1, 0}};
  options.envelope.period_s = 100;
  double in_first_half = 0;
  for (const double t : times(options)) in_first_half += std::fmod(t, 100) < 50 ? 1 : 0;
  EXPECT_NEAR(in_first_half / 100'000, 0.5 + 1 / M_PI, 0.005);
}

// Constant arrivals at 10/s with a factor 5 in [20, 30): 200 before, 500 within.
// A ramp 0 to 2 over 10 s gives 10 t^2 / 10 requests by t: the 40th at sqrt(40).
TEST(Envelope, SpikesAndRampsAreWorkedByHand) {
  ArrivalOptions options = process("constant", 10, 1000);
  options.envelope.spikes = {{20, 10, 5}};
  const auto at = times(options);
  EXPECT_EQ(std::ranges::count_if(at, [](double t) { return t < 20 - 1e-3; }), 199);
  EXPECT_NEAR(static_cast<double>(std::ranges::count_if(at, [](double t) { return t >= 20 && t < 30; })), 500,
              1);
  options.envelope = {};
  options.envelope.ramp = {0, 2, 10};
  EXPECT_NEAR(times(options)[39], std::sqrt(40.0), 1e-3);
}

struct Refused {
  const char* process;
  void (*spoil)(ArrivalOptions&);
  const char* says;
};

TEST(Arrivals, RefuseWhatTheyWouldIgnore) {
  const Refused kRefused[] = {
      {"poisson", [](ArrivalOptions& o) { o.cv = 2; }, "--cv does not belong to --arrivals poisson"},
      {"gamma", [](ArrivalOptions& o) { o.shape = 2; }, "--shape does not belong to --arrivals gamma"},
      {"gamma", [](ArrivalOptions& o) { o.cv = 2, o.burstiness = 1; }, "say the same"},
      {"gama", [](ArrivalOptions&) {}, "did you mean gamma?"},
      {"poisson", [](ArrivalOptions& o) { o.rate = 0; }, "--rate is 0"},
      {"mmpp", [](ArrivalOptions&) {}, "needs --states"},
      {"pareto", [](ArrivalOptions& o) { o.shape = 1; }, "above 1 only"},
      {"poisson",
       [](ArrivalOptions& o) {
         o.envelope.harmonics = {{1.5, 0}};
       },
       "above 1 the rate could be negative"},
  };
  for (const Refused& row : kRefused) {
    ArrivalOptions options = process(row.process);
    row.spoil(options);
    EXPECT_THAT(error_of([&] { (void)make_arrivals(options); }), HasSubstr(row.says));
  }
}

TEST(ExactMath, NormalAndGammaFunctionsAgreeWithTheLibrary) {
  const boost::math::normal_distribution<> normal;
  for (double p : {1e-300, 1e-17, 1e-9, 0.001, 0.074, 0.076, 0.3, 0.5, 0.7, 0.925, 0.926, 0.999999}) {
    EXPECT_NEAR(exact_normal_quantile(p), boost::math::quantile(normal, p),
                1e-13 * (1 + std::fabs(boost::math::quantile(normal, p))))
        << p;
  }
  for (double x = -8; x <= 8; x += 0.37)
    EXPECT_NEAR(exact_normal_cdf(x), boost::math::cdf(normal, x), 1e-14) << x;
  for (double x = 1; x < 200; x *= 1.3)
    EXPECT_NEAR(exact_log_gamma(x), std::lgamma(x), 2e-14 * (1 + std::lgamma(x))) << x;
}

// spec.md 7.2: integers uniform in [floor(L(1-r)), ceil(L(1+r))], at least 1.
TEST(Lengths, RangeRatioGivesBothEnds) {
  const struct {
    std::int64_t mean;
    double ratio;
    std::int64_t low, high;
  } kRows[] = {{1024, 0, 1024, 1024}, {256, 0.5, 128, 384}, {5, 0.3, 3, 7}, {1, 0.9, 1, 2}, {7, 0.99, 1, 14}};
  for (const auto& row : kRows) {
    const auto model = uniform_lengths(row.mean, row.ratio);
    EXPECT_EQ(model->quantile(0), row.low) << row.mean;
    EXPECT_EQ(model->quantile(1 - 0x1p-53), row.high) << row.mean;
  }
}

TEST(Lengths, UniformPassesChiSquared) {
  const auto model = parse_lengths("uniform:3:12", 0);
  RandomStream stream(5, "test");
  std::map<std::int64_t, double> cells;
  for (int i = 0; i < 100'000; ++i) ++cells[model->quantile(stream.uniform())];
  ASSERT_EQ(cells.size(), 10U);
  double chi = 0;
  for (const auto& [length, count] : cells) chi += (count - 10'000) * (count - 10'000) / 10'000;
  EXPECT_LT(chi, 27.9);  // 9 degrees of freedom, once in a thousand.
}

// Weights 1, 1/2, 1/3, 1/4 sum to 25/12: shares 12/25, 6/25, 4/25, 3/25.
TEST(Lengths, ZipfByHand) {
  const auto model = parse_lengths("zipf:1:4", 0);
  EXPECT_EQ(model->quantile(0.479), 1);
  EXPECT_EQ(model->quantile(0.481), 2);
  EXPECT_EQ(model->quantile(0.719), 2);
  EXPECT_EQ(model->quantile(0.721), 3);
  EXPECT_EQ(model->quantile(0.881), 4);
}

// Mean 1000 and CV 1: sigma^2 = ln 2, median 1000 / sqrt 2 = 707.
TEST(Lengths, LognormalHasItsMeanAndMedian) {
  const auto model = parse_lengths("lognormal:1000:1", 0);
  EXPECT_EQ(model->quantile(0.5), 707);
  RandomStream stream(5, "test");
  double sum = 0;
  for (int i = 0; i < 200'000; ++i) sum += static_cast<double>(model->quantile(stream.uniform()));
  EXPECT_NEAR(sum / 200'000, 1000, 10);
}

TEST(Lengths, CopulaKeepsTheCorrelationOfNormalScores) {
  const TempFolder folder;
  GenerateOptions options;
  options.arrivals = process("poisson", 10, 40'000);
  options.lengths =
      model_pairs(parse_lengths("lognormal:1000:1", 0), parse_lengths("uniform:1:100000", 0), 0.6, 3);
  const auto records = generate(std::move(options));
  EXPECT_NEAR(fit_trace(*records, "t").length_correlation, 0.6, 0.02);
}

TEST(Lengths, PairsFromATraceComeTogether) {
  const TempFolder folder;
  write_trace(folder / "t.pb", {plain_record(std::chrono::nanoseconds(0), 10, 1),
                                plain_record(std::chrono::nanoseconds(0), 20, 2)});
  const auto pairs = empirical_pairs(folder / "t.pb", 1);
  int first = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto pair = pairs->next();
    EXPECT_EQ(pair.prompt, 10 * pair.output);
    first += pair.output == 1 ? 1 : 0;
  }
  EXPECT_NEAR(first, 500, 60);
}

GenerateOptions chat(std::uint64_t requests) {
  GenerateOptions options;
  options.arrivals = process("poisson", 2, requests);
  options.lengths = model_pairs(parse_lengths("uniform:10:50", 0), parse_lengths("uniform:5:9", 0), 0, 1);
  options.system_prompts = {.count = 3, .tokens = 100, .zipf = 1};
  options.sessions.turns = parse_lengths("uniform:1:4", 0);
  options.sessions.tool_calls = parse_lengths("uniform:1:2", 0);
  options.sessions.tool_tokens = parse_lengths("uniform:20:30", 0);
  return options;
}

TEST(Sessions, EachPromptIsTheConversationSoFarAndMore) {
  const auto records = drain(*generate(chat(3000)));
  ASSERT_EQ(records.size(), 3000U);
  std::map<std::uint64_t, TraceRecord> last;
  std::uint64_t later = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const TraceRecord& now = records[i];
    if (i > 0) {
      EXPECT_GE(now.arrival, records[i - 1].arrival);
    }
    const auto before = last.find(now.session);
    EXPECT_EQ(now.after_previous, before != last.end());
    if (before == last.end()) {
      EXPECT_EQ(now.prompt.size(), 2U);
      EXPECT_LE(now.prompt[0].content, 3U);
    } else {
      ++later;
      const TraceRecord& old = before->second;
      ASSERT_EQ(now.prompt.size(), old.prompt.size() + 2);
      EXPECT_TRUE(std::equal(old.prompt.begin(), old.prompt.end(), now.prompt.begin()));
      EXPECT_EQ(now.prompt[old.prompt.size()], (PromptSegment{old.output_content, 0, old.output_tokens}));
      EXPECT_GE(now.arrival - old.arrival, now.think_time);
    }
    last[now.session] = now;
  }
  EXPECT_GT(later, 2000U);  // 2.5 turns of 2.5 requests a session: 5 of 6.25 are later ones.
}

TEST(Sessions, EndBeforeTheLongestContext) {
  GenerateOptions options = chat(2000);
  options.sessions.max_context = 300;
  for (const TraceRecord& record : drain(*generate(std::move(options))))
    EXPECT_LE(record.prompt_tokens + record.output_tokens, 300);
}

// Zipf of exponent 1 over three: 6/11, 3/11, 2/11 of all prompts.
TEST(SystemPrompts, AreChosenByZipf) {
  GenerateOptions options;
  options.arrivals = process("poisson", 10, 30'000);
  options.lengths = model_pairs(uniform_lengths(64, 0), uniform_lengths(8, 0), 0, 1);
  options.system_prompts = {.count = 3, .tokens = 160, .zipf = 1};
  std::map<ContentId, int> chosen;
  PrefixReuse reuse(16);
  for (const TraceRecord& record : drain(*generate(std::move(options)))) {
    ++chosen[record.prompt.front().content];
    EXPECT_EQ(record.prompt_tokens, 224);
    reuse.add(record);
  }
  EXPECT_NEAR(chosen[1], 30'000 * 6.0 / 11, 400);
  EXPECT_NEAR(chosen[3], 30'000 * 2.0 / 11, 400);
  // 10 of 14 blocks of each prompt but the first of its kind.
  EXPECT_EQ(reuse.reused_blocks(), 10U * (30'000 - 3));
}

TEST(Fit, FindsWhatWasGenerated) {
  const struct {
    const char* process;
    double shape;
  } kRows[] = {{"gamma", 0.3}, {"weibull", 0.6}, {"pareto", 3}, {"poisson", 1}};
  for (const auto& row : kRows) {
    GenerateOptions options;
    options.arrivals = process(row.process, 20, 40'000);
    if (std::string_view(row.process) == "gamma") {
      options.arrivals.burstiness = row.shape;
    } else if (row.shape != 1) {
      options.arrivals.shape = row.shape;
    }
    options.lengths =
        model_pairs(parse_lengths("lognormal:800:0.7", 0), parse_lengths("uniform:10:400", 0), 0, 2);
    const auto records = generate(std::move(options));
    const TraceFit fit = fit_trace(*records, "t");
    EXPECT_EQ(fit.intervals.front().process, row.process);
    EXPECT_NEAR(fit.intervals.front().shape / row.shape, 1, 0.1) << row.process;
    EXPECT_LT(fit.intervals.front().ks_distance, 0.02);
    EXPECT_NEAR(fit.rate / 20, 1, 0.03);
    EXPECT_EQ(fit.states, "");
    EXPECT_EQ(fit.output.text, "uniform:10:400");
    EXPECT_THAT(fit.prompt.text, testing::StartsWith("lognormal:"));
    EXPECT_LT(fit.prompt.ks_distance, 0.01);
  }
}

TEST(Fit, SeesAMemory) {
  GenerateOptions options;
  options.arrivals = process("mmpp", 10, 50'000);
  options.arrivals.states = {{1, 30}, {9, 10}};
  options.lengths = model_pairs(uniform_lengths(64, 0), uniform_lengths(8, 0), 0, 1);
  const auto records = generate(std::move(options));
  EXPECT_THAT(fit_trace(*records, "t").command(), HasSubstr("--arrivals mmpp --states "));
}

}  // namespace
}  // namespace kneepoint::traces
