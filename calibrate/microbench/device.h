// The GPU as the measuring loop sees it: facts, and the time of a shape. The real one
// is CUDA (cuda_device.h); tests put one of known rates in its place.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "calibrate/microbench/shapes.h"

namespace kneepoint::microbench {

/// What the driver says. Figures that it does not tell are 0, texts empty.
struct DeviceFacts {
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  std::int64_t sm_count = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;       ///< All, as cudaMemGetInfo counts.
  std::int64_t free_memory_bytes = 0;  ///< When the program began.
  std::int64_t shared_bytes_per_sm = 0;
  std::int64_t shared_bytes_per_block = 0;  ///< With opt-in.
  std::int64_t registers_per_sm = 0;
  double memory_clock_mhz = 0;
  std::int64_t memory_bus_bits = 0;
  double max_sm_clock_mhz = 0;
  double power_limit_w = 0;
  double default_power_limit_w = 0;
  bool ecc = false;
  int num_gpus = 1;
  std::string driver_version;
  std::string cuda_version;
  std::string cublas_version;
  std::string cudnn_version;
  std::string nccl_version;
};

/// What the clocks did while a shape was measured.
struct ClockState {
  double sm_mhz = 0;
  double memory_mhz = 0;
  double temperature_c = 0;
  double power_w = 0;
  std::vector<std::string> throttle;  ///< "power cap", "thermal": why the clock is below its maximum.
};

struct Timing {
  std::vector<double> us;      ///< Of one call, one number for each repeat.
  std::int64_t calls = 0;      ///< Of a repeat.
  std::string implementation;  ///< "cublasLt", "own", "cudnn", "nccl", "driver".
  ClockState clocks;
};

struct TimingOptions {
  int repeats = 7;
  double seconds = 0.02;  ///< All repeats together, where calls are short.
};

/// How a kernel of ours compares with the reference in double.
struct Comparison {
  std::string what;
  double error = 0;  ///< Over the largest expected number.
  double allowed = 0;
};

/// This shape cannot be measured here, and why; others can.
class ShapeSkipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The GPU or a library failed; nothing more can be measured.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual DeviceFacts facts() = 0;
  /// Throws ShapeSkipped or DeviceError.
  [[nodiscard]] virtual Timing measure(const Shape& shape, const TimingOptions& options) = 0;
  /// Kernels against their references, on small shapes.
  [[nodiscard]] virtual std::vector<Comparison> check() = 0;
};

}  // namespace kneepoint::microbench
