// What can be measured: one call of one operator, by its shape. The words are those
// of calibrate/measurement.proto, which is what becomes of them.
//
// This program is built on the machine with the GPU, so it knows nothing of the rest
// of the project and needs no library but CUDA's.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace kneepoint::microbench {

enum class MemoryOp : std::uint8_t { kRead, kWrite, kCopy };

/// A stream over `bytes` of memory, again and again; small ones stay in L2.
struct MemoryShape {
  MemoryOp op = MemoryOp::kRead;
  std::int64_t bytes = 0;  ///< Of one array; a copy touches two.
};

enum class Precision : std::uint8_t { kBf16, kFp8, kInt4 };

/// Y[m, n] = X[m, k] W[k, n]; every call has other weights.
struct GemmShape {
  Precision precision = Precision::kBf16;  ///< kInt4: weights widened to bf16 first, by a kernel.
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool quantise = false;  ///< FP8: the activations are quantised first, by a kernel.
};

struct DecodeShape {
  Precision kv = Precision::kBf16;  ///< kBf16 or kFp8.
  std::int64_t sequences = 0;
  std::int64_t context = 0;  ///< Mean.
  bool skewed = false;       ///< From nearly none to twice the mean, in equal steps.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
};

struct PrefillShape {
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  std::int64_t computed = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
};

enum class RowOp : std::uint8_t { kRmsNorm, kSiluAndMul, kQuantise };

struct RowShape {
  RowOp op = RowOp::kRmsNorm;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

enum class LatencyOp : std::uint8_t {
  kKernelLaunch,      ///< From the call to the end of an empty kernel, waited for.
  kKernelLaunchCall,  ///< What the call itself costs the CPU.
  kGraphNode,         ///< One more empty kernel in a graph.
  kGraphLaunch,       ///< A graph of one empty kernel, waited for.
  kHostToDevice,      ///< 4 KiB from pinned memory, waited for.
  kDeviceToHost,
};

struct LatencyShape {
  LatencyOp op = LatencyOp::kKernelLaunch;
};

struct AllReduceShape {
  std::int64_t gpus = 2;
  std::int64_t bytes = 0;
};

using Shape =
    std::variant<MemoryShape, GemmShape, DecodeShape, PrefillShape, RowShape, LatencyShape, AllReduceShape>;

/// Each sequence's context; 1 at least.
[[nodiscard]] std::vector<std::int32_t> contexts_of(const DecodeShape& shape);

/// Bytes of keys and values that a call reads.
[[nodiscard]] std::int64_t kv_bytes(const DecodeShape& shape);

/// Bytes read plus written.
[[nodiscard]] std::int64_t bytes_moved(const RowShape& shape);
[[nodiscard]] std::int64_t bytes_moved(const MemoryShape& shape);

/// "gemm fp8 m=64 n=4096 k=4096": for messages.
[[nodiscard]] std::string describe(const Shape& shape);

[[nodiscard]] const char* name_of(MemoryOp op);
[[nodiscard]] const char* name_of(Precision precision);
[[nodiscard]] const char* name_of(RowOp op);
[[nodiscard]] const char* name_of(LatencyOp op);

}  // namespace kneepoint::microbench
