// GPUs as files: the bundled ones agree with their data sheets, a user's own works
// the same, and what is wrong with a file is said in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "hw/gpu_spec.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

struct GpuCase {
  const char* name;
  double nominal_memory_bytes;
  double bandwidth_bytes_per_s;
  double bf16_flops_per_s;
  double fp8_flops_per_s;
  std::int64_t num_sms;
  double link_bytes_per_s;
  bool nvlink;
};

// Data sheets, dense peaks; the A100 has no fp8 and computes it in bf16.
const GpuCase kGpus[] = {
    {"a100", 80e9, 2039e9, 312e12, 312e12, 108, 300e9, true},
    {"h100", 80e9, 3350e9, 989e12, 1979e12, 132, 450e9, true},
    {"h200", 141e9, 4800e9, 989e12, 1979e12, 132, 450e9, true},
    {"l40s", 48e9, 864e9, 362e12, 733e12, 142, 32e9, false},
    {"rtx-pro-6000", 96e9, 1792e9, 503.8e12, 1007.6e12, 188, 64e9, false},
};

TEST(Gpus, AgreeWithTheirDataSheets) {
  ASSERT_EQ(gpu_names().size(), std::size(kGpus));
  for (const GpuCase& c : kGpus) {
    SCOPED_TRACE(c.name);
    const GpuSpec gpu = load_gpu(c.name);
    EXPECT_DOUBLE_EQ(gpu.nominal_memory_bytes, c.nominal_memory_bytes);
    EXPECT_DOUBLE_EQ(gpu.bandwidth_bytes_per_s, c.bandwidth_bytes_per_s);
    EXPECT_DOUBLE_EQ(gpu.bf16_flops_per_s, c.bf16_flops_per_s);
    EXPECT_DOUBLE_EQ(gpu.fp8_flops_per_s, c.fp8_flops_per_s);
    EXPECT_EQ(gpu.num_sms, c.num_sms);
    EXPECT_DOUBLE_EQ(gpu.link_bytes_per_s, c.link_bytes_per_s);
    EXPECT_EQ(gpu.nvlink, c.nvlink);
    EXPECT_FALSE(gpu.source.empty());
    // A label of 80 GB may hold 85.0e9 byte (79.2 GiB) or, with ECC, 47.7e9 of 48e9.
    EXPECT_GT(static_cast<double>(gpu.memory_bytes), 0.98 * gpu.nominal_memory_bytes);
    EXPECT_LT(static_cast<double>(gpu.memory_bytes), 1.08 * gpu.nominal_memory_bytes);
    EXPECT_GT(gpu.l2_bandwidth_bytes_per_s, gpu.bandwidth_bytes_per_s);
  }
}

TEST(Gpus, AreFoundInAnyCase) {
  EXPECT_EQ(load_gpu("H100").name, "h100");
}

std::string error_of(const std::string& name) {
  try {
    (void)load_gpu(name);
  } catch (const SpecError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Gpus, SuggestTheClosestName) {
  EXPECT_THAT(error_of("h10"), testing::HasSubstr("did you mean 'h100'?"));
  EXPECT_THAT(error_of("h200x"), testing::HasSubstr("did you mean 'h200'?"));
  EXPECT_THAT(error_of("nowhere.textproto"), testing::HasSubstr("nowhere.textproto: cannot be read"));
}

class GpuFile : public testing::Test {
 protected:
  // A made-up GPU of round numbers, with one text replaced.
  std::string written(const std::string& from = "", const std::string& to = "") {
    std::string text =
        "name: \"round\"\n"
        "nominal_memory { value: 10 unit: \"GB\" source: \"label\" }\n"
        "reported_memory { value: 1000 unit: \"MiB\" source: \"driver\" }\n"
        "memory_bandwidth { value: 1 unit: \"TB/s\" source: \"label\" }\n"
        "l2_size { value: 10 unit: \"MB\" source: \"label\" }\n"
        "l2_bandwidth { value: 2000 unit: \"GB/s\" source: \"label\" }\n"
        "bf16_peak { value: 100 unit: \"TFLOP/s\" source: \"label\" }\n"
        "sm_count { value: 10 unit: \"count\" source: \"label\" }\n"
        "boost_clock { value: 1000 unit: \"MHz\" source: \"label\" }\n"
        "link_bandwidth { value: 10 unit: \"GB/s\" source: \"label\" }\n"
        "link_latency { value: 3 unit: \"us\" source: \"label\" }\n";
    if (!from.empty()) {
      const std::size_t at = text.find(from);
      EXPECT_NE(at, std::string::npos) << from;
      text.replace(at, from.size(), to);
    }
    const auto path = std::filesystem::path(testing::TempDir()) / "kneepoint_gpu.textproto";
    std::ofstream(path) << text;
    return path.string();
  }
};

TEST_F(GpuFile, IsScaledToBaseUnitsOnce) {
  const GpuSpec gpu = load_gpu(written());
  EXPECT_EQ(gpu.name, "round");
  EXPECT_DOUBLE_EQ(gpu.nominal_memory_bytes, 10e9);
  EXPECT_EQ(gpu.memory_bytes, 1'048'576'000);
  EXPECT_DOUBLE_EQ(gpu.bandwidth_bytes_per_s, 1e12);
  EXPECT_DOUBLE_EQ(gpu.link_latency_s, 3e-6);
  EXPECT_DOUBLE_EQ(gpu.clock_hz, 1e9);
}

TEST_F(GpuFile, IsRefusedWithTheFieldNamed) {
  struct Case {
    const char* from;
    const char* to;
    const char* said;
  };
  const Case cases[] = {
      {"name: \"round\"", "", "field 'name' is missing"},
      {"value: 10 unit: \"GB\" source: \"label\"", "value: 10 unit: \"GB\"",
       "field 'nominal_memory' has no source"},
      {"unit: \"TB/s\"", "unit: \"GB\"", "field 'memory_bandwidth' has the unit 'GB'"},
      {"unit: \"us\"", "unit: \"\"", "field 'link_latency' has the unit ''"},
      {"value: 3 unit", "value: -3 unit", "field 'link_latency' is -3"},
      {"value: 100 unit", "value: inf unit", "field 'bf16_peak' is inf"},
      {"value: 100 unit", "value: nan unit", "field 'bf16_peak' is nan"},
      {"value: 10 unit: \"count\"", "value: 1e30 unit: \"count\"", "field 'sm_count' is 1e+30"},
      {"value: 10 unit: \"count\"", "value: 10.5 unit: \"count\"", "field 'sm_count' is 10.5"},
      {"value: 1000 unit: \"MiB\"", "value: 1e300 unit: \"MiB\"", "field 'reported_memory' is 1e+300"},
      {"sm_count", "sm_cuont", "sm_cuont"},
      {"value: 100 unit", "value: many unit", "line 7"},
  };
  for (const Case& c : cases) {
    const std::string said = error_of(written(c.from, c.to));
    EXPECT_THAT(said, testing::HasSubstr(c.said));
    EXPECT_THAT(said, testing::HasSubstr("kneepoint_gpu.textproto"));
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace kneepoint::hw
