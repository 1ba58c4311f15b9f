// The fits: small problems solved by hand, known coefficients found again in
// synthetic steps, and the recorded runs that were not fitted.
#include "calibrate/fit_steps.h"

#include <gtest/gtest.h>

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/normal_distribution.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <cmath>
#include <map>
#include <sstream>
#include <string>

#include "calibrate/calibrate_error.h"
#include "calibrate/predict_run.h"
#include "calibrate/robust_linear.h"
#include "calibrate/subcommands.h"
#include "tests/calibrate/run_files.h"
#include "tests/support/shared_data.h"

namespace kneepoint::calibrate {
namespace {

// [1 1; 1 -1] x = [1 3] has x = (2, -1). With x2 held at 0 the best x1 is the mean
// of 1 and 3; the residual (-1, 1) has -2 along column 2, so x2 would only rise
// by going negative.
TEST(NonnegativeLeastSquares, HoldsANegativeCoefficientAtZero) {
  Eigen::MatrixXd a(2, 2);
  a << 1, 1, 1, -1;
  const Eigen::VectorXd x = nonnegative_least_squares(a, Eigen::Vector2d(1, 3));
  EXPECT_NEAR(x(0), 2, 1e-12);
  EXPECT_EQ(x(1), 0);
  const Eigen::VectorXd free =
      nonnegative_least_squares(a, Eigen::Vector2d(3, 1));  // (2, 1): nothing to hold.
  EXPECT_NEAR(free(0), 2, 1e-12);
  EXPECT_NEAR(free(1), 1, 1e-12);
}

// Ten rows of 1 and one of 100: the mean is 10, Huber's estimate stays near 1.
TEST(FitLinear, AnOutlierCountsLess) {
  LinearProblem problem;
  problem.design = Eigen::MatrixXd::Ones(11, 1);
  problem.measured = Eigen::VectorXd::Ones(11);
  for (int i = 0; i < 10; ++i) problem.measured(i) += i % 2 == 0 ? 0.01 : -0.01;
  problem.measured(10) = 100;
  problem.group.assign(11, 0);
  problem.relative = false;
  EXPECT_NEAR(fit_linear(problem).coefficients(0), 1.0, 0.01);
}

TEST(Statistics, QuantilesAndAutocorrelation) {
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
  // Deviations +1 -1 +1 -1: products of neighbours sum to -3, squares to 4.
  EXPECT_DOUBLE_EQ(autocorrelation({2, 0, 2, 0}, 1), -0.75);
}

// A server made up for the test, in seconds.
constexpr double kBase = 5e-3, kToken = 250e-6, kPair = 200e-9, kAtFour = 1e-3, kBeyond = 400e-6,
                 kContext = 300e-9;
constexpr double kGap = 1e-3, kPerOutput = 100e-6, kWithPrefill = 0.5e-3, kArrival = 5e-3;

RunSamples made_up_run(const std::string& name, unsigned seed, std::size_t count) {
  boost::random::mt19937_64 random(seed);
  boost::random::normal_distribution<double> normal;
  boost::random::uniform_int_distribution<int> sequences(1, 30), context(50, 1500), tokens(16, 1024),
      one_in_ten(0, 9), computed(0, 2000);
  RunSamples run;
  run.name = name;
  for (std::size_t i = 0; i < count; ++i) {
    StepSample step;
    step.sequences = sequences(random);
    step.context_sum = step.sequences * context(random);
    if (one_in_ten(random) == 0) {
      step.prefill_tokens = tokens(random);
      step.attention_pairs =
          step.prefill_tokens * computed(random) + step.prefill_tokens * (step.prefill_tokens + 1) / 2;
    }
    step.outputs_before = sequences(random);
    const double table =
        step.sequences <= 4 ? kAtFour * step.sequences / 4 : kAtFour + kBeyond * (step.sequences - 4);
    const double time = kBase + kToken * step.prefill_tokens + kPair * step.attention_pairs + table +
                        kContext * step.context_sum;
    step.elapsed_s = time * (1 + 0.05 * normal(random));
    run.steps.push_back(step);
    const double prefill = step.prefill_tokens > 0 ? 1 : 0;
    run.gaps.push_back(
        {1, step.outputs_before, prefill,
         kGap + kPerOutput * step.outputs_before + kWithPrefill * prefill + 1e-4 * normal(random)});
    if (i % 50 == 0)
      run.idle_arrivals.push_back({kArrival + kWithPrefill + 1e-4 * normal(random), 1});
  }
  return run;
}

// Errors of one coefficient over many made-up servers, in its own standard
// errors. With N of them and honest standard errors the mean is 0 +- 1 / sqrt(N)
// and the root mean square 1 +- 1 / sqrt(2 N).
class Scores {
 public:
  void add(const hw::Measured& measured, double truth) {
    ASSERT_GT(measured.standard_error, 0);
    EXPECT_FALSE(measured.source.empty());
    const double score = (measured.value - truth) / measured.standard_error;
    sum_ += score;
    squares_ += score * score;
    ++count_;
  }
  void expect_honest(const std::string& what) const {
    const double n = count_;
    EXPECT_LE(std::abs(sum_ / n), 3.5 / std::sqrt(n)) << what << ": biased";
    EXPECT_NEAR(std::sqrt(squares_ / n), 1, 3.5 / std::sqrt(2 * n)) << what << ": standard error is not one";
  }

 private:
  double sum_ = 0, squares_ = 0;
  int count_ = 0;
};

TEST(FitStepModel, FindsKnownServersAgain) {
  std::map<std::string, Scores> scores;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const std::vector<RunSamples> runs{made_up_run("one", 2 * seed - 1, 3000), made_up_run("two", 2 * seed, 3000)};
    const hw::MeasuredServer server = fit_step_model(runs);
    scores["base"].add(server.base_s, kBase);
    scores["prefill_token"].add(server.prefill_token_s, kToken);
    scores["attention_pair"].add(server.attention_pair_s, kPair);
    scores["context_token"].add(server.context_token_s, kContext);
    scores["sequence_beyond"].add(server.sequence_beyond_s, kBeyond);
    scores["gap.base"].add(server.gap_base_s, kGap);
    scores["gap.per_output"].add(server.gap_per_output_s, kPerOutput);
    scores["gap.with_prefill"].add(server.gap_with_prefill_s, kWithPrefill);
    scores["arrival"].add(server.arrival_s, kArrival);
    // The errors were drawn independent, 5 %: the summaries say so.
    for (const hw::ResidualSummary& residual : server.residuals) {
      EXPECT_NEAR(residual.sd, 0.05, 0.006) << residual.of;
      EXPECT_NEAR(residual.skew, 0, 0.4) << residual.of;
      EXPECT_NEAR(residual.autocorrelation.front().second, 0, 0.15) << residual.of;
    }
  }
  for (const auto& [what, score] : scores) score.expect_honest(what);
}

TEST(FitStepModel, WithoutAClientTheGapsAreSaidToBeUnknown) {
  RunSamples run = made_up_run("log only", 3, 500);
  run.gaps.clear();
  run.idle_arrivals.clear();
  const hw::MeasuredServer server = fit_step_model(std::vector<RunSamples>{run});
  EXPECT_EQ(server.gap_base_s.value, 0);
  EXPECT_NE(server.gap_base_s.source.find("assumed"), std::string::npos);
  bool said = false;
  for (const std::string& what : server.not_identified)
    said = said || what.find("time between steps") != std::string::npos;
  EXPECT_TRUE(said);
}

TEST(FitStepModel, TooFewStepsAreRefused) {
  EXPECT_THROW(static_cast<void>(fit_step_model(std::vector<RunSamples>{made_up_run("short", 4, 20)})),
               CalibrateError);
}

TEST(SlowerThanOthers, SeesAnotherMachine) {
  std::vector<RunSamples> runs{made_up_run("one", 5, 500), made_up_run("two", 6, 500),
                               made_up_run("slow", 7, 500)};
  for (StepSample& step : runs[2].steps) step.elapsed_s *= 2;
  EXPECT_NEAR(slower_than_others(runs, 2), 1.0, 0.05);
  EXPECT_NEAR(slower_than_others(std::span(runs).first(2), 1), 0.0, 0.05);
}

// ---- the recorded server

std::string recorded(const std::string& base, const std::string& name) {
  std::string argument = "log=" + base + "server_" + name.substr(0, 1) + ".log";
  if (name[0] != 'C') argument += ",log=" + base + name + ".steps.log";
  argument += ",client=" + base + name + ".json,trace=" + base + name + ".trace.jsonl";
  if (std::filesystem::exists(base + name + ".cache.json"))
    argument += ",cache=" + base + name + ".cache.json";
  return argument;
}

RunSamples samples_of_recorded(const std::string& base, const std::string& name) {
  const auto run = read_run(parse_run_argument(recorded(base, name)));
  return samples_of(run, replay_log(run), replayable_config(run));
}

struct Limit {
  const char* metric;
  double most;  // Of |error|.
};

struct Unseen {
  const char* name;
  std::vector<Limit> limits;
};

// Fitted on A_rate4, A_conc16 and B_rate3 alone.
TEST(RecordedServer, PredictsRunsThatWereNotFitted) {
  KNEEPOINT_SHARED_OR_SKIP(study, "data/runs/vllm_cpu/STUDY.md");
  const std::string base = study.parent_path().string() + "/";
  std::vector<RunSamples> samples;
  for (const char* name : {"A_rate4", "A_conc16", "B_rate3"})
    samples.push_back(samples_of_recorded(base, name));
  const hw::MeasuredServer server = fit_step_model(samples);
  const std::vector<Limit> usual{
      {"completed", 0}, {"output_throughput", 0.08}, {"mean_ttft_ms", 0.20}, {"mean_tpot_ms", 0.28}};
  const std::vector<Unseen> unseen{
      {"A_rate8", usual},
      {"B_conc16", usual},
      {"C_rate4", usual},
      {"D_azure_conv",
       {{"completed", 0}, {"output_throughput", 0.01}, {"mean_ttft_ms", 0.06}, {"p99_ttft_ms", 0.10}}}};
  for (const Unseen& row : unseen) {
    const auto run = read_run(parse_run_argument(recorded(base, row.name)));
    std::map<std::string, double> measured, predicted;
    for (const RunMetric& metric : measured_metrics(*run.client)) measured[metric.name] = metric.value;
    for (const RunMetric& metric : predict_run(run, server).metrics) predicted[metric.name] = metric.value;
    for (const Limit& limit : row.limits) {
      const double error = predicted.at(limit.metric) / measured.at(limit.metric) - 1;
      EXPECT_LE(std::abs(error), limit.most) << row.name << " " << limit.metric;
    }
  }
}

// The client's own summary of A_rate4: "mean_ttft_ms": 105.28, "p99_itl_ms": 102.78, ...
TEST(RecordedServer, MetricsAreTheClientsOwn) {
  KNEEPOINT_SHARED_OR_SKIP(client, "data/runs/vllm_cpu/A_rate4.json");
  std::map<std::string, double> metrics;
  for (const RunMetric& metric : measured_metrics(read_client_result(client)))
    metrics[metric.name] = metric.value;
  EXPECT_NEAR(metrics.at("mean_ttft_ms"), 105.2801, 1e-3);
  EXPECT_NEAR(metrics.at("p99_ttft_ms"), 249.0895, 1e-3);
  EXPECT_NEAR(metrics.at("mean_tpot_ms"), 11.2078, 1e-3);
  EXPECT_NEAR(metrics.at("p99_itl_ms"), 102.7801, 1e-3);
  EXPECT_NEAR(metrics.at("output_throughput"), 244.4854, 1e-3);
}

}  // namespace
}  // namespace kneepoint::calibrate
