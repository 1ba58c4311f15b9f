// A word out of a few, as flags take it.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hw/closest_name.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {

template <typename Value>
struct Choice {
  std::string_view word;
  Value value;
};

/// The value of `word`. Throws UsageError listing the known words, the closest one
/// suggested; `where` is what the message opens with: "--format".
template <typename Value, std::size_t N>
[[nodiscard]] Value choose(std::string_view where, const std::string& word,
                           const std::array<Choice<Value>, N>& choices) {
  std::vector<std::string> known;
  for (const Choice<Value>& choice : choices) {
    if (word == choice.word) {
      return choice.value;
    }
    known.emplace_back(choice.word);
  }
  const std::string closest = hw::closest_name(word, known);
  throw UsageError(fmt::format("{} '{}' is not known{}; known are {}", where, word,
                               closest.empty() ? "" : fmt::format(": did you mean '{}'?", closest),
                               fmt::join(known, ", ")));
}

}  // namespace kneepoint::sim
