// Whole reports: of a run, of a knee search, and their gnuplot scripts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/knee_page.h"
#include "sim/metrics.h"
#include "sim/paper_plots.h"
#include "sim/run_page.h"
#include "tests/support/toy_run.h"
#include "tests/support/well_formed.h"

namespace kneepoint::sim {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using testing_support::not_well_formed;

// ---- of a run

struct ToyRun {
  RunConfig config;
  RunSummary summary;
  MetricsReport metrics;
  TimeSeries series;
};

void simulate_toy(ToyRun& run, std::vector<traces::TraceRecord> records) {
  testing_support::ToyStepTimes times;
  times.fixed = 10ms;
  Metrics metrics(run.config);
  run.summary = testing_support::run_toy(run.config, times, std::move(records), {&metrics, &run.series});
  run.metrics = metrics.finish(run.summary);
}

RunResult result_of(const ToyRun& run) {
  return {run.config,
          run.summary,
          run.metrics,
          "1",
          "model: \"m\"\nout: \"/tmp/x\"\n",
          {{"trace", "a.pb", "00ff"}},
          {"a line"}};
}

ToyRun small_run() {
  ToyRun run;
  run.config = testing_support::toy_config();
  run.config.report.out_dir = "out";
  run.config.trace = "/data/<b>.pb";
  run.config.model_name = "<script>alert(1)</script>";
  run.config.gpu_name = "h100";
  std::vector<traces::TraceRecord> records;
  for (int i = 0; i < 200; ++i) {
    records.push_back(testing_support::request_at(i * 3ms, 100, 5));
  }
  simulate_toy(run, records);
  return run;
}

TEST(RunPage, ShowsAHostileNameAndRunsNothing) {
  const ToyRun run = small_run();
  const std::string page = run_page(result_of(run), run.series);
  EXPECT_EQ(not_well_formed(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;.pb under load"));
  EXPECT_THAT(page, Not(HasSubstr("/data/")));  // Results name no folders.
  EXPECT_THAT(page, Not(HasSubstr("/tmp/x")));
}

// Every figure: a legend, units in brackets (or a count's name) at both axes, the configuration, its CSV.
TEST(RunPage, EveryFigureSaysWhatItShowsAndWhatMadeIt) {
  const ToyRun run = small_run();
  const RunResult result = result_of(run);
  for (const NamedFigure& named : run_figures(result, run.series)) {
    EXPECT_NE(figure_legend(named.figure), "") << named.name;
    EXPECT_THAT(named.figure.x.label, HasSubstr("(")) << named.name;
    EXPECT_THAT(named.figure.y.label, testing::AnyOf(HasSubstr("("), HasSubstr("Requests"))) << named.name;
    EXPECT_THAT(named.figure.csv, testing::EndsWith(".csv"));
  }
  const std::string page = run_page(result, run.series);
  std::size_t figures = 0, configurations = 0;
  for (std::size_t at = page.find("<figure>"); at != std::string::npos; at = page.find("<figure>", at + 1))
    ++figures;
  for (std::size_t at = page.find("<p class=\"source\">&lt;script"); at != std::string::npos;
       at = page.find("<p class=\"source\">&lt;script", at + 1))
    ++configurations;
  EXPECT_EQ(figures, 8U);  // Seven drawings and the table of waits.
  EXPECT_EQ(configurations, figures);
}

TEST(RunPage, VerdictsComeFirst) {
  ToyRun run = small_run();
  run.summary.overloaded = true;
  run.summary.overload_reason = "the queue grew";
  run.summary.notices.push_back("outside what was measured: x");
  const std::string page = run_page(result_of(run), run.series);
  EXPECT_LT(page.find("OVERLOADED: the queue grew"), page.find("TTFT p99"));
  EXPECT_THAT(page, HasSubstr("outside what was measured: x"));
}

TEST(RunPage, OfNobodyIsAPageToo) {
  ToyRun run;
  run.config = testing_support::toy_config();
  run.config.report.out_dir = "out";
  simulate_toy(run, {});
  const std::string page = run_page(result_of(run), run.series);
  EXPECT_EQ(not_well_formed(page), "");
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, HasSubstr("No data"));
}

TEST(RunPage, SameRunSameBytes) {
  const ToyRun first = small_run(), second = small_run();
  EXPECT_EQ(run_page(result_of(first), first.series), run_page(result_of(second), second.series));
}

TEST(WaitCsv, LargestFirst) {
  RunSummary summary;
  summary.wait_causes = {{"kv_blocks", 1s}, {"next_step", 3s}};
  EXPECT_EQ(wait_csv(summary),
            "cause,request_seconds,share\nnext_step,3.000000,0.750000\nkv_blocks,1.000000,0.250000\n");
}

// ---- of a knee search

LatencyEstimates latencies(double p50, double p99) {
  return {Estimate{p50 * 1.2, 1}, Estimate{p50, 1}, Estimate{p99 * 0.7, 2}, Estimate{p99, p99 / 10}};
}

LoadPoint point(double load, double p99, bool beyond) {
  LoadPoint p;
  p.load = load;
  p.runs = 5;
  p.requests_a_run = 4000;
  p.beyond_saturation = beyond;
  p.ttft = latencies(p99 / 4, p99);
  p.tpot = latencies(8 + load / 4, 12 + load / 2);
  p.requests_per_s = {beyond ? 30 : load, 0.1};
  p.output_tokens_per_s = {200 * p.requests_per_s.value, 10};
  p.mean_running = load;
  p.mean_waiting = beyond ? 500 : load / 100;
  p.mean_kv_usage = std::min(1.0, load / 40);
  p.peak_kv_usage = std::min(1.0, load / 30);
  p.waits = {{"kv_blocks", load / 50, 3}, {"next_step", 1 - load / 50, 2}};
  if (!beyond) p.elasticity = Estimate{1 + load / 5, 0.2};
  return p;
}

Knee knee(KneeKind kind, double load, double arrivals, double step_time, std::vector<double> by_seed) {
  Knee k;
  k.kind = kind;
  k.status = KneeStatus::kFound;
  k.load = load;
  k.arrivals_half_width = arrivals;
  k.step_time_half_width = step_time;
  k.by_seed = std::move(by_seed);
  k.explanation = "found";
  return k;
}

KneeResult knee_result() {
  KneeResult r;
  r.slo = {"ttft:p99:500"};
  r.seeds = 5;
  r.precision = 0.05;
  r.precise = true;
  r.step_time_error = {0.02, 0.01, "standard errors of the rates", "given"};
  for (const auto& [load, p99] :
       {std::pair{5.0, 90.0}, {10.0, 120.0}, {20.0, 200.0}, {25.0, 330.0}, {28.0, 700.0}}) {
    r.points.push_back(point(load, p99, false));
  }
  r.points.push_back(point(32, 8000, true));
  r.points.push_back(point(38, 30000, true));
  r.knees = {knee(KneeKind::kSlo, 26.5, 0.6, 0.5, {26.1, 26.4, 26.9}),
             knee(KneeKind::kElbow, 24, 1, 0.4, {23, 24, 25}),
             knee(KneeKind::kSaturation, 30, 0.3, 0.6, {29.8, 30, 30.2})};
  r.bindings = {{26.5, "at the SLO knee", Resource::kKvBlocks, {"71 % of the waiting time"}}};
  r.what_ifs = {{"2x KV blocks", KneeKind::kSaturation, KneeStatus::kFound, 36, 1.2, 0.02}};
  r.servers = ServersNeeded{40, 90, 60, 2, 4, 2, 4};
  r.version = "1";
  r.workload = "trace <i>.pb";
  r.configuration = "model: \"m\"\n";
  return r;
}

TEST(KneePage, ShowsKneesPartsAndWhatBinds) {
  const std::string page = knee_page(knee_result(), "<script>x</script>");
  EXPECT_EQ(not_well_formed(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  // sqrt(0.6^2 + 0.5^2) = 0.781.
  EXPECT_THAT(page, HasSubstr("The knee is at 26.5 req/s ± 0.781"));
  EXPECT_THAT(page, HasSubstr("± 0.781: arrivals ± 0.6, step time ± 0.5"));
  EXPECT_THAT(page, HasSubstr("KV blocks"));
  EXPECT_THAT(page, HasSubstr("× 1.20"));
  EXPECT_THAT(page, HasSubstr("SLO 500 ms"));
  EXPECT_EQ(page, knee_page(knee_result(), "<script>x</script>"));
  if (const char* folder = std::getenv("KNEEPOINT_PAGE_SAMPLES")) {  // For looking at it.
    std::ofstream(std::filesystem::path(folder) / "knee.html")
        << knee_page(knee_result(), "llama-3.1-8b, bfloat16 weights, 1 × h100");
  }
}

// Points beyond saturation are joined to the last one before by a dashed line of their own.
TEST(KneePage, BeyondSaturationIsApart) {
  const std::vector<NamedFigure> figures = knee_figures(knee_result());
  const Figure& main = figures.front().figure;
  ASSERT_EQ(main.lines.size(), 2U);
  EXPECT_TRUE(main.lines[0].dashed);
  EXPECT_EQ(main.lines[0].points.size(), 3U);
  EXPECT_EQ(main.lines[1].points.size(), 5U);
  ASSERT_EQ(main.bands.size(), 2U);  // Their latencies are a band, p50 to p99, from the last before.
  EXPECT_EQ(main.bands[1].low, (std::vector<double>{175, 2000, 7500}));
  EXPECT_EQ(main.bands[1].high, (std::vector<double>{700, 8000, 30000}));
  EXPECT_EQ(main.spans.front().x.low, 30);
  EXPECT_EQ(main.spans.front().x.high, 38);
}

TEST(KneePage, OfAServerThatNeverBreaksOrAlwaysDoes) {
  KneeResult r = knee_result();
  for (Knee& knee : r.knees) {
    knee.status = knee.kind == KneeKind::kElbow ? KneeStatus::kNone : KneeStatus::kBelowRange;
    knee.explanation = "overloaded at 1 req/s already";
  }
  r.points.erase(r.points.begin(), r.points.begin() + 5);
  for (LoadPoint& p : r.points) p.ttft.p99_ms = std::nullopt;
  r.bindings.clear();
  r.servers.reset();
  const std::string page = knee_page(r, "setup");
  EXPECT_EQ(not_well_formed(page), "");
  EXPECT_THAT(page, HasSubstr("overloaded at 1 req/s already"));
  EXPECT_THAT(page, HasSubstr("No knee within the loads tried"));
  EXPECT_THAT(page, Not(HasSubstr(">nan")));
  r.points.clear();
  r.knees.clear();
  EXPECT_EQ(not_well_formed(knee_page(r, "setup")), "");
}

TEST(KneePage, EveryFigureHasALegendAndUnits) {
  for (const NamedFigure& named : knee_figures(knee_result())) {
    EXPECT_NE(figure_legend(named.figure), "") << named.name;
    EXPECT_THAT(named.figure.x.label, HasSubstr("(req/s)")) << named.name;
    EXPECT_NE(named.figure.csv, "") << named.name;
  }
}

TEST(KneeCsv, OfTheKneesAndTheWaits) {
  EXPECT_THAT(knees_csv(knee_result()), HasSubstr("elbow,found,24,"));
  EXPECT_THAT(knee_waits_csv(knee_result()), HasSubstr("\n20,kv_blocks,0.4,3\n20,next_step,0.6,2\n"));
}

// ---- for papers

TEST(GnuplotScript, HoldsItsNumbersAndQuotesWhatItIsGiven) {
  Figure figure;
  figure.title = "It's\nx";
  figure.x = {"Load (req/s)", true, 1.0, {}};
  figure.y = {"p99 'TTFT' (ms)", false, {}, {}};
  figure.lines.push_back({"a'; system('x'); '", Tone::kBlue, {{1, 2.5}, {2, std::nan("")}}});
  const std::string script = gnuplot_script({"curve", figure}, "made\nby");
  EXPECT_THAT(script, HasSubstr("# 'It''s x'\n# 'made by'\n"));
  EXPECT_THAT(script, HasSubstr("set ylabel 'p99 ''TTFT'' (ms)'\n"));
  EXPECT_THAT(script, HasSubstr("set logscale x\nset xrange [1:*]\n"));
  EXPECT_THAT(script, HasSubstr("$d1 << EOD\n1 2.5\n2 NaN\nEOD\n"));
  EXPECT_THAT(script, HasSubstr("title 'a''; system(''x''); '''"));
  EXPECT_THAT(script, HasSubstr("set output 'curve.pdf'"));
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

// Every figure of a search, twice: gnuplot takes each script, and makes the same bytes of it.
TEST(PaperPlots, GnuplotTakesEveryScript) {
  const std::vector<NamedFigure> figures = knee_figures(knee_result());
  std::vector<std::filesystem::path> folders;
  for (const char* name : {"first", "second"}) {
    folders.push_back(std::filesystem::path(testing::TempDir()) / name);
    OutputFiles files(folders.back());
    const std::string only_scripts = write_paper_plots(files, figures, "made by");
    files.commit();
    if (!only_scripts.empty()) {
      GTEST_SKIP() << only_scripts;
    }
  }
  for (const std::string& name : paper_plot_files(figures)) {
    EXPECT_EQ(read(folders[0] / name), read(folders[1] / name)) << name;
    EXPECT_GT(std::filesystem::file_size(folders[0] / name), 500U) << name;
  }
}

TEST(PaperPlots, WithoutGnuplotThereAreTheScriptsAndALine) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "no_gnuplot";
  OutputFiles files(folder);
  const std::string said =
      write_paper_plots(files, {{"knees", knee_figures(knee_result())[1].figure}}, "made by");
  ::setenv("PATH", path.c_str(), 1);
  files.commit();
  EXPECT_THAT(said, HasSubstr("install gnuplot-nox"));
  EXPECT_TRUE(std::filesystem::exists(folder / "knees.gp"));
  EXPECT_FALSE(std::filesystem::exists(folder / "knees.svg"));
}

}  // namespace
}  // namespace kneepoint::sim
