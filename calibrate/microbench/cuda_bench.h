// What the benches of all families share: the stream, the arena, random data, and the
// way of timing.
//
// A time is that of one call among many in a CUDA graph, as servers replay their steps,
// so the launch from the CPU is not in it. Consecutive calls use other copies of what a
// server would read from memory (weights, KV), as many as fill L2 three times. The graph
// is replayed a few times between two events each.
//
// Source  NVIDIA, "CUDA C++ Programming Guide" 13.0, sections on graphs and events.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "calibrate/microbench/cuda_support.h"
#include "calibrate/microbench/device.h"
#include "calibrate/microbench/nvml.h"

namespace kneepoint::microbench {

/// Call number `i` on the stream.
using Enqueue = std::function<void(cudaStream_t stream, int i)>;

struct CudaBench {
  DeviceFacts facts;
  StreamHandle stream;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Nvml> nvml;  ///< Null without the driver's library.
  std::uint64_t seed = 1;

  /// How many copies of `bytes` fill L2 three times; 1 to 256. More if the arena has no room for them is the
  /// caller's to see: it asks the arena.
  [[nodiscard]] int copies_for(std::int64_t bytes) const;

  /// Blocks of threads for a kernel that strides over memory.
  [[nodiscard]] unsigned stream_blocks() const;

  void fill_bf16(void* to, std::int64_t bytes);
  void fill_e4m3(void* to, std::int64_t bytes);
  void fill_bits(void* to, std::int64_t bytes);

  /// Calls 0, 1, ... in a graph, `copies` at least.
  [[nodiscard]] Timing time(int copies, const Enqueue& enqueue, const TimingOptions& options);

  [[nodiscard]] ClockState clocks() const { return nvml ? nvml->clocks() : ClockState{}; }
};

}  // namespace kneepoint::microbench
