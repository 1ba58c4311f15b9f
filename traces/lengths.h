// How long prompts and answers are.
//
// A model is a distribution given by its quantiles: the length that a share u of
// all lengths stays below. One uniform number makes one length, so two lengths
// are made to depend on one another by drawing their two numbers together.
#pragma once

#include <cstdint>
#include <memory>

namespace kneepoint::traces {

class LengthModel {
 public:
  virtual ~LengthModel() = default;
  /// Tokens, at least 1; never falls as u grows through [0, 1).
  [[nodiscard]] virtual std::int64_t quantile(double u) const = 0;
};

/// Integers uniform in [floor(mean (1 - ratio)), ceil(mean (1 + ratio))], at
/// least 1: the lengths `vllm bench serve --random-range-ratio` draws. Ratio 0
/// is fixed. Throws TraceError for a ratio outside [0, 1) or a mean out of range.
[[nodiscard]] std::unique_ptr<LengthModel> uniform_lengths(std::int64_t mean, double ratio);

}  // namespace kneepoint::traces
