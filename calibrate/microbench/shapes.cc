#include "calibrate/microbench/shapes.h"

#include <algorithm>
#include <numeric>

namespace kneepoint::microbench {

namespace {

constexpr std::int64_t kHeadSize = 128;

std::string number(std::int64_t value) {
  return std::to_string(value);
}

struct Describe {
  std::string operator()(const MemoryShape& s) const {
    return std::string("memory ") + name_of(s.op) + " bytes=" + number(s.bytes);
  }
  std::string operator()(const GemmShape& s) const {
    return std::string("gemm ") + name_of(s.precision) + " m=" + number(s.m) + " n=" + number(s.n) +
           " k=" + number(s.k) + (s.quantise ? " quantise" : "");
  }
  std::string operator()(const DecodeShape& s) const {
    return std::string("decode attention ") + name_of(s.kv) + " sequences=" + number(s.sequences) +
           " context=" + number(s.context) + (s.skewed ? " skewed" : "") + " heads=" + number(s.heads) +
           " kv_heads=" + number(s.kv_heads);
  }
  std::string operator()(const PrefillShape& s) const {
    return "prefill attention batch=" + number(s.batch) + " tokens=" + number(s.tokens) +
           " computed=" + number(s.computed) + " heads=" + number(s.heads) +
           " kv_heads=" + number(s.kv_heads);
  }
  std::string operator()(const RowShape& s) const {
    return std::string(name_of(s.op)) + " rows=" + number(s.rows) + " columns=" + number(s.columns);
  }
  std::string operator()(const LatencyShape& s) const { return std::string("latency ") + name_of(s.op); }
  std::string operator()(const AllReduceShape& s) const {
    return "all-reduce gpus=" + number(s.gpus) + " bytes=" + number(s.bytes);
  }
};

}  // namespace

std::vector<std::int32_t> contexts_of(const DecodeShape& shape) {
  std::vector<std::int32_t> contexts;
  for (std::int64_t i = 0; i < shape.sequences; ++i) {
    const std::int64_t context = shape.skewed ? shape.context * (2 * i + 1) / shape.sequences : shape.context;
    contexts.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(context, 1)));
  }
  return contexts;
}

std::int64_t kv_bytes(const DecodeShape& shape) {
  const std::vector<std::int32_t> contexts = contexts_of(shape);
  const std::int64_t tokens = std::accumulate(contexts.begin(), contexts.end(), std::int64_t{0});
  return 2 * tokens * shape.kv_heads * kHeadSize * (shape.kv == Precision::kFp8 ? 1 : 2);
}

std::int64_t bytes_moved(const RowShape& shape) {
  const std::int64_t numbers = shape.rows * shape.columns;
  switch (shape.op) {
    case RowOp::kRmsNorm:
      return 8 * numbers + 2 * shape.columns;  // Input, residual, both written; the weight.
    case RowOp::kSiluAndMul:
      return 6 * numbers;  // Two halves read, one written.
    case RowOp::kQuantise:
      return 3 * numbers + 4 * shape.rows;  // Read, written in one byte; scales.
  }
  return 0;
}

std::int64_t bytes_moved(const MemoryShape& shape) {
  return shape.op == MemoryOp::kCopy ? 2 * shape.bytes : shape.bytes;
}

std::string describe(const Shape& shape) {
  return std::visit(Describe{}, shape);
}

const char* name_of(MemoryOp op) {
  constexpr const char* kNames[] = {"read", "write", "copy"};
  return kNames[static_cast<int>(op)];
}
const char* name_of(Precision precision) {
  constexpr const char* kNames[] = {"bf16", "fp8", "int4"};
  return kNames[static_cast<int>(precision)];
}
const char* name_of(RowOp op) {
  constexpr const char* kNames[] = {"rms_norm", "silu_and_mul", "quantise"};
  return kNames[static_cast<int>(op)];
}
const char* name_of(LatencyOp op) {
  constexpr const char* kNames[] = {"kernel_launch", "kernel_launch_call", "graph_node",
                                    "graph_launch",  "host_to_device",     "device_to_host"};
  return kNames[static_cast<int>(op)];
}

}  // namespace kneepoint::microbench
