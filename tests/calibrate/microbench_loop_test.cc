// The host side of gpu_microbench without a GPU: which shapes come first, when the
// loop ends, and that the file is valid whenever that is.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "calibrate/measurement.pb.h"
#include "calibrate/microbench/command_options.h"
#include "calibrate/microbench/decode_items.h"
#include "calibrate/microbench/measure_loop.h"
#include "calibrate/microbench/shape_plan.h"
#include "hw/model_arch.h"

namespace kneepoint::microbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DeviceFacts facts_of_an_h200() {
  DeviceFacts facts;
  facts.name = "NVIDIA H200";
  facts.capability_major = 9;
  facts.sm_count = 132;
  facts.l2_bytes = 52'428'800;
  facts.memory_bytes = 150'000'000'000;
  facts.free_memory_bytes = std::int64_t{32} << 30;
  facts.memory_clock_mhz = 3201;
  facts.memory_bus_bits = 6144;
  facts.max_sm_clock_mhz = 1980;
  facts.driver_version = "580.1";
  facts.cuda_version = "13.0";
  return facts;
}

// The plan.

TEST(AxisLevels, HalveTheAxis) {
  // The picture in shape_plan.h.
  EXPECT_THAT(axis_levels(9), ElementsAre(0, 3, 2, 3, 1, 3, 2, 3, 0));
  EXPECT_THAT(axis_levels(1), ElementsAre(0));
  EXPECT_THAT(axis_levels(2), ElementsAre(0, 0));
}

std::string family_of(const Shape& shape) {
  const std::string text = describe(shape);
  return std::holds_alternative<RowShape>(shape) ? "rows" : text.substr(0, text.find('='));
}

TEST(ShapePlan, GivesEveryFamilyWhatAFitNeedsFirst) {
  const std::vector<Shape> shapes = plan_shapes(facts_of_an_h200());
  std::map<std::string, int> early;
  std::set<std::string> all;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_TRUE(all.insert(describe(shapes[i])).second) << "twice: " << describe(shapes[i]);
    // Eight families of up to 64.
    if (i < 8 * 64) ++early[family_of(shapes[i])];
  }
  // The forms have 12, 20, 18, 21 and 2 parameters (hw/forms_*.h).
  EXPECT_GE(early["gemm bf16 m"], 60);
  EXPECT_GE(early["gemm fp8 m"], 60);
  EXPECT_GE(early["decode attention bf16 sequences"], 60);
  EXPECT_GE(early["decode attention fp8 sequences"], 60);
  EXPECT_GE(early["prefill attention batch"], 60);
  EXPECT_GE(early["rows"], 60);
  EXPECT_GT(shapes.size(), 1000U);
}

TEST(ShapePlan, LeavesOutWhatTheGpuCannotDo) {
  DeviceFacts facts = facts_of_an_h200();
  facts.capability_major = 8;
  facts.free_memory_bytes = std::int64_t{4} << 30;
  for (const Shape& shape : plan_shapes(facts)) {
    if (const auto* gemm = std::get_if<GemmShape>(&shape)) {
      EXPECT_NE(gemm->precision, Precision::kFp8) << describe(shape);
      EXPECT_LE(2 * 2 * gemm->n * gemm->k, facts.free_memory_bytes) << describe(shape);
    }
    if (const auto* decode = std::get_if<DecodeShape>(&shape)) {
      EXPECT_LE(kv_bytes(*decode), facts.free_memory_bytes) << describe(shape);
    }
    EXPECT_FALSE(std::holds_alternative<AllReduceShape>(shape)) << "one GPU";
  }
}

TEST(ShapePlan, SpansTheProductsOfTheModelLibrary) {
  std::int64_t least_n = 1 << 30;
  std::int64_t least_k = 1 << 30;
  std::int64_t most_n = 0;
  std::int64_t most_k = 0;
  for (const Shape& shape : plan_shapes(facts_of_an_h200())) {
    const auto* gemm = std::get_if<GemmShape>(&shape);
    if (gemm == nullptr || gemm->precision != Precision::kBf16) continue;
    least_n = std::min(least_n, gemm->n);
    least_k = std::min(least_k, gemm->k);
    most_n = std::max(most_n, gemm->n);
    most_k = std::max(most_k, gemm->k);
  }
  for (const std::string& name : hw::model_names()) {
    const hw::ModelArch model = hw::load_model(name);
    if (model.num_experts > 0) continue;  // Their products are calls of experts.
    // Dense layers, whole and cut by TP 8: gate and up join hidden to twice the
    // intermediate size, down leads back, and TP cuts one side of each.
    const std::int64_t gate_up = 2 * model.intermediate_size;
    EXPECT_LE(least_n, gate_up / 8) << name;
    EXPECT_GE(most_n, gate_up) << name;
    EXPECT_GE(most_n, model.vocab_size) << name;
    EXPECT_LE(least_k, model.hidden_size / 4) << name;
    EXPECT_GE(most_k, model.intermediate_size) << name;
  }
}

// Decode items.

TEST(DecodeItems, CutContextsIntoEqualParts) {
  // At most 256: 100 is one part; 1000 needs four of 250, rounded up to 256.
  const DecodePlan plan = plan_decode({100, 1000, 64}, 256);
  EXPECT_THAT(plan.first_item, ElementsAre(0, 1, 5, 6));
  EXPECT_TRUE(plan.merge);
  std::vector<std::int32_t> ends;
  for (const DecodeItem& item : plan.items) ends.push_back(item.end);
  EXPECT_THAT(ends, ElementsAre(100, 256, 512, 768, 1000, 64));
  EXPECT_FALSE(plan_decode({10, 10}, 256).merge);
}

TEST(DecodeItems, PartsFillTheGpuAndNeverExceed64) {
  // 64 x 8192 tokens of 8 KV heads over 132 SMs x 2 x 8 rounds: 1985.9, rounded up to 64s.
  EXPECT_EQ(decode_part_tokens(std::vector<std::int32_t>(64, 8192), 8, 132), 2048);
  EXPECT_EQ(decode_part_tokens({50}, 1, 132), 128);
  // 131,072 tokens in 64 parts.
  EXPECT_EQ(decode_part_tokens({131072}, 1, 132), 2048);
}

TEST(Contexts, SkewedOnesHaveTheSameMean) {
  // 1000 (2 i + 1) / 4: from an eighth of the double to nearly the double.
  EXPECT_THAT(contexts_of({Precision::kBf16, 4, 1000, true, 8, 1}), ElementsAre(250, 750, 1250, 1750));
  EXPECT_EQ(kv_bytes({Precision::kFp8, 4, 1000, true, 8, 2}), 2 * 4000 * 2 * 128);
}

// The loop. Time passes only when something is measured.

class FakeDevice final : public Device {
 public:
  DeviceFacts facts() override { return facts_of_an_h200(); }
  std::vector<Comparison> check() override { return {}; }
  Timing measure(const Shape&, const TimingOptions&) override {
    ++calls;
    now += 1;
    if (calls == skip_at) throw ShapeSkipped("no kernel");
    if (calls == fail_at) throw DeviceError("cudaGraphLaunch: out of order");
    Timing timing;
    timing.us = {3, us, 1};
    timing.calls = 10;
    timing.implementation = "own";
    timing.clocks = {1980, 3201, 40, 300, {"power cap", "thermal"}};
    return timing;
  }
  int calls = 0;
  int skip_at = 0;
  int fail_at = 0;
  double us = 2;
  double now = 100;
};

struct LoopRun {
  Measurement measurement;
  std::vector<std::string> written;
  std::vector<std::string> progress;
};

LoopRun run_loop(FakeDevice& device, int shapes, double budget, int interrupt_after = -1) {
  LoopRun result;
  std::vector<Shape> plan;
  for (int i = 0; i < shapes; ++i) plan.emplace_back(GemmShape{Precision::kBf16, i + 1, 128, 256, false});
  LoopWorld world;
  world.seconds = [&] { return device.now; };
  world.interrupted = [&] { return device.calls == interrupt_after; };
  world.write = [&](const Measurement& m) { result.written.push_back(measurement_text(m)); };
  world.progress = [&](const std::string& line) { result.progress.push_back(line); };
  LoopOptions options;
  options.budget_seconds = budget;
  result.measurement.facts = device.facts();
  result.measurement.date = "2026-12-01";
  measure_all(device, plan, options, world, result.measurement);
  return result;
}

calibrate::pb::Measurement parsed(const std::string& text) {
  calibrate::pb::Measurement measurement;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &measurement)) << text;
  return measurement;
}

TEST(MeasureLoop, MeasuresAllShapesInTheirOrder) {
  FakeDevice device;
  const LoopRun result = run_loop(device, 5, 100);
  const auto file = parsed(result.written.back());
  EXPECT_EQ(file.ended_by(), "all shapes measured");
  ASSERT_EQ(file.row_size(), 5);
  EXPECT_EQ(file.row(4).gemm().m(), 5);
  EXPECT_EQ(file.planned(), 5);
  EXPECT_EQ(file.seconds(), 5);
}

TEST(MeasureLoop, BeginsNoShapePastTheBudget) {
  FakeDevice device;
  const LoopRun result = run_loop(device, 50, 10);
  // Seconds 0 to 9 begin one each.
  EXPECT_EQ(device.calls, 10);
  EXPECT_EQ(parsed(result.written.back()).ended_by(), "budget");
  EXPECT_EQ(parsed(result.written.back()).row_size(), 10);
}

TEST(MeasureLoop, WritesOnTheWay) {
  FakeDevice device;
  const LoopRun result = run_loop(device, 25, 100);
  // After 10 and 20 seconds, and at the end.
  ASSERT_EQ(result.written.size(), 3U);
  EXPECT_EQ(parsed(result.written[0]).row_size(), 10);
  EXPECT_EQ(parsed(result.written[0]).ended_by(), "still running");
  EXPECT_EQ(parsed(result.written[2]).row_size(), 25);
}

TEST(MeasureLoop, AnInterruptLeavesAValidFile) {
  FakeDevice device;
  const LoopRun result = run_loop(device, 50, 100, 3);
  EXPECT_EQ(parsed(result.written.back()).ended_by(), "interrupted");
  EXPECT_EQ(parsed(result.written.back()).row_size(), 3);
}

TEST(MeasureLoop, AFailureOfTheGpuEndsItAndKeepsWhatWasMeasured) {
  FakeDevice device;
  device.fail_at = 4;
  const LoopRun result = run_loop(device, 50, 100);
  EXPECT_EQ(parsed(result.written.back()).ended_by(), "error: cudaGraphLaunch: out of order");
  EXPECT_EQ(parsed(result.written.back()).row_size(), 3);
}

TEST(MeasureLoop, SkippedShapesAreCountedByReason) {
  FakeDevice device;
  device.skip_at = 2;
  const auto file = parsed(run_loop(device, 5, 100).written.back());
  EXPECT_EQ(file.row_size(), 4);
  ASSERT_EQ(file.skipped_size(), 1);
  EXPECT_EQ(file.skipped(0).why(), "no kernel");
  EXPECT_EQ(file.skipped(0).first(), "gemm bf16 m=2 n=128 k=256");
}

TEST(MeasureLoop, ATimeThatIsNoneIsAnErrorNotARow) {
  for (const double us : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    FakeDevice device;
    device.us = us;
    const auto file = parsed(run_loop(device, 5, 100).written.back());
    EXPECT_EQ(file.row_size(), 0);
    EXPECT_THAT(file.ended_by(), HasSubstr("a time is not positive"));
  }
}

TEST(MeasureLoop, ProgressSaysWhatIsLeft) {
  FakeDevice device;
  // After 10 of 40 shapes in 10 s, 30 s are left; the budget of 25 s leaves 15.
  EXPECT_EQ(run_loop(device, 40, 100).progress[10],
            "[=======                       ] 10 of 40 shapes, 30 s left");
  FakeDevice other;
  EXPECT_EQ(run_loop(other, 40, 25).progress[10],
            "[=======                       ] 10 of 40 shapes, 15 s left");
  EXPECT_EQ(progress_line(40, 40, 0), "[==============================] 40 of 40 shapes, 0 s left");
  EXPECT_THAT(progress_line(1, 40, 125), HasSubstr("2 min 5 s left"));
}

// The file.

TEST(MeasurementText, HoldsEveryFieldOfEveryShape) {
  Measurement m;
  m.date = "2026-12-01";
  m.facts = facts_of_an_h200();
  m.facts.name = "a \"quoted\" name";
  const Timing timing{{1, 4, 2}, 10, "own", {1980, 3201, 40, 300, {"power cap", "thermal"}}};
  for (const Shape& shape :
       std::vector<Shape>{MemoryShape{MemoryOp::kCopy, 1024}, GemmShape{Precision::kFp8, 1, 2, 3, true},
                          DecodeShape{Precision::kFp8, 4, 1000, true, 8, 2}, PrefillShape{2, 3, 4, 8, 2},
                          RowShape{RowOp::kQuantise, 2, 256}, LatencyShape{LatencyOp::kGraphNode},
                          AllReduceShape{4, 2048}}) {
    m.rows.push_back({shape, timing});
  }
  const auto file = parsed(measurement_text(m));
  EXPECT_EQ(file.gpu().name(), "a \"quoted\" name");
  EXPECT_EQ(file.gpu().compute_capability(), "9.0");
  EXPECT_EQ(file.gpu().memory_bus_bits(), 6144);
  ASSERT_EQ(file.row_size(), 7);
  EXPECT_EQ(file.row(0).us(), 2);
  EXPECT_EQ(file.row(0).us_min(), 1);
  EXPECT_EQ(file.row(0).us_max(), 4);
  EXPECT_EQ(file.row(0).throttle_size(), 2);
  EXPECT_EQ(file.row(0).memory().op(), "copy");
  EXPECT_TRUE(file.row(1).gemm().quantise());
  EXPECT_EQ(file.row(2).decode_attention().context_sum(), 4000);
  EXPECT_EQ(file.row(2).decode_attention().context_max(), 1750);
  EXPECT_EQ(file.row(3).prefill_attention().computed(), 4);
  // Two rows of 256: read 1024 bytes, written 512, two scales of 4.
  EXPECT_EQ(file.row(4).elementwise().bytes(), 1544);
  EXPECT_EQ(file.row(5).latency().op(), "graph_node");
  EXPECT_EQ(file.row(6).all_reduce().gpus(), 4);
}

TEST(ReplaceFile, LeavesNothingHalfWritten) {
  const std::filesystem::path folder = testing::TempDir();
  const std::string path = (folder / "replaced.textproto").string();
  replace_file(path, "old");
  replace_file(path, "new");
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "new");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  EXPECT_THROW(replace_file((folder / "no such folder" / "f").string(), "x"), std::runtime_error);
  std::filesystem::remove(path);
}

// The command line.

TEST(CommandOptions, AreRead) {
  const CommandOptions options = parse_options(
      {"--out=x.textproto", "--budget-seconds", "30", "--date", "2026-12-01", "--device", "2", "--check"});
  EXPECT_EQ(options.out, "x.textproto");
  EXPECT_EQ(options.budget_seconds, 30);
  EXPECT_EQ(options.date, "2026-12-01");
  EXPECT_EQ(options.device, 2);
  EXPECT_TRUE(options.check);
  EXPECT_EQ(parse_options({}).budget_seconds, 240);
}

std::string complaint(const std::vector<std::string>& arguments) {
  try {
    (void)parse_options(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(CommandOptions, WrongOnesAreNamed) {
  EXPECT_EQ(complaint({"--budget-second", "3"}),
            "unknown option '--budget-second'; did you mean --budget-seconds?");
  EXPECT_EQ(complaint({"--budget", "3"}), "unknown option '--budget'; did you mean --budget-seconds?");
  EXPECT_EQ(complaint({"--otu", "x"}), "unknown option '--otu'; did you mean --out?");
  EXPECT_EQ(complaint({"--budget-seconds", "soon"}),
            "--budget-seconds 'soon': a number from 1 to 86400 is needed");
  EXPECT_EQ(complaint({"--budget-seconds", "nan"}),
            "--budget-seconds 'nan': a number from 1 to 86400 is needed");
  EXPECT_EQ(complaint({"--device", "-1"}), "--device '-1': a number from 0 to 63 is needed");
  EXPECT_EQ(complaint({"--out"}), "--out needs a value");
  EXPECT_EQ(complaint({"--check=yes"}), "--check takes no value");
  EXPECT_EQ(complaint({"--date", "1.12.2026"}), "--date '1.12.2026': a day as 2026-12-01 is needed");
}

}  // namespace
}  // namespace kneepoint::microbench
