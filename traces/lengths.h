// How long prompts and answers are.
//
// A model is a distribution given by its quantiles: the length that a share u of
// all lengths stays below. One uniform number makes one length, so two lengths
// are made to depend on one another by drawing their two numbers together: by a
// Gaussian copula of a given correlation, or, from a trace, by drawing its pairs,
// which keeps the trace's own copula (P. Deheuvels, 1979).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

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

/// A model by its text; throws TraceError for any other.
///
///     1024                 uniform_lengths(1024, ratio)
///     uniform:LOW:HIGH     integers, both ends included
///     lognormal:MEAN:CV    rounded, at least 1
///     zipf:EXPONENT:MAX    k with weight k^-EXPONENT, k = 1 .. MAX
[[nodiscard]] std::unique_ptr<LengthModel> parse_lengths(std::string_view text, double ratio);

/// Pairs of a prompt's and an answer's length, one after another.
class LengthPairs {
 public:
  virtual ~LengthPairs() = default;
  struct Pair {
    std::int64_t prompt = 0;
    std::int64_t output = 0;
  };
  [[nodiscard]] virtual Pair next() = 0;
};

/// Two models, their numbers from the streams "prompt-lengths" and
/// "output-lengths", tied by a Gaussian copula of `correlation` in (-1, 1).
[[nodiscard]] std::unique_ptr<LengthPairs> model_pairs(std::unique_ptr<LengthModel> prompt,
                                                       std::unique_ptr<LengthModel> output,
                                                       double correlation, std::uint64_t seed);

/// Pairs drawn with replacement from a trace (16 bytes of memory a request).
[[nodiscard]] std::unique_ptr<LengthPairs> empirical_pairs(const std::filesystem::path& trace,
                                                           std::uint64_t seed);

}  // namespace kneepoint::traces
