// Every call to CUDA is checked, every resource has an owner.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/microbench/device.h"

namespace kneepoint::microbench {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(status) + ", " + cudaGetErrorString(status));
}
inline void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string(what) + ": " + cublasLtGetStatusName(status));
}
/// After a launch by <<<>>>.
inline void check_launch(const char* kernel) {
  check_cuda(cudaGetLastError(), kernel);
}

/// Owns a handle that `kDestroy` gives back.
template <class Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Owned(Owned&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle_ != nullptr) kDestroy(handle_);
  }
  [[nodiscard]] Handle get() const { return handle_; }
  [[nodiscard]] Handle* to_fill() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

using StreamHandle = Owned<cudaStream_t, &cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, &cudaEventDestroy>;
using Graph = Owned<cudaGraph_t, &cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, &cudaGraphExecDestroy>;

/// One large piece of device memory, taken when the program begins and handed out
/// anew for every shape: allocation is not what is measured.
class Arena {
 public:
  explicit Arena(std::int64_t bytes) : size_(bytes) {
    check_cuda(cudaMalloc(&memory_, static_cast<std::size_t>(bytes)), "cudaMalloc of the arena");
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { cudaFree(memory_); }

  [[nodiscard]] std::int64_t size() const { return size_; }
  void clear() { used_ = 0; }

  /// Aligned to 256 bytes. Throws ShapeSkipped if not so much is left.
  template <class T>
  [[nodiscard]] T* take(std::int64_t count) {
    constexpr std::int64_t kAlignment = 256;
    const std::int64_t bytes =
        (count * static_cast<std::int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > size_ - used_) throw ShapeSkipped("needs more memory than is free");
    auto* place = static_cast<unsigned char*>(memory_) + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(place);
  }

 private:
  void* memory_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t used_ = 0;
};

template <class T>
void upload(T* to, const std::vector<T>& from) {
  check_cuda(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
             "cudaMemcpy to the GPU");
}
template <class T>
[[nodiscard]] std::vector<T> download(const T* from, std::int64_t count) {
  std::vector<T> to(static_cast<std::size_t>(count));
  check_cuda(cudaMemcpy(to.data(), from, to.size() * sizeof(T), cudaMemcpyDeviceToHost),
             "cudaMemcpy from the GPU");
  return to;
}

}  // namespace kneepoint::microbench
