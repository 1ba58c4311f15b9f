// A GPU of one SM on the CPU, to run the text of our CUDA kernels where there is no
// GPU. Include it before a kernel's header.
//
// Every thread of a block is a fiber. A fiber runs until it meets a barrier or an
// instruction of the whole warp (shuffle, ldmatrix, mma), where it waits for the
// others; what a warp does together is then done once, by the last to come. Fibers are
// resumed upwards or downwards, as the test asks: a kernel that forgot a barrier gives
// different results. A fiber that waits for ever stops the test.
//
// copy_async is late on purpose: the target holds rubbish until the thread has waited
// for the group, so a missing wait is seen. Shared memory and arrays have their exact
// sizes, so AddressSanitizer sees what reaches past them.
//
// Not emulated: bank conflicts, alignment of registers, anything about time.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "calibrate/microbench/number_formats.h"

#define __host__
#define __device__
#define __global__
#define __launch_bounds__(...)
#define KP_UNROLL

namespace kneepoint::microbench {

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

// As CUDA names them; set before a fiber is resumed.
inline Dim3 threadIdx;
inline Dim3 blockIdx;
inline Dim3 gridDim;

class EmulatedGpu {
 public:
  static EmulatedGpu& get() {
    static EmulatedGpu gpu;
    return gpu;
  }

  /// Runs `kernel` on every block, one after the other.
  void launch(Dim3 grid, unsigned threads, std::size_t shared_bytes, bool downwards,
              std::function<void()> kernel) {
    gridDim = grid;
    kernel_ = std::move(kernel);
    for (unsigned z = 0; z < grid.z; ++z) {
      for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; ++x) {
          blockIdx = {x, y, z};
          run_block(threads, shared_bytes, downwards);
        }
      }
    }
  }

  unsigned char* shared_memory() { return shared_.get(); }

  void block_barrier() {
    wait(block_, static_cast<int>(fibers_.size()), [] {});
  }

  /// All lanes of the warp bring `in` and take `out`; `all` sees the 32 of both.
  template <class In, class Out, class All>
  void together(const In& in, Out& out, const All& all) {
    Warp& warp = warps_[threadIdx.x / 32];
    warp.in[threadIdx.x % 32] = &in;
    warp.out[threadIdx.x % 32] = &out;
    wait(warp.meeting, 32, [&] {
      const In* ins[32];
      Out* outs[32];
      for (int lane = 0; lane < 32; ++lane) {
        ins[lane] = static_cast<const In*>(warp.in[lane]);
        outs[lane] = static_cast<Out*>(warp.out[lane]);
      }
      all(ins, outs);
    });
  }

  void copy(void* to, const void* from, bool valid) {
    std::memset(to, 0xcd, 16);
    fibers_[threadIdx.x]->open_group.push_back({to, from, valid});
  }
  void commit() {
    Fiber& fiber = *fibers_[threadIdx.x];
    fiber.groups.push_back(std::move(fiber.open_group));
    fiber.open_group.clear();
  }
  void wait_groups(std::size_t pending) {
    Fiber& fiber = *fibers_[threadIdx.x];
    while (fiber.groups.size() > pending) {
      for (const Copy& copy : fiber.groups.front()) {
        if (copy.valid) {
          std::memcpy(copy.to, copy.from, 16);
        } else {
          std::memset(copy.to, 0, 16);
        }
      }
      fiber.groups.erase(fiber.groups.begin());
    }
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    bool valid;
  };
  struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false;
    std::vector<Copy> open_group;
    std::vector<std::vector<Copy>> groups;
  };
  struct Meeting {
    int arrived = 0;
    std::uint64_t held = 0;
  };
  struct Warp {
    Meeting meeting;
    const void* in[32];
    void* out[32];
  };

  template <class Last>
  void wait(Meeting& meeting, int expected, const Last& last) {
    const unsigned self = threadIdx.x;
    if (++meeting.arrived == expected) {
      last();
      meeting.arrived = 0;
      ++meeting.held;
      moved_ = true;
      return;
    }
    const std::uint64_t held = meeting.held;
    while (meeting.held == held) swapcontext(&fibers_[self]->context, &scheduler_);
  }

  static void enter() {
    EmulatedGpu& gpu = get();
    const unsigned self = threadIdx.x;
    gpu.kernel_();
    gpu.fibers_[self]->done = true;
    gpu.moved_ = true;
  }

  void run_block(unsigned threads, std::size_t shared_bytes, bool downwards) {
    constexpr std::size_t kStackBytes = 256 << 10;
    shared_.reset(new unsigned char[shared_bytes + 1]);
    std::memset(shared_.get(), 0xcd, shared_bytes);
    block_ = {};
    warps_.assign(threads / 32, {});
    while (fibers_.size() > threads) fibers_.pop_back();
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    for (const auto& fiber : fibers_) {
      fiber->stack.resize(kStackBytes);
      fiber->done = false;
      fiber->open_group.clear();
      fiber->groups.clear();
      getcontext(&fiber->context);
      fiber->context.uc_stack.ss_sp = fiber->stack.data();
      fiber->context.uc_stack.ss_size = fiber->stack.size();
      fiber->context.uc_link = &scheduler_;
      makecontext(&fiber->context, &EmulatedGpu::enter, 0);
    }
    for (bool all_done = false; !all_done;) {
      all_done = true;
      moved_ = false;
      for (unsigned i = 0; i < threads; ++i) {
        const unsigned next = downwards ? threads - 1 - i : i;
        if (fibers_[next]->done) continue;
        all_done = false;
        threadIdx.x = next;
        swapcontext(&scheduler_, &fibers_[next]->context);
      }
      if (!all_done && !moved_) {
        std::fprintf(stderr, "emulated GPU: threads of a block wait for ever\n");
        std::abort();
      }
    }
  }

  std::function<void()> kernel_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  Meeting block_;
  std::unique_ptr<unsigned char[]> shared_;
  ucontext_t scheduler_;
  bool moved_ = false;
};

// The names of gpu_primitives.h.

#define KP_SHARED_MEMORY(name) unsigned char* name = EmulatedGpu::get().shared_memory()

inline void __syncthreads() {
  EmulatedGpu::get().block_barrier();
}
inline void __syncwarp() {
  int none = 0;
  EmulatedGpu::get().together(none, none, [](const int* const*, int* const*) {});
}

inline int lane_id() {
  return static_cast<int>(threadIdx.x % 32);
}

template <class T, class From>
T exchange(T value, const From& from) {
  T out{};
  EmulatedGpu::get().together(value, out, [&](const T* const* in, T* const* outs) {
    for (int lane = 0; lane < 32; ++lane) *outs[lane] = *in[from(lane)];
  });
  return out;
}
inline float shuffle_xor(float value, int mask) {
  return exchange(value, [mask](int lane) { return lane ^ mask; });
}
inline int shuffle_from(int value, int source) {
  return exchange(value, [source](int) { return source; });
}

inline float exp2_fast(float x) {
  return std::exp2(x);
}
using std::fabs;
inline float fmaxf(float a, float b) {
  return std::fmax(a, b);
}
inline float fabsf(float a) {
  return std::fabs(a);
}
inline float sqrtf(float a) {
  return std::sqrt(a);
}

inline void copy_async(void* shared, const void* global, bool valid) {
  EmulatedGpu::get().copy(shared, global, valid);
}
inline void copy_async_commit() {
  EmulatedGpu::get().commit();
}
template <int kPending>
void copy_async_wait() {
  EmulatedGpu::get().wait_groups(kPending);
}

struct Registers {
  std::uint32_t r[4];
};

inline void load_matrices(std::uint32_t (&r)[4], const void* row, bool transposed) {
  Registers out{};
  EmulatedGpu::get().together(row, out, [&](const void* const* const* rows, Registers* const* outs) {
    const auto word = [&](int matrix, int i, int j) {
      std::uint16_t value;
      std::memcpy(&value, static_cast<const unsigned char*>(*rows[8 * matrix + i]) + 2 * j, 2);
      return static_cast<std::uint32_t>(value);
    };
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4;
      const int t = lane % 4;
      for (int matrix = 0; matrix < 4; ++matrix) {
        outs[lane]->r[matrix] = transposed ? word(matrix, 2 * t, g) | word(matrix, 2 * t + 1, g) << 16
                                           : word(matrix, g, 2 * t) | word(matrix, g, 2 * t + 1) << 16;
      }
    }
  });
  std::copy(out.r, out.r + 4, r);
}
inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  load_matrices(r, row, false);
}
inline void ldmatrix_x4_transposed(std::uint32_t (&r)[4], const void* row) {
  load_matrices(r, row, true);
}

struct MmaIn {
  std::uint32_t a[4];
  std::uint32_t b[2];
};
struct MmaOut {
  float* d;
};

inline void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                const NumberFormat& format) {
  const MmaIn in{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  MmaOut out{d};
  EmulatedGpu::get().together(in, out, [&](const MmaIn* const* ins, MmaOut* const* outs) {
    double left[16][16];
    double right[16][8];
    const auto half = [&](std::uint32_t pair, int i) {
      return decode(static_cast<std::uint16_t>(pair >> (16 * i)), format);
    };
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4;
      const int t = lane % 4;
      for (int i = 0; i < 2; ++i) {
        left[g][2 * t + i] = half(ins[lane]->a[0], i);
        left[g + 8][2 * t + i] = half(ins[lane]->a[1], i);
        left[g][2 * t + 8 + i] = half(ins[lane]->a[2], i);
        left[g + 8][2 * t + 8 + i] = half(ins[lane]->a[3], i);
        right[2 * t + i][g] = half(ins[lane]->b[0], i);
        right[2 * t + 8 + i][g] = half(ins[lane]->b[1], i);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        double sum = 0;
        for (int k = 0; k < 16; ++k)
          sum += left[lane / 4 + 8 * (i / 2)][k] * right[k][2 * (lane % 4) + i % 2];
        outs[lane]->d[i] += static_cast<float>(sum);
      }
    }
  });
}
inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  mma(d, a, b0, b1, kBf16Format);
}
inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  mma(d, a, b0, b1, kF16Format);
}

inline std::uint32_t pack_bf16(float low, float high) {
  return encode(low, kBf16Format) | static_cast<std::uint32_t>(encode(high, kBf16Format)) << 16;
}
inline std::uint32_t pack_f16(float low, float high) {
  return encode(low, kF16Format) | static_cast<std::uint32_t>(encode(high, kF16Format)) << 16;
}
inline std::uint16_t pack_e4m3(float low, float high) {
  return static_cast<std::uint16_t>(encode(low, kE4m3Format) | encode(high, kE4m3Format) << 8);
}
inline float bits_to_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace kneepoint::microbench
