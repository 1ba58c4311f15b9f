// All-reduce between the GPUs of this machine by NCCL, as it runs inside a CUDA graph:
// one thread a GPU captures many calls and replays them together with the others.
//
// NCCL is loaded at run time, so that the program also starts without it; built
// without its header, it says that it was.
#pragma once

#include <memory>
#include <string>

#include "calibrate/microbench/device.h"

namespace kneepoint::microbench {

class AllReduceBench {
 public:
  AllReduceBench();
  ~AllReduceBench();
  AllReduceBench(const AllReduceBench&) = delete;
  AllReduceBench& operator=(const AllReduceBench&) = delete;

  /// "" without NCCL.
  [[nodiscard]] std::string version() const;
  /// bf16 sums. Clocks are the caller's to add. Leaves the current device as it was.
  [[nodiscard]] Timing measure(const AllReduceShape& shape, const TimingOptions& options);

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

}  // namespace kneepoint::microbench
