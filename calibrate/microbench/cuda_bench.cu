#include "calibrate/microbench/cuda_bench.h"

#include <algorithm>
#include <cmath>

#include "calibrate/microbench/elementwise_kernels.h"
#include "calibrate/microbench/row_bench.h"

namespace kneepoint::microbench {

namespace {

constexpr double kUsPerMs = 1000;
constexpr int kMostCalls = 512;          // Of a graph.
constexpr double kLongestSeconds = 0.1;  // All repeats of one shape, where calls are long.

double elapsed_ms(const Event& begin, const Event& end) {
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "cudaEventElapsedTime");
  return ms;
}

void record(const Event& event, cudaStream_t stream) {
  check_cuda(cudaEventRecord(event.get(), stream), "cudaEventRecord");
}

// One call in microseconds, launches from the CPU included: only to choose how many to time.
double rough_us(cudaStream_t stream, int copies, const Enqueue& enqueue) {
  Event begin;
  Event end;
  check_cuda(cudaEventCreate(begin.to_fill()), "cudaEventCreate");
  check_cuda(cudaEventCreate(end.to_fill()), "cudaEventCreate");
  const int calls = std::min(copies, 3);
  enqueue(stream, 0);  // Modules are loaded at the first call.
  record(begin, stream);
  for (int i = 0; i < calls; ++i) enqueue(stream, i);
  record(end, stream);
  check_cuda(cudaEventSynchronize(end.get()), "a warm-up call");
  return std::max(elapsed_ms(begin, end) * kUsPerMs / calls, 1.0);
}

GraphExec capture(cudaStream_t stream, int calls, const Enqueue& enqueue) {
  Graph graph;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    for (int i = 0; i < calls; ++i) enqueue(stream, i);
  } catch (...) {
    cudaStreamEndCapture(stream,
                         graph.to_fill());  // The stream must leave the capture; the first error counts.
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, graph.to_fill()), "cudaStreamEndCapture");
  GraphExec exec;
  check_cuda(cudaGraphInstantiate(exec.to_fill(), graph.get(), 0), "cudaGraphInstantiate");
  return exec;
}

template <Fill kWhat>
void fill(CudaBench& bench, void* to, std::int64_t bytes) {
  constexpr std::int64_t kWordBytes = 4;
  const FillArguments arguments{static_cast<std::uint32_t*>(to), bytes / kWordBytes, bench.seed};
  bench.seed += static_cast<std::uint64_t>(bytes);
  fill_random<kWhat><<<bench.stream_blocks(), kStreamThreads, 0, bench.stream.get()>>>(arguments);
  check_launch("fill_random");
}

}  // namespace

int CudaBench::copies_for(std::int64_t bytes) const {
  constexpr std::int64_t kMost = 256;
  constexpr std::int64_t kTimesL2 = 3;
  const std::int64_t needed = (kTimesL2 * facts.l2_bytes + bytes - 1) / std::max<std::int64_t>(bytes, 1) + 1;
  return static_cast<int>(std::clamp<std::int64_t>(needed, 2, kMost));
}

unsigned CudaBench::stream_blocks() const {
  return static_cast<unsigned>(facts.sm_count * kStreamBlocksOfAnSm);
}

void CudaBench::fill_bf16(void* to, std::int64_t bytes) {
  fill<Fill::kBf16>(*this, to, bytes);
}
void CudaBench::fill_e4m3(void* to, std::int64_t bytes) {
  fill<Fill::kE4m3>(*this, to, bytes);
}
void CudaBench::fill_bits(void* to, std::int64_t bytes) {
  fill<Fill::kBits>(*this, to, bytes);
}

Timing CudaBench::time(int copies, const Enqueue& enqueue, const TimingOptions& options) {
  const double us = rough_us(stream.get(), copies, enqueue);
  const double repeat_us = options.seconds * 1e6 / options.repeats;
  const int calls = std::max(copies, static_cast<int>(std::min(repeat_us / us, double{kMostCalls})));
  const int repeats = std::clamp(static_cast<int>(kLongestSeconds * 1e6 / (us * calls)), 3, options.repeats);
  const GraphExec exec = capture(stream.get(), calls, enqueue);
  std::vector<Event> events(static_cast<std::size_t>(repeats) + 1);
  for (Event& event : events) check_cuda(cudaEventCreate(event.to_fill()), "cudaEventCreate");
  const auto replay = [&] { check_cuda(cudaGraphLaunch(exec.get(), stream.get()), "cudaGraphLaunch"); };
  replay();
  record(events[0], stream.get());
  for (std::size_t i = 1; i < events.size(); ++i) {
    replay();
    record(events[i], stream.get());
  }
  Timing timing;
  timing.clocks = clocks();  // The GPU is at it.
  check_cuda(cudaStreamSynchronize(stream.get()), "the timed calls");
  timing.calls = calls;
  for (std::size_t i = 1; i < events.size(); ++i) {
    timing.us.push_back(elapsed_ms(events[i - 1], events[i]) * kUsPerMs / calls);
  }
  return timing;
}

// Here too, so that each kernel is compiled in one place: memory and rows.

namespace {

template <Stream kOp>
void enqueue_stream(CudaBench& bench, const StreamArguments& arguments, cudaStream_t on) {
  stream<kOp><<<bench.stream_blocks(), kStreamThreads, 0, on>>>(arguments);
  check_launch("stream");
}

}  // namespace

Timing measure_memory(CudaBench& bench, const MemoryShape& shape, const TimingOptions& options) {
  const std::int64_t words = shape.bytes / static_cast<std::int64_t>(sizeof(Vec16));
  auto* from = bench.arena->take<Vec16>(words);
  auto* to = shape.op == MemoryOp::kCopy ? bench.arena->take<Vec16>(words) : from;
  bench.fill_bf16(from, shape.bytes);
  const StreamArguments arguments{from, to, words};
  Timing timing = bench.time(
      1,
      [&](cudaStream_t on, int) {
        if (shape.op == MemoryOp::kRead) enqueue_stream<Stream::kRead>(bench, arguments, on);
        if (shape.op == MemoryOp::kWrite) enqueue_stream<Stream::kWrite>(bench, arguments, on);
        if (shape.op == MemoryOp::kCopy) enqueue_stream<Stream::kCopy>(bench, arguments, on);
      },
      options);
  timing.implementation = "own";
  return timing;
}

void enqueue_quantise(const std::uint16_t* input, void* output, float* scales, std::int64_t rows,
                      std::int64_t columns, cudaStream_t on) {
  const RowArguments arguments{input, nullptr, nullptr, output, scales, static_cast<std::int32_t>(columns)};
  quantise_e4m3<<<static_cast<unsigned>(rows), kRowThreads, kRowSharedBytes, on>>>(arguments);
  check_launch("quantise_e4m3");
}

void enqueue_dequantise(const std::uint32_t* packed, const std::uint16_t* scales, std::uint16_t* output,
                        std::int64_t rows, std::int64_t columns, cudaStream_t on) {
  const Int4Arguments arguments{packed, scales, output, static_cast<std::int32_t>(columns)};
  dequantise_int4<<<static_cast<unsigned>(rows), kRowThreads, 0, on>>>(arguments);
  check_launch("dequantise_int4");
}

RowBuffers take_rows(CudaBench& bench, const RowShape& shape, int copies) {
  const std::int64_t numbers = shape.rows * shape.columns;
  RowBuffers rows;
  rows.numbers = numbers;
  rows.input_numbers = shape.op == RowOp::kSiluAndMul ? 2 * numbers : numbers;
  rows.input = bench.arena->take<std::uint16_t>(copies * rows.input_numbers);
  rows.residual = bench.arena->take<std::uint16_t>(copies * numbers);
  rows.weight = bench.arena->take<std::uint16_t>(shape.columns);
  rows.output = bench.arena->take<std::uint16_t>(copies * numbers);
  rows.scales = bench.arena->take<float>(shape.rows);
  bench.fill_bf16(rows.input, copies * rows.input_numbers * 2);
  bench.fill_bf16(rows.residual, copies * numbers * 2);
  bench.fill_bf16(rows.weight, shape.columns * 2);
  return rows;
}

void enqueue_rows(const RowShape& shape, const RowBuffers& rows, int copy, cudaStream_t on) {
  const auto blocks = static_cast<unsigned>(shape.rows);
  const RowArguments arguments{
      rows.input + copy * rows.input_numbers, rows.weight, rows.residual + copy * rows.numbers,
      rows.output + copy * rows.numbers,      rows.scales, static_cast<std::int32_t>(shape.columns)};
  if (shape.op == RowOp::kRmsNorm) rms_norm<<<blocks, kRowThreads, kRowSharedBytes, on>>>(arguments);
  if (shape.op == RowOp::kSiluAndMul) silu_and_mul<<<blocks, kRowThreads, 0, on>>>(arguments);
  if (shape.op == RowOp::kQuantise) quantise_e4m3<<<blocks, kRowThreads, kRowSharedBytes, on>>>(arguments);
  check_launch(name_of(shape.op));
}

Timing measure_rows(CudaBench& bench, const RowShape& shape, const TimingOptions& options) {
  const int copies = bench.copies_for(bytes_moved(shape));
  const RowBuffers rows = take_rows(bench, shape, copies);
  Timing timing = bench.time(
      copies, [&](cudaStream_t on, int i) { enqueue_rows(shape, rows, i % copies, on); }, options);
  timing.implementation = "own";
  return timing;
}

}  // namespace kneepoint::microbench
