// The executor that the recordings assume: it samples what the script says.
//
// It stands for the GPU, and keeps its own idea of how long each sequence is: a
// step samples for a request only if computed + scheduled tokens reach the end
// that the executor knows. So it also checks the engine, which has to know
// beforehand whether a step samples.
//
// It is the source of block keys too, as only it has tokens: a prefix is named by
// its node in a tree of blocks, so equal keys mean equal tokens, exactly.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/block_keys.h"
#include "engine/step_plan.h"
#include "tests/golden/recorded_case.h"

namespace kneepoint::golden {

class Executor final : public engine::BlockKeySource {
 public:
  /// Before  `script` outlives the executor.
  explicit Executor(const Script& script);

  /// What the step samples, as the engine wants to hear it.
  [[nodiscard]] engine::StepResult run(const std::vector<engine::ScheduledRequest>& step);

  [[nodiscard]] engine::BlockKey block_key(engine::RequestId id, std::int32_t index) override;

 private:
  struct Sequence {
    const ScriptRequest* script = nullptr;
    std::vector<Token> tokens;            // Prompt and all that was sampled.
    std::vector<std::uint64_t> prefixes;  // Tree node of each full block named so far.
    std::size_t verifications = 0;
  };

  [[nodiscard]] std::int32_t num_sampled(Sequence& sequence, const engine::ScheduledRequest& share) const;
  [[nodiscard]] Token next_token(const Sequence& sequence);
  [[nodiscard]] bool stops(const ScriptRequest& request, Token token) const;

  const Script& script_;
  std::vector<Sequence> sequences_;  // By RequestId.
  Token next_generated_ = kFirstGeneratedToken;
  std::map<std::string, std::uint64_t> roots_;  // By salt.
  std::map<std::pair<std::uint64_t, std::vector<Token>>, std::uint64_t> nodes_;
  std::uint64_t num_nodes_ = 0;
};

}  // namespace kneepoint::golden
