// The clients of measured servers, request by request.
#include "calibrate/serving_clients.h"

#include <gtest/gtest.h>

#include <vector>

namespace kneepoint::calibrate {
namespace {

std::vector<sim::Send> all_due(sim::Client& client, sim::SimTime now) {
  std::vector<sim::Send> sends;
  sim::Send send;
  while (client.next_send_time() <= now && client.next_send(now, send)) {
    sends.push_back(send);
  }
  return sends;
}

TEST(ServingClients, AClosedLoopKeepsItsConcurrency) {
  const auto client = make_client(ClosedLoopClient{.input_tokens = 100, .output_tokens = 50, .concurrency = 3, .requests = 5}, 1);
  const auto first = all_due(*client, sim::SimTime{});
  ASSERT_EQ(first.size(), 3U) << "the first ones all at once";
  EXPECT_EQ(first[2].record.prompt_tokens, 100) << "min_fraction 1: fixed lengths";
  EXPECT_EQ(client->next_send_time(), sim::kNever);
  const sim::SimTime done{std::chrono::seconds(2)};
  client->on_finished({.index = 1, .session = traces::kNoSession, .time = done});
  EXPECT_EQ(client->next_send_time(), done) << "no jitter: at once";
  EXPECT_EQ(all_due(*client, done).size(), 1U);
}

TEST(ServingClients, JitterIsWithinItsBounds) {
  const auto client = make_client(
      ClosedLoopClient{.input_tokens = 1, .output_tokens = 1, .concurrency = 1, .requests = 1000, .jitter_ms = 20}, 1);
  sim::SimTime now{};
  double sum_ms = 0;
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(all_due(*client, now).size(), 1U);
    client->on_finished({.index = 0, .session = traces::kNoSession, .time = now});
    const double ms = 1e3 * sim::to_seconds(client->next_send_time() - now);
    ASSERT_GE(ms, 0);
    ASSERT_LT(ms, 20);
    sum_ms += ms;
    now = client->next_send_time();
  }
  // Uniform on [0, 20): mean 10, standard error 20 / sqrt(12 * 500) = 0.26.
  EXPECT_NEAR(sum_ms / 500, 10, 4 * 0.26);
}

TEST(ServingClients, LengthsAreUniformAndInputsComeFirst) {
  ClosedLoopClient few{.input_tokens = 1000, .output_tokens = 40, .concurrency = 400, .requests = 400, .min_fraction = 0.8};
  ClosedLoopClient longer = few;
  longer.output_tokens = 4000;
  const auto a = make_client(few, 7), b = make_client(longer, 7), other = make_client(few, 8);
  const auto sent = all_due(*a, sim::SimTime{}), sent_b = all_due(*b, sim::SimTime{}), sent_c = all_due(*other, sim::SimTime{});
  double sum = 0;
  int differing = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto& record = sent[i].record;
    ASSERT_GE(record.prompt_tokens, 800);
    ASSERT_LE(record.prompt_tokens, 1000);
    ASSERT_GE(record.output_tokens, 32);
    ASSERT_LE(record.output_tokens, 40);
    ASSERT_EQ(record.prompt_tokens, sent_b[i].record.prompt_tokens) << "drawn before any output length";
    differing += record.prompt_tokens != sent_c[i].record.prompt_tokens;
    sum += static_cast<double>(record.prompt_tokens);
  }
  // Uniform on 800..1000: mean 900, standard deviation 58, of the mean of 400: 2.9.
  EXPECT_NEAR(sum / 400, 900, 4 * 2.9);
  EXPECT_GT(differing, 300) << "another seed, other lengths";
}

TEST(ServingClients, AnOpenLoopSendsAtConstantRatesAndGoesRoundItsPrompts) {
  const OpenLoopClient stages{.rates_per_s = {2, 5}, .stage_s = 3, .stage = -1, .shared_prefix_tokens = 16,
                              .prompt_tokens = 40, .output_tokens = 8, .distinct_prompts = 4};
  EXPECT_EQ(requests_of_stage(stages, 0), 6U);
  EXPECT_EQ(requests_of_stage(stages, 1), 15U);
  const auto client = make_client(stages);
  const auto sends = all_due(*client, sim::SimTime{std::chrono::seconds(100)});
  ASSERT_EQ(sends.size(), 21U);
  EXPECT_DOUBLE_EQ(sim::to_seconds(sends[5].arrival - sim::SimTime{}), 2.5);
  EXPECT_DOUBLE_EQ(sim::to_seconds(sends[6].arrival - sim::SimTime{}), 3.0) << "the second stage begins";
  EXPECT_DOUBLE_EQ(sim::to_seconds(sends[7].arrival - sim::SimTime{}), 3.2);
  EXPECT_EQ(sends[0].record.prompt, sends[4].record.prompt) << "round robin over four";
  EXPECT_EQ(sends[0].record.prompt[0], sends[1].record.prompt[0]) << "one system prompt for all";
  EXPECT_NE(sends[0].record.prompt[1].content, sends[1].record.prompt[1].content);
  EXPECT_EQ(sends[0].record.prompt[0].length + sends[0].record.prompt[1].length, 40);
}

}  // namespace
}  // namespace kneepoint::calibrate
