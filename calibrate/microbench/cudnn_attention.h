// Causal attention by cuDNN's fused kernels, the nearest thing to what a server runs
// that a library offers.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "calibrate/microbench/shapes.h"

namespace kneepoint::microbench {

class Arena;

/// Rows of [sequence][token][head][128], bf16.
struct AttentionPointers {
  const void* queries;
  const void* keys;
  const void* values;
  void* outputs;
};

class CudnnAttention {
 public:
  class Plan;

  /// Null if the program was built without cuDNN, or it cannot be loaded.
  [[nodiscard]] static std::unique_ptr<CudnnAttention> open();
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  [[nodiscard]] std::string version() const;

  /// Null if cuDNN refuses the shape; refusal() then says why. Takes the workspace from `arena`.
  [[nodiscard]] std::unique_ptr<Plan> plan(const PrefillShape& shape, Arena& arena);
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

  void enqueue(const Plan& plan, const AttentionPointers& pointers, cudaStream_t on);

 private:
  struct Library;
  explicit CudnnAttention(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
  std::string refusal_;
};

class CudnnAttention::Plan {
 public:
  virtual ~Plan() = default;
};

}  // namespace kneepoint::microbench
