// The measured step model: one step worked by hand, and its file.
#include "hw/measured_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

Measured measured(double value) {
  return {value, value / 10, "worked by hand"};
}

MeasuredServer round_server() {
  MeasuredServer server;
  server.model = "m";
  server.machine = "cpu";
  server.release = "vLLM 0.32.0";
  server.source = "nowhere";
  server.base_s = measured(5e-3);
  server.prefill_token_s = measured(250e-6);
  server.attention_pair_s = measured(100e-9);
  server.sequences = {{2, measured(1e-3)}, {4, measured(3e-3)}};
  server.sequence_beyond_s = measured(500e-6);
  server.context_token_s = measured(1e-6);
  server.gap_base_s = measured(1e-3);
  server.gap_per_output_s = measured(100e-6);
  server.gap_with_prefill_s = measured(0.5e-3);
  server.arrival_s = measured(5e-3);
  server.output_s = {0, 0, "assumed: in arrival"};
  server.output_per_request_s = measured(25e-6);
  server.turnaround_s = measured(0.4e-3);
  server.max_prefill_tokens = 1024;
  server.max_sequences = 16;
  server.max_context_sum = 5000;
  server.max_chunk_context = 2000;
  server.correlations = {{"base", "prefill_token", -0.5}};
  server.speed_sd_per_run = 0.02;
  return server;
}

struct Case {
  const char* name;
  Decodes decodes;
  Chunk chunk;  // num_tokens 0: none.
  std::int64_t outputs_before;
  double elapsed_ms;
  double turnaround_ms;
  double host_ms;
};

// s(1) = 0.5, s(2) = 1, s(3) = 2, s(6) = 3 + 2 * 0.5 = 4 ms.
const Case kCases[] = {
    {"OneDecode", {.count = 1, .context_sum = 100}, {}, 1, 5 + 0.5 + 0.1, 1.1, 0},
    {"BetweenPoints", {.count = 3, .context_sum = 300}, {}, 3, 5 + 2 + 0.3, 1.3, 0},
    {"BeyondThePoints", {.count = 6, .context_sum = 600}, {}, 0, 5 + 4 + 0.6, 1.0, 0},
    // 10 tokens behind 20: 10 * 20 + 55 = 255 pairs of 0.1 us.
    {"ChunkAndDecodes", {.count = 3, .context_sum = 300}, {10, 20}, 2, 5 + 2.5 + 0.0255 + 2 + 0.3, 1.2, 0.5},
    // A prompt's last token alone is a single-token request that reads 33 tokens.
    {"ChunkOfOne", {.count = 1, .context_sum = 100}, {1, 32}, 0, 5 + 1 + 0.133, 1.0, 0},
};

class MeasuredStep : public testing::TestWithParam<Case> {};

TEST_P(MeasuredStep, TakesTheWorkedTime) {
  const Case& c = GetParam();
  StepShape shape;
  shape.decodes = c.decodes;
  const std::array chunks{c.chunk};
  if (c.chunk.num_tokens > 0) shape.chunks = chunks;
  const auto model = make_measured_step_time_model(round_server());
  EXPECT_NEAR(static_cast<double>(model->step_time(shape).device.count()) * 1e-6, c.elapsed_ms, 1e-6);
  EXPECT_NEAR(static_cast<double>(model->step_time(shape).host.count()) * 1e-6, c.host_ms, 1e-6);
  EXPECT_NEAR(static_cast<double>(model->turnaround(c.outputs_before).count()) * 1e-6, c.turnaround_ms, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(, MeasuredStep, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(MeasuredStepRange, SaysWhereItWasNotMeasured) {
  const auto model = make_measured_step_time_model(round_server());
  StepShape inside;
  inside.decodes = {.count = 16, .context_sum = 5000};
  EXPECT_TRUE(model->extrapolations(inside).empty());
  StepShape outside;
  outside.decodes = {.count = 17, .context_sum = 5001};
  EXPECT_EQ(model->extrapolations(outside).size(), 2U);
}

std::string text_of(const MeasuredServer& server) {
  std::ostringstream out;
  write_server(server, out);
  return out.str();
}

std::filesystem::path file_of(const std::string& text) {
  const std::filesystem::path path = testing::TempDir() + "kneepoint_server.textproto";
  std::ofstream(path) << text;
  return path;
}

TEST(ServerFile, RoundTrips) {
  const MeasuredServer read = load_server(file_of(text_of(round_server())));
  EXPECT_EQ(text_of(read), text_of(round_server()));
  EXPECT_NEAR(read.attention_pair_s.value, 100e-9, 1e-16);
  EXPECT_NEAR(read.attention_pair_s.standard_error, 10e-9, 1e-16);
  EXPECT_EQ(read.sequences.size(), 2U);
  EXPECT_EQ(read.output_s.source, "assumed: in arrival");
}

struct Damage {
  const char* name;
  const char* from;
  const char* to;
  const char* named;
};

const Damage kDamages[] = {
    {"NoUnit", "unit: \"ms\"", "unit: \"\"", "unit ''"},
    {"OtherUnit", "unit: \"us\"", "unit: \"minutes\"", "unit 'minutes'"},
    {"Negative", "value: 5\n", "value: -5\n", "negative"},
    {"NotANumber", "value: 5\n", "value: nan\n", "not finite"},
    {"NoSource", "source: \"worked by hand\"", "source: \"\"", "has no source"},
    {"CountsFall", "count: 4", "count: 1", "counts must ascend"},
    {"UnknownField", "standard_error", "standard_eror", "is no measured server"},
};

class Damaged : public testing::TestWithParam<Damage> {};

TEST_P(Damaged, IsRefusedByName) {
  std::string text = text_of(round_server());
  const std::size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(GetParam().from).size(), GetParam().to);
  try {
    static_cast<void>(load_server(file_of(text)));
    FAIL() << "was read";
  } catch (const SpecError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().named));
  }
}

INSTANTIATE_TEST_SUITE_P(, Damaged, testing::ValuesIn(kDamages),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace kneepoint::hw
