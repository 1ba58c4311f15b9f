#include "tests/laws/engine/random_workload.h"

#include <algorithm>
#include <boost/random/uniform_int_distribution.hpp>

namespace kneepoint::laws {

using engine::RequestId;
using engine::SpeculativeMethod;

std::int64_t Dice::between(std::int64_t low, std::int64_t high) {
  if (bytes_.size() >= 2) {
    const std::int64_t number = bytes_[0] + 256 * std::int64_t{bytes_[1]};
    bytes_ = bytes_.subspan(2);
    return low + number % (high - low + 1);
  }
  return boost::random::uniform_int_distribution<std::int64_t>(low, high)(engine_);
}

namespace {

void choose_drafts(engine::SchedulerConfig& config, Dice& dice) {
  if (dice.one_in(2)) {
    return;
  }
  config.spec_method = dice.pick<SpeculativeMethod>(
      {SpeculativeMethod::kNgram, SpeculativeMethod::kEagle, SpeculativeMethod::kDraftModel});
  config.num_speculative_tokens = dice.between(1, 4);
  config.disable_eagle_block_drop = false;
  if (config.spec_method == SpeculativeMethod::kNgram) {
    config.async_scheduling = false;
  }
}

void choose_window(engine::SchedulerConfig& config, Dice& dice) {
  if (!dice.one_in(3)) {
    return;
  }
  config.sliding_window = dice.between(1, 30);
  config.prefix_cache_retention_interval = dice.between(0, 4) * config.block_size;
  if (dice.one_in(3)) {
    config.prefix_cache_retention_interval.reset();
  }
}

void choose_pipeline(engine::SchedulerConfig& config, Dice& dice) {
  config.async_scheduling = dice.one_in(2);
  config.use_v2_model_runner = dice.one_in(2);
  config.pipeline_parallel_size = dice.one_in(3) ? dice.between(2, 3) : 1;
  if (dice.one_in(6)) {
    config.depth = dice.between(1, 4);
  }
}

}  // namespace

engine::SchedulerConfig random_config(Dice& dice) {
  engine::SchedulerConfig config;
  config.block_size = dice.pick<std::int64_t>({1, 2, 4, 5, 8});
  config.max_model_len = dice.between(12, 64);
  config.enable_chunked_prefill = !dice.one_in(4);
  const std::int64_t least = config.enable_chunked_prefill ? 4 : config.max_model_len;
  config.max_num_batched_tokens = least + dice.between(0, 40);
  if (dice.one_in(4)) {
    config.max_num_scheduled_tokens = dice.between(1, config.max_num_batched_tokens);
  }
  config.max_num_seqs = dice.between(1, 8);
  if (dice.one_in(4)) {
    config.max_num_active_seqs = dice.between(1, config.max_num_seqs);
  }
  if (dice.one_in(3)) {
    config.long_prefill_token_threshold = dice.between(1, 12);
    config.long_prefill_token_threshold_adaptive = dice.one_in(2);
  }
  config.prefill_schedule_interval = dice.one_in(3) ? dice.between(2, 5) : 1;
  config.policy = dice.one_in(3) ? engine::SchedulingPolicy::kPriority : engine::SchedulingPolicy::kFcfs;
  config.watermark = dice.pick<double>({0.0, 0.0, 0.1, 0.3});
  config.scheduler_reserve_full_isl = !dice.one_in(3);
  config.max_loras = dice.between(1, 2);
  // One request at full length always fits; how many more do decides how often somebody is preempted.
  const std::int64_t one = (config.max_model_len + config.block_size - 1) / config.block_size + 1;
  config.num_blocks = one + dice.between(0, 3 * one);
  config.enable_prefix_caching = !dice.one_in(3);
  choose_pipeline(config, dice);
  choose_drafts(config, dice);
  choose_window(config, dice);
  return config;
}

RandomWorkload::RandomWorkload(const engine::SchedulerConfig& config, Dice& dice)
    : config_(config), dice_(dice) {
  std::int64_t turn = 0;
  for (std::int64_t left = dice.between(3, 16); left > 0; --left) {
    turn += dice.one_in(2) ? 0 : dice.between(1, 8);
    add_request(turn);
  }
  std::ranges::stable_sort(events_, {}, &Event::turn);
}

void RandomWorkload::add_request(std::int64_t turn) {
  Event event;
  event.turn = turn;
  engine::NewRequest& request = event.request;
  do {
    request.id = static_cast<RequestId>(dice_.between(0, 4'000'000'000));
  } while (sequences_.contains(request.id));
  request.prompt_tokens = static_cast<std::int32_t>(dice_.between(1, config_.max_model_len - 1));
  request.max_tokens = static_cast<std::int32_t>(dice_.between(1, 30));
  request.priority = static_cast<std::int32_t>(dice_.between(0, 2));
  request.arrival = dice_.one_in(3) ? dice_.between(0, 3) : turn;
  request.adapter = dice_.one_in(3) ? static_cast<engine::AdapterId>(dice_.between(1, 3)) : 0;

  Sequence& sequence = sequences_[request.id];
  sequence.story = 1 + dice_.between(0, 2) + 10 * request.adapter;
  const std::int64_t fork = dice_.one_in(2) ? dice_.between(0, request.prompt_tokens) : request.prompt_tokens;
  while (std::ssize(sequence.tokens) < request.prompt_tokens) {
    sequence.story = std::ssize(sequence.tokens) == fork ? 0 : sequence.story;
    sequence.tokens.push_back(next_token(sequence));
  }
  events_.push_back(event);
  if (dice_.one_in(10)) {
    event.aborts = true;
    event.turn += dice_.between(0, 30);
    events_.push_back(event);
  }
}

std::int64_t RandomWorkload::next_token(const Sequence& sequence) {
  return sequence.story == 0 ? next_own_token_++ : 1000 * sequence.story + std::ssize(sequence.tokens);
}

bool RandomWorkload::reaches_end(const engine::ScheduledRequest& share) const {
  return share.num_computed_tokens + share.num_scheduled_tokens >= std::ssize(sequences_.at(share.id).tokens);
}

engine::StepResult RandomWorkload::run(const std::vector<engine::ScheduledRequest>& step) {
  engine::StepResult result;
  for (const engine::ScheduledRequest& share : step) {
    engine::SampledTokens sampled{.id = share.id, .num_tokens = reaches_end(share) ? 1 : 0};
    if (sampled.num_tokens > 0 && !share.drafts_padded) {
      sampled.num_tokens += static_cast<std::int32_t>(dice_.between(0, share.num_draft_tokens));
    }
    if (sampled.num_tokens > 0 && dice_.one_in(25)) {
      sampled.stop_at = static_cast<std::int32_t>(dice_.between(0, sampled.num_tokens - 1));
    }
    Sequence& sequence = sequences_.at(share.id);
    for (std::int32_t i = 0; i < sampled.num_tokens; ++i) {
      sequence.tokens.push_back(next_token(sequence));
    }
    if (sampled.num_tokens != (share.samples ? 1 : 0) || sampled.stop_at >= 0) {
      result.exceptions.push_back(sampled);
    }
  }
  std::ranges::reverse(result.exceptions);  // Any order will do.
  return result;
}

engine::BlockKey RandomWorkload::block_key(RequestId id, std::int32_t index) {
  Sequence& sequence = sequences_.at(id);
  while (std::ssize(sequence.prefixes) <= index) {
    const std::uint64_t before = sequence.prefixes.empty() ? 0 : sequence.prefixes.back();
    const auto first = sequence.tokens.begin() + std::ssize(sequence.prefixes) * config_.block_size;
    const auto entry =
        nodes_.try_emplace({before, {first, first + config_.block_size}}, nodes_.size() + 1).first;
    sequence.prefixes.push_back(entry->second);
  }
  return {.high = sequence.prefixes[static_cast<std::size_t>(index)], .low = 1};
}

}  // namespace kneepoint::laws
