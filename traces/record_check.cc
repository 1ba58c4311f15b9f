#include "traces/record_check.h"

#include <fmt/format.h>

#include <string_view>

namespace kneepoint::traces {
namespace {

std::string out_of_range(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high) {
  return fmt::format("{} is {}; it must lie in {}..{}", field, value, low, high);
}

std::string segments_problem(const TraceRecord& record) {
  if (record.prompt.size() > kMaxSegments) {
    return fmt::format("the prompt has {} segments; at most {} are allowed", record.prompt.size(),
                       kMaxSegments);
  }
  std::int64_t sum = 0;
  for (const PromptSegment& segment : record.prompt) {
    if (segment.content == 0) return "a prompt segment names content 0; contents are numbered from 1";
    if (segment.offset < 0 || segment.offset > kMaxTokens) {
      return out_of_range("the offset of a prompt segment", segment.offset, 0, kMaxTokens);
    }
    if (segment.length < 1 || segment.length > kMaxTokens) {
      return out_of_range("the length of a prompt segment", segment.length, 1, kMaxTokens);
    }
    sum += segment.length;
  }
  if (sum != record.prompt_tokens) {
    return fmt::format("the prompt's segments hold {} tokens but prompt_tokens is {}", sum,
                       record.prompt_tokens);
  }
  return {};
}

// The fields that most traces leave at their defaults.
std::string rare_problem(const TraceRecord& record) {
  if (record.max_tokens < 0 || record.max_tokens > kMaxTokens) {
    return out_of_range("max_tokens", record.max_tokens, 0, kMaxTokens);
  }
  if (record.max_tokens != 0 && record.max_tokens < record.output_tokens) {
    return fmt::format("max_tokens is {} but the answer has {} tokens", record.max_tokens,
                       record.output_tokens);
  }
  if (record.think_time.count() < 0 || record.think_time > kMaxTime) {
    return out_of_range("think_time in ns", record.think_time.count(), 0, kMaxTime.count());
  }
  if (record.after_previous && record.session == kNoSession) {
    return "after_previous is set but the record has no session";
  }
  return {};
}

}  // namespace

std::string record_problem(const TraceRecord& record) {
  if (record.arrival.count() < 0 || record.arrival > kMaxTime) {
    return out_of_range("arrival in ns", record.arrival.count(), 0, kMaxTime.count());
  }
  if (record.prompt_tokens < 1 || record.prompt_tokens > kMaxTokens) {
    return out_of_range("prompt_tokens", record.prompt_tokens, 1, kMaxTokens);
  }
  if (record.output_tokens < 1 || record.output_tokens > kMaxTokens) {
    return out_of_range("output_tokens", record.output_tokens, 1, kMaxTokens);
  }
  if (record.max_tokens != 0 || record.think_time.count() != 0 || record.after_previous) {
    if (std::string problem = rare_problem(record); !problem.empty()) return problem;
  }
  return record.prompt.empty() ? std::string() : segments_problem(record);
}

}  // namespace kneepoint::traces
