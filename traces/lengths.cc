#include "traces/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "traces/exact_math.h"
#include "traces/random_stream.h"
#include "traces/record_check.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

class Uniform final : public LengthModel {
 public:
  Uniform(std::int64_t low, std::int64_t high) : low_(low), width_(static_cast<double>(high - low + 1)) {}

  [[nodiscard]] std::int64_t quantile(double u) const override {
    return low_ + static_cast<std::int64_t>(u * width_);
  }

 private:
  std::int64_t low_;
  double width_;
};

class Lognormal final : public LengthModel {
 public:
  Lognormal(double mean, double cv) {
    const double variance = exact_log(1 + cv * cv);
    sigma_ = std::sqrt(variance);
    mu_ = exact_log(mean) - variance / 2;
  }

  [[nodiscard]] std::int64_t quantile(double u) const override {
    const double z = exact_normal_quantile(u + 0x1p-54);  // Between the multiples of 2^-53 that u comes in.
    const double length = std::floor(exact_exp(mu_ + sigma_ * z) + 0.5);
    return static_cast<std::int64_t>(std::clamp(length, 1.0, static_cast<double>(kMaxTokens)));
  }

 private:
  double mu_ = 0;
  double sigma_ = 0;
};

class Zipf final : public LengthModel {
 public:
  Zipf(double exponent, std::int64_t max) {
    double sum = 0;
    for (std::int64_t k = 1; k <= max; ++k) {
      sum += exact_pow(static_cast<double>(k), -exponent);
      cumulative_.push_back(sum);
    }
  }

  [[nodiscard]] std::int64_t quantile(double u) const override {
    const auto found = std::ranges::upper_bound(cumulative_, u * cumulative_.back());
    return std::min(found - cumulative_.begin(), std::ssize(cumulative_) - 1) + 1;
  }

 private:
  std::vector<double> cumulative_;
};

// "lognormal:1155:1.1" without its name, as two numbers.
std::pair<double, double> two_numbers(std::string_view text, std::string_view whole) {
  const std::size_t colon = text.find(':');
  double values[2] = {0, 0};
  if (colon != std::string_view::npos) {
    const std::string_view parts[2] = {text.substr(0, colon), text.substr(colon + 1)};
    bool fine = true;
    for (int i = 0; i < 2; ++i) {
      const auto [end, error] =
          std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), values[i]);
      fine = fine && error == std::errc() && end == parts[i].data() + parts[i].size() &&
             std::isfinite(values[i]);
    }
    if (fine) return {values[0], values[1]};
  }
  throw TraceError(
      fmt::format("lengths '{}' are not understood; forms are 1024, uniform:LOW:HIGH, lognormal:MEAN:CV, "
                  "zipf:EXPONENT:MAX",
                  whole));
}

void require(bool holds, std::string_view text, std::string_view must) {
  if (!holds) throw TraceError(fmt::format("lengths '{}': {}", text, must));
}

class ModelPairs final : public LengthPairs {
 public:
  ModelPairs(std::unique_ptr<LengthModel> prompt, std::unique_ptr<LengthModel> output, double correlation,
             std::uint64_t seed)
      : prompt_(std::move(prompt)),
        output_(std::move(output)),
        correlation_(correlation),
        prompts_(seed, "prompt-lengths"),
        outputs_(seed, "output-lengths") {}

  [[nodiscard]] Pair next() override {
    const double u = prompts_.uniform();
    double v = outputs_.uniform();
    if (correlation_ != 0) {
      const double z = correlation_ * exact_normal_quantile(u + 0x1p-54) +
                       std::sqrt(1 - correlation_ * correlation_) * exact_normal_quantile(v + 0x1p-54);
      v = std::clamp(exact_normal_cdf(z), 0.0, 1 - 0x1p-53);
    }
    return {prompt_->quantile(u), output_->quantile(v)};
  }

 private:
  std::unique_ptr<LengthModel> prompt_;
  std::unique_ptr<LengthModel> output_;
  double correlation_;
  RandomStream prompts_;
  RandomStream outputs_;
};

class EmpiricalPairs final : public LengthPairs {
 public:
  EmpiricalPairs(const std::filesystem::path& trace, std::uint64_t seed) : stream_(seed, "length-pairs") {
    TraceReader reader(trace);
    for (TraceRecord record; reader.next(record);)
      pairs_.push_back({record.prompt_tokens, record.output_tokens});
    if (pairs_.empty())
      throw TraceError(fmt::format("{}: holds no requests to draw lengths from", trace.string()));
  }
  [[nodiscard]] Pair next() override {
    return pairs_[static_cast<std::size_t>(stream_.integer(0, std::ssize(pairs_) - 1))];
  }

 private:
  RandomStream stream_;
  std::vector<Pair> pairs_;
};

}  // namespace

std::unique_ptr<LengthModel> uniform_lengths(std::int64_t mean, double ratio) {
  if (mean < 1 || mean > kMaxTokens / 2) {
    throw TraceError(fmt::format("a length of {} tokens; it must lie in 1..{}", mean, kMaxTokens / 2));
  }
  if (!(ratio >= 0) || !(ratio < 1)) {
    throw TraceError(fmt::format("--random-range-ratio is {}; it must be at least 0 and below 1", ratio));
  }
  const auto middle = static_cast<double>(mean);
  const auto low = static_cast<std::int64_t>(std::floor(middle * (1 - ratio)));
  const auto high = static_cast<std::int64_t>(std::ceil(middle * (1 + ratio)));
  return std::make_unique<Uniform>(std::max<std::int64_t>(low, 1), high);
}

std::unique_ptr<LengthModel> parse_lengths(std::string_view text, double ratio) {
  const auto after = [text](std::string_view name) { return text.substr(name.size()); };
  if (text.starts_with("uniform:")) {
    const auto [low, high] = two_numbers(after("uniform:"), text);
    require(
        low >= 1 && low <= high && high <= kMaxTokens && low == std::floor(low) && high == std::floor(high),
        text, "LOW and HIGH are whole numbers from 1 on, LOW not above HIGH");
    return std::make_unique<Uniform>(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high));
  }
  if (text.starts_with("lognormal:")) {
    const auto [mean, cv] = two_numbers(after("lognormal:"), text);
    require(mean >= 1 && mean <= 1e8 && cv > 0 && cv <= 100, text,
            "MEAN lies in 1..1e8, CV above 0 and up to 100");
    return std::make_unique<Lognormal>(mean, cv);
  }
  if (text.starts_with("zipf:")) {
    const auto [exponent, max] = two_numbers(after("zipf:"), text);
    require(exponent >= 0 && exponent <= 20 && max >= 1 && max <= 1 << 22 && max == std::floor(max), text,
            "EXPONENT lies in 0..20, MAX is a whole number in 1..4194304");
    return std::make_unique<Zipf>(exponent, static_cast<std::int64_t>(max));
  }
  std::int64_t mean = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mean);
  if (error != std::errc() || end != text.data() + text.size()) (void)two_numbers("", text);
  return uniform_lengths(mean, ratio);
}

std::unique_ptr<LengthPairs> model_pairs(std::unique_ptr<LengthModel> prompt,
                                         std::unique_ptr<LengthModel> output, double correlation,
                                         std::uint64_t seed) {
  if (!(correlation > -1 && correlation < 1)) {
    throw TraceError(fmt::format("--length-correlation is {}; it must lie between -1 and 1", correlation));
  }
  return std::make_unique<ModelPairs>(std::move(prompt), std::move(output), correlation, seed);
}

std::unique_ptr<LengthPairs> empirical_pairs(const std::filesystem::path& trace, std::uint64_t seed) {
  return std::make_unique<EmpiricalPairs>(trace, seed);
}

}  // namespace kneepoint::traces
