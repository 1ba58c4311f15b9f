// Our CUDA kernels, their very text, run on an emulated GPU and compared with the
// obvious computation in double. Sizes are small and odd on purpose: contexts that
// end inside a block, groups of heads that do not fill a matrix, more than 16 heads
// a KV head, items that are one sequence or a part of one.
#include "tests/calibrate/emulated_gpu.h"
//
#include <gtest/gtest.h>

#include <random>

#include "calibrate/microbench/decode_attention.h"
#include "calibrate/microbench/elementwise_kernels.h"
#include "calibrate/microbench/prefill_attention.h"
#include "calibrate/microbench/reference.h"

namespace kneepoint::microbench {
namespace {

// bf16 has 8 bits of precision, weights and results are rounded to it: 2^-8 each
// of the largest result, and the weights' errors average out.
constexpr double kBf16Tolerance = 0.01;

class Numbers {
 public:
  explicit Numbers(unsigned seed) : engine_(seed) {}
  // Evenly over [-1, 1], rounded to `format`.
  std::uint16_t next(const NumberFormat& format) {
    const double even = static_cast<double>(engine_()) / 2147483648.0 - 1;
    return encode(even, format);
  }
  std::vector<std::uint16_t> bf16(std::size_t count) {
    std::vector<std::uint16_t> out(count);
    for (auto& value : out) value = next(kBf16Format);
    return out;
  }
  unsigned below(unsigned bound) { return static_cast<unsigned>(engine_() % bound); }

 private:
  std::mt19937 engine_;
};

double bf16(std::uint16_t bits) {
  return decode(bits, kBf16Format);
}

TEST(NumberFormats, KnowTheirSpecialNumbers) {
  struct Row {
    double value;
    NumberFormat format;
    std::uint16_t bits;
  };
  // Written out by hand from sign, exponent and mantissa.
  const Row rows[] = {
      {1, kBf16Format, 0x3f80},
      {-2.5, kBf16Format, 0xc020},
      {1 + 1.0 / 256, kBf16Format, 0x3f80},
      {1 + 3.0 / 256, kBf16Format, 0x3f82},
      {1, kF16Format, 0x3c00},
      {65504, kF16Format, 0x7bff},
      {std::ldexp(1, -24), kF16Format, 0x0001},
      {1, kE4m3Format, 0x38},
      {448, kE4m3Format, 0x7e},
      {1000, kE4m3Format, 0x7e},
      {std::ldexp(1, -9), kE4m3Format, 0x01},
      {-0.5, kE4m3Format, 0xb0},
      {1.9999, kE4m3Format, 0x40},
  };
  for (const Row& row : rows) EXPECT_EQ(encode(row.value, row.format), row.bits) << row.value;
  for (unsigned bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7f) == 0x7f) continue;  // Not a number.
    const auto byte = static_cast<std::uint16_t>(bits);
    EXPECT_EQ(encode(decode(byte, kE4m3Format), kE4m3Format), byte);
  }
}

TEST(WidenE4m3, IsExactForEveryByte) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7f) == 0x7f) continue;
    const double expected = decode(static_cast<std::uint16_t>(bits), kE4m3Format);
    const std::uint32_t all = bits * 0x01010101U;
    for (const std::uint32_t pair : {even_e4m3(all), odd_e4m3(all)}) {
      EXPECT_EQ(decode(static_cast<std::uint16_t>(pair), kF16Format) * kE4m3Unit, expected) << bits;
      EXPECT_EQ(decode(static_cast<std::uint16_t>(pair >> 16), kF16Format) * kE4m3Unit, expected) << bits;
    }
  }
  // Bytes 0 and 2 are 1/2 and 1; then bytes 1 and 3.
  for (const std::uint32_t pair : {even_e4m3(0x00380030U), odd_e4m3(0x38003000U)}) {
    EXPECT_EQ(decode(static_cast<std::uint16_t>(pair), kF16Format) * kE4m3Unit, 0.5);
    EXPECT_EQ(decode(static_cast<std::uint16_t>(pair >> 16), kF16Format) * kE4m3Unit, 1);
  }
}

struct DecodeCase {
  const char* name;
  std::vector<std::int32_t> contexts;
  int heads;
  int kv_heads;
  std::int32_t part_tokens;
};

const DecodeCase kDecodeCases[] = {
    {"OneToken", {1}, 4, 1, 128},
    {"InsideABlock", {37, 16, 200}, 8, 2, 1024},
    {"CutInParts", {300, 64, 129}, 4, 2, 128},
    {"MoreThan32TilesAWarp", {2100}, 1, 1, 4096},
    {"ManyHeadsOfOneKvHead", {90}, 20, 1, 64},
    {"Seven", {65, 1}, 7, 1, 64},
};

struct DecodeData {
  std::vector<std::uint16_t> queries;
  std::vector<unsigned char> keys;
  std::vector<unsigned char> values;
  std::vector<std::int32_t> table;
  int width = 0;
};

template <class Kv>
DecodeData decode_data(const DecodeCase& c) {
  Numbers numbers(7);
  DecodeData data;
  data.queries = numbers.bf16(c.contexts.size() * static_cast<std::size_t>(c.heads) * kHeadSize);
  std::int32_t blocks = 0;
  for (const std::int32_t context : c.contexts) {
    data.width = std::max(data.width, (context + kBlockSize - 1) / kBlockSize);
    blocks += (context + kBlockSize - 1) / kBlockSize;
  }
  const std::size_t count = static_cast<std::size_t>(blocks * c.kv_heads) * kBlockSize * kHeadSize;
  for (auto* cache : {&data.keys, &data.values}) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t bits = numbers.next(Kv::kElementBytes == 2 ? kBf16Format : kE4m3Format);
      for (int byte = 0; byte < Kv::kElementBytes; ++byte) {
        cache->push_back(static_cast<unsigned char>(bits >> (8 * byte)));
      }
    }
  }
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < blocks; ++i) ids.push_back(i);
  for (std::size_t i = ids.size(); i > 1; --i)
    std::swap(ids[i - 1], ids[numbers.below(static_cast<unsigned>(i))]);
  // Places past a context's end name a block that does not exist.
  data.table.assign(c.contexts.size() * static_cast<std::size_t>(data.width), 1 << 28);
  std::size_t next = 0;
  for (std::size_t s = 0; s < c.contexts.size(); ++s) {
    for (int b = 0; b * kBlockSize < c.contexts[s]; ++b) {
      data.table[s * static_cast<std::size_t>(data.width) + static_cast<std::size_t>(b)] = ids[next++];
    }
  }
  return data;
}

template <class Kv>
double number_of(const std::vector<unsigned char>& cache, const DecodeCase& c, const DecodeData& data,
                 std::size_t sequence, int kv_head, int token, int d) {
  const std::size_t block =
      static_cast<std::size_t>(data.table[sequence * static_cast<std::size_t>(data.width) +
                                          static_cast<std::size_t>(token / kBlockSize)]);
  const std::size_t row =
      (block * static_cast<std::size_t>(c.kv_heads) + static_cast<std::size_t>(kv_head)) * kBlockSize +
      static_cast<std::size_t>(token % kBlockSize);
  const std::size_t at = (row * kHeadSize + static_cast<std::size_t>(d)) * Kv::kElementBytes;
  if (Kv::kElementBytes == 1) return decode(cache[at], kE4m3Format);
  return bf16(static_cast<std::uint16_t>(cache[at] | cache[at + 1] << 8));
}

template <class Kv>
std::vector<double> decode_emulated(const DecodeCase& c, const DecodeData& data, bool downwards) {
  const DecodePlan plan = plan_decode(c.contexts, c.part_tokens);
  const std::size_t rows = c.contexts.size() * static_cast<std::size_t>(c.heads);
  std::vector<std::uint16_t> outputs(rows * kHeadSize);
  std::vector<float> parts(plan.items.size() * static_cast<std::size_t>(c.heads) * kHeadSize);
  std::vector<float> sums(plan.items.size() * static_cast<std::size_t>(c.heads) * 2);
  const DecodeArguments arguments{data.queries.data(),
                                  data.keys.data(),
                                  data.values.data(),
                                  data.table.data(),
                                  plan.items.data(),
                                  plan.first_item.data(),
                                  outputs.data(),
                                  parts.data(),
                                  sums.data(),
                                  data.width,
                                  c.heads,
                                  c.kv_heads,
                                  static_cast<float>(1.4426950408889634 / std::sqrt(kHeadSize))};
  const int group = c.heads / c.kv_heads;
  const auto grid_y = static_cast<unsigned>(c.kv_heads * ((group + kTileRows - 1) / kTileRows));
  EmulatedGpu& gpu = EmulatedGpu::get();
  gpu.launch({static_cast<unsigned>(plan.items.size()), grid_y, 1}, kDecodeThreads, kDecodeSharedBytes,
             downwards, [&] { decode_attention<Kv>(arguments); });
  if (plan.merge) {
    gpu.launch({static_cast<unsigned>(c.heads), static_cast<unsigned>(c.contexts.size()), 1}, kHeadSize, 0,
               downwards, [&] { merge_decode_parts(arguments); });
  }
  std::vector<double> out;
  for (const std::uint16_t bits : outputs) out.push_back(bf16(bits));
  return out;
}

template <class Kv>
void check_decode(const DecodeCase& c) {
  const DecodeData data = decode_data<Kv>(c);
  std::vector<double> expected;
  for (std::size_t s = 0; s < c.contexts.size(); ++s) {
    for (int head = 0; head < c.heads; ++head) {
      const int kv_head = head / (c.heads / c.kv_heads);
      std::vector<double> query;
      for (std::size_t d = 0; d < kHeadSize; ++d) {
        query.push_back(
            bf16(data.queries[(s * static_cast<std::size_t>(c.heads) + static_cast<std::size_t>(head)) *
                                  kHeadSize +
                              d]));
      }
      const auto output = reference_attention(
          query, c.contexts[s], 1 / std::sqrt(kHeadSize),
          [&](int token, int d) { return number_of<Kv>(data.keys, c, data, s, kv_head, token, d); },
          [&](int token, int d) { return number_of<Kv>(data.values, c, data, s, kv_head, token, d); });
      expected.insert(expected.end(), output.begin(), output.end());
    }
  }
  for (const bool downwards : {false, true}) {
    EXPECT_LT(relative_error(decode_emulated<Kv>(c, data, downwards), expected), kBf16Tolerance)
        << (downwards ? "downwards" : "upwards");
  }
}

class DecodeAttention : public testing::TestWithParam<DecodeCase> {};

TEST_P(DecodeAttention, Bf16KeysAndValues) {
  check_decode<Bf16Kv>(GetParam());
}
TEST_P(DecodeAttention, Fp8KeysAndValues) {
  check_decode<Fp8Kv>(GetParam());
}
INSTANTIATE_TEST_SUITE_P(, DecodeAttention, testing::ValuesIn(kDecodeCases),
                         [](const auto& row) { return std::string(row.param.name); });

struct PrefillCase {
  const char* name;
  int batch;
  int tokens;
  int computed;
  int heads;
  int kv_heads;
};

const PrefillCase kPrefillCases[] = {
    {"OneToken", 1, 1, 0, 1, 1},        {"LessThanATile", 2, 37, 0, 2, 1},
    {"TwoTiles", 1, 128, 0, 1, 1},      {"Ragged", 1, 131, 0, 2, 2},
    {"AfterComputed", 1, 50, 70, 2, 1}, {"AlignedAfterComputed", 1, 64, 64, 1, 1},
};

class PrefillAttention : public testing::TestWithParam<PrefillCase> {};

TEST_P(PrefillAttention, IsCausal) {
  const PrefillCase& c = GetParam();
  Numbers numbers(11);
  const int keys = c.computed + c.tokens;
  const auto size = [](int a, int b, int d) { return static_cast<std::size_t>(a * b * d) * kHeadSize; };
  const auto q = numbers.bf16(size(c.batch, c.tokens, c.heads));
  const auto k = numbers.bf16(size(c.batch, keys, c.kv_heads));
  const auto v = numbers.bf16(size(c.batch, keys, c.kv_heads));
  std::vector<double> expected;
  for (int s = 0; s < c.batch; ++s) {
    for (int i = 0; i < c.tokens; ++i) {
      for (int head = 0; head < c.heads; ++head) {
        std::vector<double> query;
        for (std::size_t d = 0; d < kHeadSize; ++d) {
          query.push_back(bf16(q[size(s * c.tokens + i, c.heads, 1) + size(head, 1, 1) + d]));
        }
        const auto row = [&](int token) {
          return size(s * keys + token, c.kv_heads, 1) + size(head / (c.heads / c.kv_heads), 1, 1);
        };
        const auto output = reference_attention(
            query, c.computed + i + 1, 1 / std::sqrt(kHeadSize),
            [&](int token, int d) { return bf16(k[row(token) + static_cast<std::size_t>(d)]); },
            [&](int token, int d) { return bf16(v[row(token) + static_cast<std::size_t>(d)]); });
        expected.insert(expected.end(), output.begin(), output.end());
      }
    }
  }
  for (const bool downwards : {false, true}) {
    std::vector<std::uint16_t> outputs(q.size());
    const PrefillArguments arguments{
        q.data(),       k.data(),   v.data(),
        outputs.data(), c.tokens,   c.computed,
        c.heads,        c.kv_heads, static_cast<float>(1.4426950408889634 / std::sqrt(kHeadSize))};
    const auto tiles = static_cast<unsigned>((c.tokens + kPrefillQueries - 1) / kPrefillQueries);
    EmulatedGpu::get().launch({tiles, static_cast<unsigned>(c.heads), static_cast<unsigned>(c.batch)},
                              kPrefillThreads, kPrefillSharedBytes, downwards,
                              [&] { prefill_attention(arguments); });
    std::vector<double> got;
    for (const std::uint16_t bits : outputs) got.push_back(bf16(bits));
    EXPECT_LT(relative_error(got, expected), kBf16Tolerance) << (downwards ? "downwards" : "upwards");
  }
}
INSTANTIATE_TEST_SUITE_P(, PrefillAttention, testing::ValuesIn(kPrefillCases),
                         [](const auto& row) { return std::string(row.param.name); });

// Rows of 264 numbers: 33 chunks of 8, so that most threads have none and one warp is ragged.
constexpr int kColumns = 264;

TEST(Elementwise, RmsNormAddsTheResidual) {
  Numbers numbers(3);
  auto x = numbers.bf16(2 * kColumns);
  auto residual = numbers.bf16(2 * kColumns);
  const auto before = residual;
  const auto weight = numbers.bf16(kColumns);
  std::vector<std::uint16_t> y(x.size());
  const RowArguments arguments{x.data(), weight.data(), residual.data(), y.data(), nullptr, kColumns};
  EmulatedGpu::get().launch({2, 1, 1}, kRowThreads, 32 * sizeof(float), false, [&] { rms_norm(arguments); });
  std::vector<double> got;
  std::vector<double> expected;
  for (std::size_t row = 0; row < 2; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < kColumns; ++i) {
      const double sum = bf16(x[row * kColumns + i]) + bf16(before[row * kColumns + i]);
      squares += sum * sum;
      EXPECT_NEAR(bf16(residual[row * kColumns + i]), sum, 0.005);
    }
    for (std::size_t i = 0; i < kColumns; ++i) {
      const double sum = bf16(x[row * kColumns + i]) + bf16(before[row * kColumns + i]);
      expected.push_back(sum / std::sqrt(squares / kColumns + 1e-6) * bf16(weight[i]));
      got.push_back(bf16(y[row * kColumns + i]));
    }
  }
  EXPECT_LT(relative_error(got, expected), kBf16Tolerance);
}

TEST(Elementwise, SiluAndMul) {
  Numbers numbers(4);
  const auto x = numbers.bf16(2 * 2 * kColumns);
  std::vector<std::uint16_t> y(2 * kColumns);
  const RowArguments arguments{x.data(), nullptr, nullptr, y.data(), nullptr, kColumns};
  EmulatedGpu::get().launch({2, 1, 1}, kRowThreads, 0, false, [&] { silu_and_mul(arguments); });
  std::vector<double> got;
  std::vector<double> expected;
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      const double gate = bf16(x[2 * row * kColumns + i]);
      expected.push_back(gate / (1 + std::exp(-gate)) * bf16(x[(2 * row + 1) * kColumns + i]));
      got.push_back(bf16(y[row * kColumns + i]));
    }
  }
  EXPECT_LT(relative_error(got, expected), kBf16Tolerance);
}

TEST(Elementwise, QuantisedRowsComeBackWithinAnEighth) {
  Numbers numbers(5);
  const auto x = numbers.bf16(2 * kColumns);
  std::vector<unsigned char> y(2 * kColumns);
  std::vector<float> scales(2);
  const RowArguments arguments{x.data(), nullptr, nullptr, y.data(), scales.data(), kColumns};
  EmulatedGpu::get().launch({2, 1, 1}, kRowThreads, 32 * sizeof(float), true,
                            [&] { quantise_e4m3(arguments); });
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double back = decode(y[i], kE4m3Format) * scales[i / kColumns];
    // Three bits of mantissa: half of an eighth; near zero, half a step of the smallest numbers.
    EXPECT_NEAR(back, bf16(x[i]), std::abs(bf16(x[i])) / 16 + scales[i / kColumns] / 1024) << i;
  }
}

TEST(Elementwise, Int4WeightsWiden) {
  Numbers numbers(6);
  constexpr int kWide = 256;
  std::vector<std::uint32_t> packed(2 * kWide / 8);
  for (auto& word : packed) word = numbers.below(1U << 31) * 2;
  const auto scales = numbers.bf16(2 * kWide / kInt4Group);
  std::vector<std::uint16_t> y(2 * kWide);
  const Int4Arguments arguments{packed.data(), scales.data(), y.data(), kWide};
  EmulatedGpu::get().launch({2, 1, 1}, kRowThreads, 0, false, [&] { dequantise_int4(arguments); });
  for (std::size_t i = 0; i < y.size(); ++i) {
    const int weight = static_cast<int>(packed[i / 8] >> (4 * (i % 8)) & 15U) - 8;
    EXPECT_NEAR(bf16(y[i]), weight * bf16(scales[i / kInt4Group]), 0.02) << i;
  }
}

TEST(StreamKernels, TouchEveryWordOnce) {
  // 3 blocks of threads, and a length that is no multiple of anything.
  std::vector<Vec16> from(20011);
  std::vector<Vec16> to(from.size(), Vec16{{1, 2, 3, 4}});
  EmulatedGpu& gpu = EmulatedGpu::get();
  const auto words = static_cast<std::int64_t>(from.size());
  gpu.launch({3, 1, 1}, kStreamThreads, 0, false, [&] {
    fill_random<Fill::kBf16>({reinterpret_cast<std::uint32_t*>(from.data()), 4 * words, 9});
  });
  gpu.launch({3, 1, 1}, kStreamThreads, 0, false, [&] {
    stream<Stream::kCopy>({from.data(), to.data(), words});
  });
  EXPECT_EQ(std::memcmp(from.data(), to.data(), from.size() * sizeof(Vec16)), 0);
  for (const Vec16& word : from) {
    const double size = std::abs(bf16(static_cast<std::uint16_t>(word.word[0])));
    EXPECT_TRUE(size >= 0.5 && size < 2) << size;
  }
  gpu.launch({3, 1, 1}, kStreamThreads, 0, false, [&] {
    stream<Stream::kWrite>({from.data(), to.data(), words});
  });
  for (std::size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i].word[0], i);
}

}  // namespace
}  // namespace kneepoint::microbench
