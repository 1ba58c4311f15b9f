// Steps worked by hand. tests/hw/round_times.h has the model of two layers and the
// operators' times; a layer of it with one sequence at context c takes
//
//     norm 1, QKV 10, rope 1, attention 20 + c/1000, projection 10,
//     norm 1, gate and up 10, activation 1, down 10          = 64 us + c ns
//
// and around the layers embedding 1, norm 1, LM head 10, sampler 1 = 13 us.
#include "hw/roofline_step.h"

#include <gtest/gtest.h>

#include "tests/hw/round_times.h"

namespace kneepoint::hw {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

StepShape decode_step(std::int64_t count, std::int64_t context) {
  StepShape step;
  step.decodes = {count, count * context, context, {}};
  step.num_tokens = step.padded_tokens = step.num_sampled = count;
  return step;
}

StepShape chunk_step(std::span<const Chunk> chunks) {
  StepShape step;
  step.chunks = chunks;
  for (const Chunk& chunk : chunks) step.num_tokens += chunk.num_tokens;
  step.padded_tokens = step.num_tokens;
  step.num_sampled = static_cast<std::int64_t>(chunks.size());
  return step;
}

nanoseconds device(const Deployment& deployment, const StepShape& step, const ServerCosts& costs = {}) {
  return RooflineStep(deployment, std::make_unique<RoundTimes>(), costs).step_time(step).device;
}

TEST(RooflineStepTest, UnloadedDecode) {
  // 2 * (64 + 1) + 13 = 143 us.
  EXPECT_EQ(device(round_deployment(), decode_step(1, 1000)), microseconds(143));
}

TEST(RooflineStepTest, ServerCostsComeOnTop) {
  // 143 + 100 a step + 2 a layer + 3 sequences at 5; contexts 3 * 1000 cost 2 * 3 in place of 2 * 1.
  const ServerCosts costs{.device_step_s = 100e-6, .device_sequence_s = 5e-6, .device_layer_s = 2e-6};
  EXPECT_EQ(device(round_deployment(), decode_step(3, 1000), costs), microseconds(143 + 100 + 4 + 15 + 4));
}

TEST(RooflineStepTest, TwoGpusAddFiveKindsOfExchange) {
  // All-reduce after embedding, attention and MLP, all-gather of logits: 5 * (1 + 2 + 2 + 1) = 30 us.
  Deployment deployment = round_deployment();
  deployment.tensor_parallel_size = 2;
  EXPECT_EQ(device(deployment, decode_step(1, 1000)), microseconds(143 + 30));
}

TEST(RooflineStepTest, UnloadedPrefill) {
  // Attention of 100 tokens alone: 50 + 100 us. 2 * (44 + 150) + 13 = 401.
  const Chunk chunk{100, 0};
  EXPECT_EQ(device(round_deployment(), chunk_step({&chunk, 1})), microseconds(401));
}

TEST(RooflineStepTest, ChunksShareOneLaunch) {
  // In a batch of 32 like it a chunk of n takes (50 + 32 n) / 32 = n + 1.5625 us,
  // alone n + 50. So 100 and 200 tokens take 101.5625 + 201.5625 + 48.4375 = 351.5625.
  const Chunk chunks[] = {{100, 0}, {200, 0}};
  EXPECT_EQ(device(round_deployment(), chunk_step(chunks)), nanoseconds(2 * (44000 + 351562) + 1 + 13000));
}

TEST(RooflineStepTest, FewTokensAttendAsADecode) {
  // 4 drafts and a token over 995: a decode at context 1000 with five times the heads.
  const Chunk chunk{5, 995};
  EXPECT_EQ(device(round_deployment(), chunk_step({&chunk, 1})), microseconds(143));
}

TEST(RooflineStepTest, LaunchingKernelByKernelSetsThePaceOfSmallSteps) {
  // 10 operators in each of 2 layers (both attentions), 4 around: 24 kernels of 20 us
  // are 480 us against 143; the late start of 30 us comes on top of either.
  const ServerCosts costs{.unrecorded_step_s = 30e-6, .host_kernel_s = 20e-6};
  StepShape step = decode_step(1, 1000);
  EXPECT_EQ(device(round_deployment(), step, costs), microseconds(143));
  step.graph_mode = GraphMode::kNone;
  EXPECT_EQ(device(round_deployment(), step, costs), microseconds(480 + 30));
}

TEST(RooflineStepTest, DecodesBesideAPrefillTakeTheirFactor) {
  // 2 layers: 10 us more each at factor 1.5 of a decode attention of 20 us.
  const Chunk chunk{100, 0};
  StepShape step = chunk_step({&chunk, 1});
  step.decodes = {1, 0, 0, {}};
  step.num_tokens = step.padded_tokens = 101;
  EXPECT_EQ(device(round_deployment(), step, {.mixed_attention = 1.5}) - device(round_deployment(), step, {}),
            microseconds(20));
}

TEST(RooflineStepTest, PipelineHandsOnAfterTheSlowestStage) {
  // Both stages together 143 + a send of 5; a stage alone one layer less: 148 - 65 = 83.
  Deployment deployment = round_deployment();
  deployment.pipeline_parallel_size = 2;
  const RooflineStep model(deployment, std::make_unique<RoundTimes>(), {});
  const StepTime time = model.step_time(decode_step(1, 1000));
  EXPECT_EQ(time.device, microseconds(83));
  EXPECT_EQ(time.pipeline, microseconds(65));
}

TEST(RooflineStepTest, ADraftHeadRunsOnceForEachDraft) {
  // One layer and what is around it: 65 + 13 = 78 us, three times.
  Deployment deployment = round_deployment();
  const nanoseconds without = device(deployment, decode_step(1, 1000));
  deployment.num_speculative_tokens = 3;
  deployment.drafter = Drafter::kHead;
  EXPECT_EQ(device(deployment, decode_step(1, 1000)) - without, microseconds(3 * 78));
  deployment.drafter = Drafter::kLookUp;
  EXPECT_EQ(device(deployment, decode_step(1, 1000)), without);
}

TEST(RooflineStepTest, HostAndFrontEndAreTheServers) {
  const ServerCosts costs{.host_step_s = 1e-3,
                          .host_sequence_s = 10e-6,
                          .arrival_s = 2e-3,
                          .output_s = 3e-3,
                          .output_per_request_s = 4e-6};
  const RooflineStep model(round_deployment(), std::make_unique<RoundTimes>(), costs);
  EXPECT_EQ(model.step_time(decode_step(7, 10)).host, microseconds(1070));
  EXPECT_EQ(model.front_end().arrival, microseconds(2000));
  EXPECT_EQ(model.front_end().output, microseconds(3000));
  EXPECT_EQ(model.front_end().output_per_request, microseconds(4));
}

TEST(RooflineStepTest, SaysWhichOperatorLeavesTheMeasuredRange) {
  const RooflineStep model(round_deployment(), std::make_unique<RoundTimes>(), {});
  EXPECT_TRUE(model.extrapolations(decode_step(1000, 10)).empty());
  const std::vector<Extrapolation> found = model.extrapolations(decode_step(1001, 10));
  ASSERT_EQ(found.size(), 5U);  // QKV, projection, gate and up, down, LM head.
  EXPECT_EQ(found[0].what, "QKV: m");
  EXPECT_EQ(found[0].shape, "m = 1001, measured 1 to 1000");
}

}  // namespace
}  // namespace kneepoint::hw
