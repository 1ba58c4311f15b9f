// Laws that hold for every shape, whatever the rates: no operator is faster than
// the silicon allows, and none gets cheaper as it grows. Random shapes over the
// bundled rates; the floors are worked out here, from the data sheet alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "hw/fitted_times.h"
#include "hw/gpu_spec.h"
#include "hw/rates.h"

namespace kneepoint::hw {
namespace {

constexpr int kShapes = 3000;
constexpr double kRounding = 1e-12;  // Relative.

// Random sizes: powers of two and what lies between, so that both sides of every tile edge are met.
class Sizes {
 public:
  explicit Sizes(std::uint32_t seed) : random_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const double exponent = unit() * std::log(static_cast<double>(high) / static_cast<double>(low));
    const auto size = static_cast<std::int64_t>(std::lround(static_cast<double>(low) * std::exp(exponent)));
    return std::clamp(size, low, high);
  }
  std::int64_t one_of(const std::vector<std::int64_t>& values) {
    return values[static_cast<std::size_t>(
        boost::random::uniform_int_distribution<int>(0, static_cast<int>(values.size()) - 1)(random_))];
  }
  bool coin() { return one_of({0, 1}) == 1; }

 private:
  double unit() {
    return boost::random::uniform_int_distribution<int>(0, 1 << 20)(random_) / static_cast<double>(1 << 20);
  }
  boost::random::mt19937 random_;
};

GemmShape random_gemm(Sizes& sizes) {
  return {.precision = static_cast<Precision>(sizes.one_of({0, 1, 2})),
          .m = sizes.between(1, 20000),
          .n = sizes.between(16, 70000),
          .k = sizes.between(16, 70000),
          .static_scales = sizes.coin()};
}

DecodeAttentionShape random_decode(Sizes& sizes) {
  DecodeAttentionShape shape{.kv_precision = sizes.coin() ? Precision::kFp8 : Precision::kBf16,
                             .count = sizes.between(1, 2048),
                             .num_kv_heads = sizes.one_of({1, 2, 3, 4, 8, 16}),
                             .head_size = sizes.one_of({64, 128, 256})};
  shape.context_max = sizes.between(1, 131072);
  shape.num_heads = shape.num_kv_heads * sizes.one_of({1, 2, 4, 5, 8, 16});
  const std::int64_t rest = (shape.count - 1) * sizes.between(1, shape.context_max);
  shape.context_sum = shape.context_max + rest;
  return shape;
}

PrefillAttentionShape random_prefill(Sizes& sizes) {
  PrefillAttentionShape shape{.kv_precision = sizes.coin() ? Precision::kFp8 : Precision::kBf16,
                              .batch = sizes.between(1, 64),
                              .num_tokens = sizes.between(1, 32768),
                              .num_computed_tokens = sizes.coin() ? sizes.between(1, 131072) : 0,
                              .num_kv_heads = sizes.one_of({1, 2, 4, 8, 16, 32}),
                              .head_size = sizes.one_of({64, 128, 256})};
  shape.num_heads = shape.num_kv_heads * sizes.one_of({1, 2, 4, 5, 8});
  return shape;
}

MoeShape random_moe(Sizes& sizes) {
  MoeShape shape{.precision = static_cast<Precision>(sizes.one_of({0, 1, 2})),
                 .num_tokens = sizes.between(1, 20000),
                 .hidden_size = sizes.one_of({2048, 4096, 7168}),
                 .intermediate_size = sizes.one_of({768, 1536, 2048, 14336}),
                 .top_k = sizes.one_of({1, 2, 4, 8}),
                 .num_experts = sizes.one_of({8, 16, 60, 128, 256}),
                 .moe_tp = sizes.one_of({1, 2, 4, 8}),
                 .moe_ep = sizes.one_of({1, 2, 4, 8}),
                 .balanced = sizes.coin()};
  return shape;
}

CollectiveShape random_collective(Sizes& sizes) {
  return {.op = static_cast<Collective>(sizes.one_of({0, 1, 2, 3, 4})),
          .num_gpus = sizes.one_of({2, 3, 4, 6, 8, 16}),
          .message_bytes = sizes.between(1, std::int64_t{1} << 32)};
}

class FormLaws : public testing::TestWithParam<std::string> {
 protected:
  GpuSpec gpu_ = load_gpu(GetParam());
  FittedTimes times_{gpu_, load_rates(GetParam())};

  // Seconds below which no cold operator may be.
  [[nodiscard]] double floor_s(double flops, double peak, double bytes) const {
    return std::max(flops / peak, bytes / gpu_.bandwidth_bytes_per_s) * (1 - kRounding);
  }
};

double bytes_of(Precision precision) {
  return precision == Precision::kFp8 ? 1 : precision == Precision::kInt4 ? 0.5 : 2;
}

TEST_P(FormLaws, NoProductUnderItsFloor) {
  Sizes sizes(1);
  for (int i = 0; i < kShapes; ++i) {
    const GemmShape s = random_gemm(sizes);
    const auto m = static_cast<double>(s.m);
    const auto n = static_cast<double>(s.n);
    const auto k = static_cast<double>(s.k);
    const double peak = s.precision == Precision::kFp8 ? gpu_.fp8_flops_per_s : gpu_.bf16_flops_per_s;
    const double bytes = n * k * bytes_of(s.precision) + m * k + 2 * m * n;
    ASSERT_GE(times_.gemm(s, CacheState::kCold).seconds, floor_s(2 * m * n * k, peak, bytes))
        << s.m << " " << s.n << " " << s.k;
    ASSERT_GE(times_.gemm(s, CacheState::kWarm).seconds,
              std::max(2 * m * n * k / peak, bytes / gpu_.l2_bandwidth_bytes_per_s) * (1 - kRounding));
  }
}

TEST_P(FormLaws, NoDecodeUnderItsFloor) {
  Sizes sizes(2);
  for (int i = 0; i < kShapes; ++i) {
    const DecodeAttentionShape s = random_decode(sizes);
    const double pairs = static_cast<double>(s.num_heads * s.context_sum);
    const double kv = 2.0 * bytes_of(s.kv_precision) * static_cast<double>(s.num_kv_heads * s.context_sum);
    const auto dim = static_cast<double>(s.head_size);
    ASSERT_GE(times_.decode_attention(s, CacheState::kCold).seconds,
              floor_s(4 * dim * pairs, gpu_.bf16_flops_per_s, dim * kv));
  }
}

TEST_P(FormLaws, NoPrefillUnderItsFloor) {
  Sizes sizes(3);
  for (int i = 0; i < kShapes; ++i) {
    const PrefillAttentionShape s = random_prefill(sizes);
    const auto tokens = static_cast<double>(s.num_tokens);
    const auto computed = static_cast<double>(s.num_computed_tokens);
    const double pairs = tokens * computed + tokens * (tokens + 1) / 2;
    const double flops = 4.0 * static_cast<double>(s.batch * s.head_size * s.num_heads) * pairs;
    const double kv = 2.0 * bytes_of(s.kv_precision) * (tokens + computed) *
                      static_cast<double>(s.batch * s.head_size * s.num_kv_heads);
    ASSERT_GE(times_.prefill_attention(s).seconds, floor_s(flops, gpu_.bf16_flops_per_s, kv));
  }
}

TEST_P(FormLaws, NoExpertCallUnderItsFloor) {
  Sizes sizes(4);
  for (int i = 0; i < kShapes; ++i) {
    const MoeShape s = random_moe(sizes);
    const double inter = static_cast<double>(s.intermediate_size) / static_cast<double>(s.moe_tp);
    const double weights_of_an_expert = 3 * inter * static_cast<double>(s.hidden_size);
    const double assignments = static_cast<double>(s.num_tokens * s.top_k) / static_cast<double>(s.moe_ep);
    const double peak = s.precision == Precision::kFp8 ? gpu_.fp8_flops_per_s : gpu_.bf16_flops_per_s;
    // One token reads top_k different experts, of which this GPU has its share.
    const double bytes = weights_of_an_expert * bytes_of(s.precision) * static_cast<double>(s.top_k) /
                         static_cast<double>(s.moe_ep);
    ASSERT_GE(times_.moe(s, CacheState::kCold).seconds, floor_s(2 * weights_of_an_expert * assignments, peak, bytes));
  }
}

TEST_P(FormLaws, NoCollectiveUnderItsFloor) {
  Sizes sizes(5);
  for (int i = 0; i < kShapes; ++i) {
    const CollectiveShape s = random_collective(sizes);
    // An all-reduce brings in, for every element, the sum of all others: the whole message.
    const double others = s.op == Collective::kSend || s.op == Collective::kAllReduce
                              ? 1.0
                              : static_cast<double>(s.num_gpus - 1) / static_cast<double>(s.num_gpus);
    const double least = static_cast<double>(s.message_bytes) * others / gpu_.link_bytes_per_s;
    ASSERT_GE(times_.collective(s).seconds, least * (1 - kRounding)) << "GPUs " << s.num_gpus;
  }
}

// Growing: `grow` makes one size of the shape larger; the time must not fall.
template <class Shape>
struct Growth {
  const char* size;
  std::function<void(Shape&)> grow;
};

template <class Shape>
void expect_monotone(std::uint32_t seed, Shape (*random_shape)(Sizes&), const std::vector<Growth<Shape>>& growths,
                     const std::function<double(const Shape&)>& seconds) {
  Sizes sizes(seed);
  for (int i = 0; i < kShapes; ++i) {
    const Shape shape = random_shape(sizes);
    for (const Growth<Shape>& growth : growths) {
      Shape larger = shape;
      growth.grow(larger);
      ASSERT_GE(seconds(larger), seconds(shape) * (1 - kRounding)) << growth.size << ", shape " << i;
    }
  }
}

TEST_P(FormLaws, ProductsGrowWithEverySize) {
  const std::vector<Growth<GemmShape>> growths{
      {"m", [](GemmShape& s) { s.m += 1 + s.m / 7; }},
      {"m by one", [](GemmShape& s) { ++s.m; }},
      {"n", [](GemmShape& s) { s.n += 1 + s.n / 5; }},
      {"k", [](GemmShape& s) { s.k += 1 + s.k / 5; }},
  };
  for (const CacheState cache : {CacheState::kCold, CacheState::kWarm}) {
    expect_monotone<GemmShape>(11, &random_gemm, growths,
                               [&](const GemmShape& s) { return times_.gemm(s, cache).seconds; });
  }
}

TEST_P(FormLaws, DecodesGrowWithEverySize) {
  const std::vector<Growth<DecodeAttentionShape>> growths{
      {"context of the longest",
       [](DecodeAttentionShape& s) {
         const std::int64_t more = 1 + s.context_max / 6;
         s.context_max += more;
         s.context_sum += more;
       }},
      {"contexts",
       [](DecodeAttentionShape& s) {
         const std::int64_t more = 1 + s.context_max / 6;
         s.context_max += more;
         s.context_sum += more * s.count;
       }},
      {"one more sequence",
       [](DecodeAttentionShape& s) {
         ++s.count;
         s.context_sum += s.context_max / 2;
       }},
      {"many more sequences",
       [](DecodeAttentionShape& s) {
         s.context_sum += s.context_max * s.count;
         s.count *= 2;
       }},
      // From one query head a KV head to two the kernel is another one, which may be faster.
      {"query heads",
       [](DecodeAttentionShape& s) {
         if (s.num_heads > s.num_kv_heads) s.num_heads += s.num_kv_heads;
       }},
  };
  for (const CacheState cache : {CacheState::kCold, CacheState::kWarm}) {
    expect_monotone<DecodeAttentionShape>(
        12, &random_decode, growths,
        [&](const DecodeAttentionShape& s) { return times_.decode_attention(s, cache).seconds; });
  }
}

TEST_P(FormLaws, PrefillsGrowWithEverySize) {
  const std::vector<Growth<PrefillAttentionShape>> growths{
      {"tokens", [](PrefillAttentionShape& s) { s.num_tokens += 1 + s.num_tokens / 6; }},
      {"a token", [](PrefillAttentionShape& s) { ++s.num_tokens; }},
      {"computed tokens", [](PrefillAttentionShape& s) { s.num_computed_tokens += 1 + s.num_computed_tokens / 6; }},
      {"batch", [](PrefillAttentionShape& s) { ++s.batch; }},
  };
  for (const CacheState cache : {CacheState::kCold, CacheState::kWarm}) {
    expect_monotone<PrefillAttentionShape>(
        13, &random_prefill, growths,
        [&](const PrefillAttentionShape& s) { return times_.prefill_attention(s, cache).seconds; });
  }
}

TEST_P(FormLaws, ExpertCallsGrowWithTokens) {
  const std::vector<Growth<MoeShape>> growths{
      {"tokens", [](MoeShape& s) { s.num_tokens += 1 + s.num_tokens / 6; }},
      {"a token", [](MoeShape& s) { ++s.num_tokens; }},
  };
  for (const CacheState cache : {CacheState::kCold, CacheState::kWarm}) {
    expect_monotone<MoeShape>(14, &random_moe, growths,
                              [&](const MoeShape& s) { return times_.moe(s, cache).seconds; });
  }
}

TEST_P(FormLaws, CollectivesGrowWithTheMessage) {
  const std::vector<Growth<CollectiveShape>> growths{
      {"message", [](CollectiveShape& s) { s.message_bytes += 1 + s.message_bytes / 6; }}};
  expect_monotone<CollectiveShape>(15, &random_collective, growths,
                                   [&](const CollectiveShape& s) { return times_.collective(s).seconds; });
}

TEST_P(FormLaws, ColdIsNeverFasterThanWarm) {
  Sizes sizes(21);
  for (int i = 0; i < kShapes; ++i) {
    const GemmShape gemm = random_gemm(sizes);
    ASSERT_GE(times_.gemm(gemm, CacheState::kCold).seconds,
              times_.gemm(gemm, CacheState::kWarm).seconds * (1 - kRounding));
    const MoeShape moe = random_moe(sizes);
    ASSERT_GE(times_.moe(moe, CacheState::kCold).seconds,
              times_.moe(moe, CacheState::kWarm).seconds * (1 - kRounding));
  }
}

INSTANTIATE_TEST_SUITE_P(, FormLaws, testing::ValuesIn(rates_names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace kneepoint::hw
