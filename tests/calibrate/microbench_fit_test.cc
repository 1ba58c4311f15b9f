// From a measurement to a GPU that simulate can use, without a GPU: a fake one whose
// operators take exactly what known rates say is measured by the real loop, written by
// the real writer, read and fitted. The fit must give those rates back: not each
// parameter (some hardly matter, some trade off against each other), but the times, also
// of shapes that were not measured, and the parameters that people quote.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "calibrate/calibrate_error.h"
#include "calibrate/fit_forms.h"
#include "calibrate/measurement_file.h"
#include "calibrate/microbench/measure_loop.h"
#include "calibrate/microbench/shape_plan.h"
#include "calibrate/subcommands.h"
#include "hw/deployment.h"
#include "hw/fitted_times.h"
#include "hw/rates.h"
#include "hw/roofline_times.h"
#include "hw/spec_error.h"

namespace kneepoint::calibrate {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr auto kCold = hw::CacheState::kCold;
constexpr double kUsPerSecond = 1e6;

microbench::DeviceFacts facts() {
  microbench::DeviceFacts facts;
  facts.name = "NVIDIA Known";
  facts.capability_major = 9;
  facts.sm_count = 132;
  facts.l2_bytes = 50'000'000;
  facts.memory_bytes = 150'000'000'000;
  facts.free_memory_bytes = std::int64_t{32} << 30;
  facts.memory_clock_mhz = 3125;  // x 2 x 6144 bits / 8 = 4800 GB/s.
  facts.memory_bus_bits = 6144;
  facts.max_sm_clock_mhz = 1829;  // x 132 x 4096 = 989 TFLOP/s.
  facts.driver_version = "580.1";
  facts.cuda_version = "13.0";
  return facts;
}

// The bundled H200 rates, given to a GPU of the same size under another name.
hw::Rates known_rates(const std::string& gpu) {
  hw::Rates rates = hw::load_rates("h200");
  rates.gpu = gpu;
  return rates;
}

class KnownGpu final : public microbench::Device {
 public:
  KnownGpu(const hw::GpuSpec& gpu, const hw::Rates& rates) : times_(gpu, rates) {}
  microbench::DeviceFacts facts() override { return calibrate::facts(); }
  std::vector<microbench::Comparison> check() override { return {}; }
  microbench::Timing measure(const microbench::Shape& shape, const microbench::TimingOptions&) override {
    const double us = std::visit([&](const auto& s) { return seconds(s); }, shape) * kUsPerSecond;
    microbench::Timing timing;
    timing.us = {us * 0.999, us, us * 1.001};
    timing.calls = 100;
    timing.implementation = implementation;
    return timing;
  }
  std::string implementation = "cudnn";

 private:
  static hw::Precision precision(microbench::Precision p) {
    return p == microbench::Precision::kFp8 ? hw::Precision::kFp8 : hw::Precision::kBf16;
  }
  static double seconds(const microbench::MemoryShape& s) {
    return static_cast<double>(bytes_moved(s)) /
           (2 * s.bytes <= calibrate::facts().l2_bytes ? 10e12 : 4.3e12);
  }
  [[nodiscard]] double seconds(const microbench::GemmShape& s) const {
    const bool fp8 = s.precision == microbench::Precision::kFp8;
    return times_.gemm({precision(s.precision), s.m, s.n, s.k, fp8 && !s.quantise}, kCold).seconds;
  }
  [[nodiscard]] double seconds(const microbench::DecodeShape& s) const {
    const auto contexts = contexts_of(s);
    const hw::DecodeAttentionShape shape{precision(s.kv),
                                         s.sequences,
                                         std::accumulate(contexts.begin(), contexts.end(), std::int64_t{0}),
                                         *std::max_element(contexts.begin(), contexts.end()),
                                         s.heads,
                                         s.kv_heads};
    return times_.decode_attention(shape, kCold).seconds;
  }
  [[nodiscard]] double seconds(const microbench::PrefillShape& s) const {
    return times_
        .prefill_attention({hw::Precision::kBf16, s.batch, s.tokens, s.computed, s.heads, s.kv_heads})
        .seconds;
  }
  [[nodiscard]] double seconds(const microbench::RowShape& s) const {
    return times_.elementwise({bytes_moved(s)}).seconds;
  }
  static double seconds(const microbench::LatencyShape&) { return 5e-6; }
  [[nodiscard]] double seconds(const microbench::AllReduceShape& s) const {
    return times_.collective({hw::Collective::kAllReduce, s.gpus, s.bytes}).seconds;
  }

  hw::FittedTimes times_;
};

hw::GpuSpec described(const std::string& name) {
  const MeasuredGpu gpu{.full_name = "NVIDIA Known",
                        .capability = "9.0",
                        .about = "a test",
                        .sm_count = 132,
                        .l2_bytes = 50'000'000,
                        .memory_bytes = 150'000'000'000,
                        .memory_bytes_per_s = 4.8e12,
                        .max_sm_clock_hz = 1.829e9,
                        .l2_bytes_per_s = 1e13};
  return hw::parse_gpu(gpu_description(gpu, name, name + ".rates.textproto"), name);
}

// The text that the first `count` planned shapes become.
std::string measured_text(microbench::Device& device, std::size_t count) {
  std::vector<microbench::Shape> shapes = microbench::plan_shapes(facts());
  shapes.resize(std::min(count, shapes.size()));
  microbench::Measurement measurement;
  measurement.date = "2026-12-01";
  measurement.facts = facts();
  std::string text;
  microbench::LoopWorld world;
  world.seconds = [] { return 0.0; };
  world.write = [&](const microbench::Measurement& m) { text = measurement_text(m); };
  microbench::measure_all(device, shapes, {}, world, measurement);
  return text;
}

double median_of(std::vector<double> values) {
  return microbench::median(std::move(values));
}

TEST(GpuDescription, GivesTheChipsOwnFigures) {
  const hw::GpuSpec gpu = described("known");
  // 132 SMs x 4096 FLOP x 1.829 GHz = 988.9 TFLOP/s, as the H100's and H200's data sheets say.
  EXPECT_NEAR(gpu.bf16_flops_per_s, 989e12, 1e12);
  EXPECT_NEAR(gpu.fp8_flops_per_s, 1978e12, 2e12);
  EXPECT_EQ(gpu.bandwidth_bytes_per_s, 4.8e12);
  EXPECT_EQ(gpu.num_sms, 132);
  EXPECT_EQ(gpu.nominal_memory_bytes, 150e9);
}

TEST(Measurement, ComesBackAsRows) {
  const hw::GpuSpec gpu = described("known");
  KnownGpu device(gpu, known_rates("known"));
  const GpuMeasurement measurement = parse_measurement(measured_text(device, 300), "m", "known");
  EXPECT_EQ(measurement.gpu.memory_bytes_per_s, 4.8e12);
  EXPECT_NEAR(measurement.gpu.l2_bytes_per_s, 10e12, 1e8);
  EXPECT_THAT(measurement.warnings, testing::IsEmpty());
  std::map<std::string, int> families;
  for (const OperatorRow& row : measurement.rows) {
    ++families[row.family];
    EXPECT_EQ(row.gpu, "known");
    EXPECT_EQ(row.cache, kCold);
  }
  EXPECT_THAT(families, Contains(testing::Key("gemm_int4")));
  EXPECT_THAT(families, Contains(testing::Key("elementwise")));
  EXPECT_GT(measurement.figures.size(), 6U);
}

TEST(Measurement, KnownRatesComeBack) {
  const hw::GpuSpec gpu = described("known");
  KnownGpu device(gpu, known_rates("known"));
  const hw::FittedTimes truth(gpu, known_rates("known"));
  const GpuMeasurement measurement = parse_measurement(measured_text(device, 700), "m", "known");
  std::vector<std::string> left_out;
  FitOptions options;
  options.num_starts = 1;
  options.left_out = &left_out;
  const hw::Rates rates = fit_rates(gpu, measurement.rows, "a test", options);
  EXPECT_THAT(left_out, testing::IsEmpty());
  const hw::FittedTimes fitted(gpu, rates);
  // Not one of these is in the plan.
  std::map<std::string, std::vector<double>> errors;
  for (const std::int64_t m : {3, 40, 300, 3000}) {
    for (const std::int64_t n : {6000, 20000}) {
      for (const hw::Precision precision : {hw::Precision::kBf16, hw::Precision::kFp8}) {
        const hw::GemmShape shape{precision, m, n, 5000, false};
        errors[precision == hw::Precision::kBf16 ? "gemm bf16" : "gemm fp8"].push_back(
            fitted.gemm(shape, kCold).seconds / truth.gemm(shape, kCold).seconds - 1);
      }
    }
    for (const std::int64_t context : {700, 5000}) {
      const hw::DecodeAttentionShape decode{hw::Precision::kBf16,
                                            std::min<std::int64_t>(m, 200),
                                            std::min<std::int64_t>(m, 200) * context,
                                            context,
                                            32,
                                            8};
      errors["decode"].push_back(
          fitted.decode_attention(decode, kCold).seconds / truth.decode_attention(decode, kCold).seconds - 1);
      const hw::PrefillAttentionShape prefill{hw::Precision::kBf16, 1, context, 0, 32, 8};
      errors["prefill"].push_back(
          fitted.prefill_attention(prefill).seconds / truth.prefill_attention(prefill).seconds - 1);
    }
    errors["elementwise"].push_back(
        fitted.elementwise({m * 10000}).seconds / truth.elementwise({m * 10000}).seconds - 1);
  }
  for (auto& [name, values] : errors) {
    for (double& value : values) value = std::abs(value);
    EXPECT_LT(median_of(values), 0.03) << name;
    EXPECT_LT(*std::max_element(values.begin(), values.end()), 0.1) << name;
  }
  for (const char* family : {"gemm_bf16", "decode_attention_bf16", "elementwise"}) {
    const auto bandwidth = [&](const hw::Rates& from) {
      return std::ranges::find(from.family(family).rates, "bandwidth", &hw::Rate::name)->value;
    };
    EXPECT_NEAR(bandwidth(rates) / bandwidth(known_rates("known")), 1, 0.03) << family;
  }
}

TEST(LackingFamilies, ComeFromTheDataSheetAndAreNamed) {
  const hw::GpuSpec gpu = described("known");
  hw::Rates rates = known_rates("known");
  std::erase_if(rates.families, [](const hw::FamilyRates& f) {
    return f.name.starts_with("moe") || f.name.starts_with("all_") || f.name.starts_with("reduce") ||
           f.name.ends_with("fp8");
  });
  const hw::FittedTimes fitted(gpu, rates);
  const hw::RooflineTimes sheet(gpu);
  const hw::MoeShape experts{hw::Precision::kBf16, 64, 4096, 14336, 2, 8};
  const hw::CollectiveShape message{hw::Collective::kAllReduce, 2, 1 << 20};
  const hw::GemmShape product{hw::Precision::kFp8, 64, 4096, 4096};
  EXPECT_EQ(fitted.moe(experts, kCold).seconds, sheet.moe(experts, kCold).seconds);
  EXPECT_EQ(fitted.moe(experts, kCold).confidence, hw::Confidence::kEstimated);
  EXPECT_EQ(fitted.collective(message).seconds, sheet.collective(message).seconds);
  EXPECT_EQ(fitted.gemm(product, kCold).seconds, sheet.gemm(product, kCold).seconds);
  for (const std::string& outside :
       {fitted.outside_range(experts), fitted.outside_range(message), fitted.outside_range(product)}) {
    EXPECT_THAT(outside, HasSubstr("not measured on this GPU"));
  }
  // Without what every step needs there is no model.
  std::erase_if(rates.families, [](const hw::FamilyRates& f) { return f.name == "elementwise"; });
  EXPECT_THROW(hw::FittedTimes(gpu, rates), hw::SpecError);
}

// Everything that can be wrong with a run is said.

std::string edited(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

class MeasurementWarnings : public testing::Test {
 protected:
  MeasurementWarnings() {
    KnownGpu device(described("known"), known_rates("known"));
    text_ = measured_text(device, 200);
  }
  [[nodiscard]] std::vector<std::string> warnings(const std::string& from, const std::string& to) const {
    return parse_measurement(edited(text_, from, to), "m", "known").warnings;
  }
  [[nodiscard]] std::string refusal(const std::string& from, const std::string& to) const {
    try {
      (void)parse_measurement(edited(text_, from, to), "m", "known");
    } catch (const CalibrateError& error) {
      return error.what();
    }
    return "";
  }
  std::string text_;
};

TEST_F(MeasurementWarnings, NameWhatWasWrong) {
  EXPECT_THAT(warnings("implementation: \"cudnn\"", "implementation: \"cudnn\" throttle: \"thermal\""),
              Contains(HasSubstr("throttled: 1 of 200 rows ran below the maximum clock (thermal)")));
  EXPECT_THAT(warnings("us_max: 5.005", "us_max: 6"),
              Contains(HasSubstr("noisy: the repeats of 1 of 200 rows")));
  EXPECT_THAT(warnings("all shapes measured", "interrupted"),
              Contains("ended early: 200 of 200 shapes (interrupted)"));
  EXPECT_THAT(warnings("num_gpus: 1", "num_gpus: 1 power_limit_w: 350 default_power_limit_w: 700"),
              Contains("power limit: 350 W where the default is 700 W"));
  KnownGpu device(described("known"), known_rates("known"));
  device.implementation = "own";
  EXPECT_THAT(parse_measurement(measured_text(device, 200), "m", "known").warnings,
              Contains(HasSubstr("our own kernel, for want of cuDNN")));
}

TEST_F(MeasurementWarnings, WhatIsNoMeasurementIsRefused) {
  EXPECT_THAT(refusal("us: 5 ", "us: -5 "), HasSubstr("a positive time within its spread is needed"));
  EXPECT_THAT(refusal("us: 5 ", "us: nan "), HasSubstr("a positive time within its spread is needed"));
  EXPECT_THAT(refusal("gemm { precision: \"bf16\"", "gemm { precision: \"fp16\""),
              HasSubstr("'fp16' is no known type; known are bf16, fp8, int4"));
  EXPECT_THAT(refusal("gemm { precision: \"bf16\" m: ", "gemm { precision: \"bf16\" m: -"),
              HasSubstr("is no size"));
  EXPECT_THAT(refusal("sm_count: 132 ", ""), HasSubstr("sm_count"));
  EXPECT_THAT(refusal("NVIDIA Known", "NVIDIA \\\"Known"), HasSubstr("may hold no quotes"));
  text_.resize(text_.size() / 2);  // Cut in the middle of a row, or of its shape.
  text_.resize(text_.rfind("us_max"));
  EXPECT_THAT(refusal("date", "date"), HasSubstr("is this a measurement of gpu_microbench?"));
}

// The whole way: file in, description and rates out, a step time from both.

TEST(FitOps, WritesAGpuThatSimulateTakes) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "fit_ops";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  KnownGpu device(described("my-gpu"), known_rates("my-gpu"));
  std::ofstream(folder / "my-gpu.measurement.textproto") << measured_text(device, 400);
  EXPECT_EQ(run_fit_ops({(folder / "my-gpu.measurement.textproto").string(), "--starts", "1"}), 0);

  hw::Deployment deployment;
  deployment.gpu = hw::load_gpu((folder / "my-gpu.textproto").string());
  EXPECT_EQ(deployment.gpu.name, "my-gpu");
  deployment.model = hw::load_model("llama-3.1-8b");
  const std::string provenance = hw::make_step_time_model(deployment)->provenance();
  EXPECT_THAT(provenance, HasSubstr("gpu_microbench on NVIDIA Known, driver 580.1, CUDA 13.0, 2026-12-01"));
  // One GPU, and no experts: said, not hidden.
  EXPECT_THAT(provenance, HasSubstr("not measured, estimated from the data sheet: "));
  EXPECT_THAT(provenance, HasSubstr("moe_bf16"));
  EXPECT_THAT(provenance, HasSubstr("all_reduce"));
  EXPECT_THAT(provenance, Not(HasSubstr(folder.string())));

  // What fit-ops wrote it writes again; what it did not it leaves alone.
  EXPECT_EQ(run_fit_ops({(folder / "my-gpu.measurement.textproto").string(), "--starts", "1"}), 0);
  std::ofstream(folder / "my-gpu.rates.textproto") << "# my own\n";
  EXPECT_THROW(run_fit_ops({(folder / "my-gpu.measurement.textproto").string(), "--starts", "1"}),
               CalibrateError);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kneepoint::calibrate
