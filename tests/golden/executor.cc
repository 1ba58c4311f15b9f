#include "tests/golden/executor.h"

#include <algorithm>

namespace kneepoint::golden {

Executor::Executor(const Script& script) : script_(script), sequences_(script.names.size()) {
  for (const ScriptRequest& request : script.requests) {
    Sequence& sequence = sequences_[request.request.id];
    sequence.script = &request;
    sequence.tokens = request.prompt;
    if (roots_.emplace(request.salt, num_nodes_).second) {
      ++num_nodes_;
    }
  }
}

engine::StepResult Executor::run(const std::vector<engine::ScheduledRequest>& step) {
  engine::StepResult result;
  for (const engine::ScheduledRequest& share : step) {
    Sequence& sequence = sequences_[share.id];
    engine::SampledTokens sampled{.id = share.id, .num_tokens = num_sampled(sequence, share)};
    for (std::int32_t i = 0; i < sampled.num_tokens; ++i) {
      const Token token = next_token(sequence);
      sequence.tokens.push_back(token);
      if (sampled.stop_at < 0 && stops(*sequence.script, token)) {
        sampled.stop_at = i;
      }
    }
    if (sampled.num_tokens != (share.samples ? 1 : 0) || sampled.stop_at >= 0) {
      result.exceptions.push_back(sampled);
    }
  }
  return result;
}

std::int32_t Executor::num_sampled(Sequence& sequence, const engine::ScheduledRequest& share) const {
  const auto known = static_cast<std::int32_t>(sequence.tokens.size());
  if (share.num_computed_tokens + share.num_scheduled_tokens < known) {
    return 0;
  }
  if (share.num_draft_tokens == 0 || share.drafts_padded) {
    return 1;
  }
  const std::vector<std::int32_t>& accepted = sequence.script->accepted;
  if (accepted.empty()) {
    return share.num_draft_tokens + 1;
  }
  return std::min(share.num_draft_tokens, accepted[sequence.verifications++ % accepted.size()]) + 1;
}

Token Executor::next_token(const Sequence& sequence) {
  const std::size_t position = sequence.tokens.size() - sequence.script->prompt.size();
  const std::vector<Token>& outputs = sequence.script->outputs;
  return position < outputs.size() ? outputs[position] : next_generated_++;
}

bool Executor::stops(const ScriptRequest& request, Token token) const {
  const bool eos = !request.ignore_eos && token == script_.eos_token;
  return eos || std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end();
}

engine::BlockKey Executor::block_key(engine::RequestId id, std::int32_t index) {
  Sequence& sequence = sequences_[id];
  const auto block_size = static_cast<std::ptrdiff_t>(script_.config.block_size);
  while (std::ssize(sequence.prefixes) <= index) {
    const std::ptrdiff_t block = std::ssize(sequence.prefixes);
    const auto first = sequence.tokens.begin() + block * block_size;
    const std::uint64_t before = block == 0 ? roots_.at(sequence.script->salt) : sequence.prefixes.back();
    const auto [node, is_new] = nodes_.try_emplace({before, {first, first + block_size}}, num_nodes_);
    num_nodes_ += is_new ? 1 : 0;
    sequence.prefixes.push_back(node->second);
  }
  return {.high = 0, .low = sequence.prefixes[static_cast<std::size_t>(index)]};
}

}  // namespace kneepoint::golden
