#include "calibrate/microbench/latency_bench.h"

#include <chrono>

namespace kneepoint::microbench {

namespace {

__global__ void do_nothing() {}

void launch_nothing(cudaStream_t on) {
  do_nothing<<<1, 32, 0, on>>>();
  check_launch("do_nothing");
}

void wait_for(cudaStream_t stream) {
  check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

// Pinned host memory of one page.
class PinnedPage {
 public:
  static constexpr std::size_t kBytes = 4096;
  PinnedPage() { check_cuda(cudaMallocHost(&memory_, kBytes), "cudaMallocHost"); }
  PinnedPage(const PinnedPage&) = delete;
  PinnedPage& operator=(const PinnedPage&) = delete;
  ~PinnedPage() { cudaFreeHost(memory_); }
  [[nodiscard]] void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

// Wall time of one `call`, on the CPU's clock, `then` after the clock has been read.
template <class Call, class Then>
Timing on_the_cpu(CudaBench& bench, const TimingOptions& options, const Call& call, const Then& then) {
  using Clock = std::chrono::steady_clock;
  constexpr int kCalls = 200;
  Timing timing;
  timing.calls = kCalls;
  timing.implementation = "driver";
  for (int i = 0; i < kCalls; ++i) call();
  then();
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::micro> spent = Clock::now() - begin;
    then();
    timing.us.push_back(spent.count() / kCalls);
  }
  timing.clocks = bench.clocks();
  return timing;
}

GraphExec graph_of_one(cudaStream_t stream) {
  Graph graph;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  launch_nothing(stream);
  check_cuda(cudaStreamEndCapture(stream, graph.to_fill()), "cudaStreamEndCapture");
  GraphExec exec;
  check_cuda(cudaGraphInstantiate(exec.to_fill(), graph.get(), 0), "cudaGraphInstantiate");
  return exec;
}

}  // namespace

Timing measure_latency(CudaBench& bench, const LatencyShape& shape, const TimingOptions& options) {
  cudaStream_t stream = bench.stream.get();
  const auto nothing = [] {};
  const auto wait = [stream] { wait_for(stream); };
  switch (shape.op) {
    case LatencyOp::kKernelLaunch:
      return on_the_cpu(
          bench, options,
          [&] {
            launch_nothing(stream);
            wait_for(stream);
          },
          nothing);
    case LatencyOp::kKernelLaunchCall:
      return on_the_cpu(
          bench, options, [&] { launch_nothing(stream); }, wait);
    case LatencyOp::kGraphNode: {
      Timing timing = bench.time(
          1, [](cudaStream_t on, int) { launch_nothing(on); }, options);
      timing.implementation = "driver";
      return timing;
    }
    case LatencyOp::kGraphLaunch: {
      const GraphExec exec = graph_of_one(stream);
      return on_the_cpu(
          bench, options,
          [&] {
            check_cuda(cudaGraphLaunch(exec.get(), stream), "cudaGraphLaunch");
            wait_for(stream);
          },
          nothing);
    }
    case LatencyOp::kHostToDevice:
    case LatencyOp::kDeviceToHost:
      break;
  }
  const bool to_device = shape.op == LatencyOp::kHostToDevice;
  const PinnedPage page;
  auto* memory = bench.arena->take<unsigned char>(PinnedPage::kBytes);
  return on_the_cpu(
      bench, options,
      [&] {
        void* to = to_device ? memory : page.get();
        const void* from = to_device ? page.get() : memory;
        check_cuda(cudaMemcpyAsync(to, from, PinnedPage::kBytes, cudaMemcpyDefault, stream),
                   "cudaMemcpyAsync");
        wait_for(stream);
      },
      nothing);
}

}  // namespace kneepoint::microbench
