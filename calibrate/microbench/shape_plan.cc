#include "calibrate/microbench/shape_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>

namespace kneepoint::microbench {

namespace {

constexpr std::int64_t kMi = 1 << 20;
constexpr std::int64_t kFirstOfAFamily = 64;

// n outputs of k inputs, most wanted first; a group of four is one level.
struct Layer {
  std::int64_t n;
  std::int64_t k;
};
constexpr std::array kLayers{
    Layer{6144, 4096},    // Llama 3 8B, Q K V
    Layer{28672, 4096},   //             gate and up
    Layer{8192, 28672},   // Llama 3 70B, down
    Layer{1280, 8192},    //              Q K V, TP 8
    Layer{4096, 4096},    // Llama 3 8B, output
    Layer{4096, 14336},   //             down
    Layer{57344, 8192},   // Llama 3 70B, gate and up
    Layer{4096, 512},     // Llama 3 8B, output, TP 8
    Layer{10240, 8192},   // Llama 3 70B, Q K V
    Layer{8192, 8192},    //              output
    Layer{8192, 1024},    //              output, TP 8
    Layer{7168, 8192},    //              gate and up, TP 8
    Layer{34816, 5120},   // Qwen3 14B, gate and up
    Layer{5120, 17408},   //            down
    Layer{4608, 3584},    // Qwen2.5 7B, Q K V
    Layer{3584, 18944},   //             down
    Layer{128256, 4096},  // Llama 3 8B, LM head
    Layer{768, 4096},     //             Q K V, TP 8
    Layer{5120, 25600},   // Qwen3 32B, down
    Layer{10240, 5120},   //            Q K V
    Layer{28672, 8192},   // Llama 3 70B, gate and up, TP 2
    Layer{8192, 3584},    //              down, TP 8
    Layer{2560, 8192},    //              Q K V, TP 4
    Layer{152064, 5120},  // Qwen2.5 32B, LM head
};
constexpr int kLayersOfALevel = 4;

constexpr std::array<std::int64_t, 21> kTokens{1,   2,   4,   8,   16,   24,   32,   48,   64,    96,   128,
                                               192, 256, 384, 512, 1024, 2048, 4096, 8192, 12288, 16384};
constexpr std::array<std::int64_t, 9> kSequences{1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr std::array<std::int64_t, 9> kContexts{64, 256, 512, 1024, 2048, 4096, 8192, 32768, 131072};
constexpr std::array<std::int64_t, 11> kPrompts{16, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 8192, 16384};

struct Heads {
  std::int64_t query;
  std::int64_t kv;
};
// 8B; 70B at TP 8; 70B; 7B without groups; Qwen2.5 7B; Qwen3 14B; 8B at TP 4.
constexpr std::array kHeads{Heads{32, 8}, Heads{8, 1},  Heads{64, 8}, Heads{32, 32},
                            Heads{28, 4}, Heads{40, 8}, Heads{8, 2}};

struct Candidate {
  Shape shape;
  int level = 0;
};
using Family = std::vector<Candidate>;

template <class Axis>
std::vector<int> levels_of(const Axis& axis) {
  return axis_levels(static_cast<int>(axis.size()));
}

Family memory_family(const DeviceFacts& facts) {
  Family family;
  const std::array<std::int64_t, 11> sizes{2, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  const std::vector<int> levels = levels_of(sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (4 * sizes[i] * kMi > facts.free_memory_bytes) continue;
    for (const MemoryOp op : {MemoryOp::kRead, MemoryOp::kCopy, MemoryOp::kWrite}) {
      family.push_back({MemoryShape{op, sizes[i] * kMi}, levels[i]});
    }
  }
  return family;
}

bool has_fp8(const DeviceFacts& facts) {
  return facts.capability_major * 10 + facts.capability_minor >= 89;
}

Family gemm_family(const DeviceFacts& facts, Precision precision) {
  Family family;
  const std::vector<int> levels = levels_of(kTokens);
  for (std::size_t layer = 0; layer < kLayers.size(); ++layer) {
    const auto [n, k] = kLayers[layer];
    const std::int64_t weight_bytes = n * k * (precision == Precision::kFp8 ? 1 : 2);
    for (std::size_t i = 0; i < kTokens.size(); ++i) {
      const std::int64_t m = kTokens[i];
      // Two copies of the weights at least, and both sides of the product.
      if (2 * weight_bytes + 2 * m * (n + k) > facts.free_memory_bytes / 2) continue;
      if (2 * m * n * k > 20'000'000'000'000) continue;  // 30 ms of a fast GPU.
      const int level = levels[i] + static_cast<int>(layer) / kLayersOfALevel;
      family.push_back({GemmShape{precision, m, n, k, false}, level});
      // Every third with its quantisation: that kernel depends on m and k alone.
      const bool quantise = precision == Precision::kFp8 && (i + layer) % 3 == 0;
      if (quantise) family.push_back({GemmShape{precision, m, n, k, true}, level + 1});
    }
  }
  return family;
}

Family decode_family(const DeviceFacts& facts, Precision kv) {
  Family family;
  const std::vector<int> sequence_levels = levels_of(kSequences);
  const std::vector<int> context_levels = levels_of(kContexts);
  for (std::size_t h = 0; h < kHeads.size(); ++h) {
    for (std::size_t s = 0; s < kSequences.size(); ++s) {
      for (std::size_t c = 0; c < kContexts.size(); ++c) {
        for (const bool skewed : {false, true}) {
          const DecodeShape shape{kv, kSequences[s], kContexts[c], skewed, kHeads[h].query, kHeads[h].kv};
          constexpr std::int64_t kLargest = std::int64_t{8} << 30;
          if (kv_bytes(shape) > std::min(kLargest, facts.free_memory_bytes / 3)) continue;
          if (skewed && kSequences[s] < 4) continue;
          const int level = sequence_levels[s] + context_levels[c] + static_cast<int>(h) + (skewed ? 2 : 0);
          if (level > 6) continue;
          family.push_back({shape, level});
        }
      }
    }
  }
  return family;
}

Family prefill_family(const DeviceFacts& facts) {
  Family family;
  const std::vector<int> levels = levels_of(kPrompts);
  constexpr std::array<std::int64_t, 4> kComputed{0, 8192, 2048, 32768};
  constexpr std::array<std::int64_t, 4> kBatches{1, 8, 2, 4};
  for (std::size_t h = 0; h < kHeads.size(); ++h) {
    for (std::size_t i = 0; i < kPrompts.size(); ++i) {
      for (std::size_t c = 0; c < kComputed.size(); ++c) {
        for (std::size_t b = 0; b < kBatches.size(); ++b) {
          if (c > 0 && b > 0) continue;
          const PrefillShape shape{kBatches[b], kPrompts[i], kComputed[c], kHeads[h].query, kHeads[h].kv};
          const std::int64_t keys = shape.tokens + shape.computed;
          constexpr std::int64_t kMostPairs = std::int64_t{1} << 35;  // 16 TFLOP.
          if (shape.batch * shape.heads * shape.tokens * keys > kMostPairs) continue;
          if (shape.batch * keys * (shape.heads + shape.kv_heads) * 1024 > facts.free_memory_bytes / 2)
            continue;
          const int level = levels[i] + static_cast<int>(h + c + b);
          if (level <= 6) family.push_back({shape, level});
        }
      }
    }
  }
  return family;
}

Family row_family() {
  Family family;
  constexpr std::array<std::int64_t, 9> kRows{1, 8, 32, 128, 512, 1024, 2048, 4096, 8192};
  constexpr std::array<std::int64_t, 4> kColumns{4096, 8192, 3584, 14336};
  const std::vector<int> levels = levels_of(kRows);
  for (std::size_t r = 0; r < kRows.size(); ++r) {
    for (std::size_t c = 0; c < kColumns.size(); ++c) {
      for (const RowOp op : {RowOp::kRmsNorm, RowOp::kSiluAndMul, RowOp::kQuantise}) {
        family.push_back({RowShape{op, kRows[r], kColumns[c]}, levels[r] + static_cast<int>(c)});
      }
    }
  }
  return family;
}

Family latency_family() {
  Family family;
  for (const LatencyOp op : {LatencyOp::kKernelLaunch, LatencyOp::kKernelLaunchCall, LatencyOp::kGraphNode,
                             LatencyOp::kGraphLaunch, LatencyOp::kHostToDevice, LatencyOp::kDeviceToHost}) {
    family.push_back({LatencyShape{op}, 0});
  }
  return family;
}

Family all_reduce_family(const DeviceFacts& facts) {
  Family family;
  const std::array<std::int64_t, 13> sizes{1,   4,    8,    16,    32,    64,    128,
                                           256, 1024, 4096, 16384, 65536, 262144};  // KiB
  const std::vector<int> levels = levels_of(sizes);
  for (const std::int64_t gpus : {2, 4, 8}) {
    if (gpus > facts.num_gpus) continue;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      family.push_back({AllReduceShape{gpus, sizes[i] * 1024}, levels[i]});
    }
  }
  return family;
}

struct Placed {
  Shape shape;
  double place = 0;
};

// A family's shapes by level; the first ones below 0 in place, the rest evenly over [0, 1).
void place(Family family, std::vector<Placed>& all) {
  std::stable_sort(family.begin(), family.end(),
                   [](const Candidate& a, const Candidate& b) { return a.level < b.level; });
  const auto count = static_cast<std::int64_t>(family.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<double>(i);
    const double at = i < kFirstOfAFamily
                          ? number / kFirstOfAFamily - 1
                          : (number - kFirstOfAFamily) / static_cast<double>(count - kFirstOfAFamily);
    all.push_back({family[static_cast<std::size_t>(i)].shape, at});
  }
}

}  // namespace

std::vector<int> axis_levels(int count) {
  std::vector<int> levels(static_cast<std::size_t>(count), 0);
  const std::function<void(int, int, int)> halve = [&](int first, int last, int level) {
    if (last - first < 2) return;
    const int middle = (first + last) / 2;
    levels[static_cast<std::size_t>(middle)] = level;
    halve(first, middle, level + 1);
    halve(middle, last, level + 1);
  };
  halve(0, count - 1, 1);
  return levels;
}

std::vector<Shape> plan_shapes(const DeviceFacts& facts) {
  std::vector<Placed> all;
  place(latency_family(), all);
  place(memory_family(facts), all);
  place(gemm_family(facts, Precision::kBf16), all);
  if (has_fp8(facts)) place(gemm_family(facts, Precision::kFp8), all);
  place(decode_family(facts, Precision::kBf16), all);
  place(decode_family(facts, Precision::kFp8), all);
  place(prefill_family(facts), all);
  place(row_family(), all);
  place(all_reduce_family(facts), all);
  // Widened 4-bit weights: a few suffice, they are two known kernels one after the other.
  Family int4 = gemm_family(facts, Precision::kInt4);
  std::erase_if(int4, [](const Candidate& c) { return c.level > 2; });
  place(std::move(int4), all);
  std::stable_sort(all.begin(), all.end(),
                   [](const Placed& a, const Placed& b) { return a.place < b.place; });
  std::vector<Shape> shapes;
  for (Placed& placed : all) shapes.push_back(placed.shape);
  return shapes;
}

}  // namespace kneepoint::microbench
