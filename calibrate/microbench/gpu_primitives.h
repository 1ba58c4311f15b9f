// The few instructions that our kernels are made of, under one name each.
//
// nvcc sees them as inline PTX. Without nvcc the same names come from an emulator
// of warps on the CPU (tests/calibrate/emulated_gpu.h, included before this file),
// so that the very text of a kernel runs, and is checked against a reference, on
// a machine without a GPU.
//
// Numbers are kept as bits (std::uint16_t bf16 and f16, std::uint8_t e4m3).
//
//     mma_*        D[16 x 8] += A[16 x 16] B[16 x 8]; lane l with g = l / 4, t = l % 4 holds
//                  A: rows g, g + 8 and columns 2t, 2t + 1, 2t + 8, 2t + 9
//                  B: rows 2t, 2t + 1, 2t + 8, 2t + 9 of column g
//                  D: rows g, g + 8 and columns 2t, 2t + 1
//     ldmatrix_*   four 8 x 8 matrices of 16 bits; lane l names row l % 8 of matrix l / 8, and gets
//                  of each matrix row g, columns 2t, 2t + 1 (transposed: column g, rows 2t, 2t + 1)
//     copy_async   16 bytes from global to shared memory, behind the thread's back
//
// Source  NVIDIA, "Parallel Thread Execution ISA" 9.0, sections on mma.m16n8k16, ldmatrix and cp.async.
#pragma once

#include <cstdint>

namespace kneepoint::microbench {

/// Four 32-bit words that are read and written at once.
struct alignas(16) Vec16 {
  std::uint32_t word[4];
};

}  // namespace kneepoint::microbench

#ifdef __CUDACC__

#include <cuda_fp8.h>

namespace kneepoint::microbench {

#define KP_UNROLL _Pragma("unroll")
#define KP_SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

__device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x % 32);
}

__device__ inline float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffU, value, mask);
}
__device__ inline int shuffle_from(int value, int lane) {
  return __shfl_sync(0xffffffffU, value, lane);
}

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Writes zeros, and reads nothing, where `valid` is false.
__device__ inline void copy_async(void* shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ inline void copy_async_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int kPending>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix_x4_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                               std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to nearest even, the first one in the low half.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ inline std::uint32_t pack_f16(float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ inline std::uint16_t pack_e4m3(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

__device__ inline float bits_to_float(std::uint32_t bits) {
  return __uint_as_float(bits);
}

}  // namespace kneepoint::microbench

#endif  // __CUDACC__

namespace kneepoint::microbench {

/// bf16 is the upper half of a float: widening is a shift.
__host__ __device__ inline std::uint32_t low_bf16(std::uint32_t pair) {
  return pair << 16;
}
__host__ __device__ inline std::uint32_t high_bf16(std::uint32_t pair) {
  return pair & 0xffff0000U;
}

/// Four e4m3 bytes (b0 lowest) as f16 pairs (b0, b2) and (b1, b3), each number
/// times 2^-8: both formats put the sign first and the exponent behind it, and a
/// shift by 7 turns 4 bits of exponent (bias 7) into 5 (bias 15). Exact, and also
/// for subnormals.
constexpr float kE4m3Unit = 256;
__host__ __device__ inline std::uint32_t widen_e4m3(std::uint32_t pair) {
  return ((pair & 0x00800080U) << 8) | ((pair & 0x007f007fU) << 7);
}
__host__ __device__ inline std::uint32_t even_e4m3(std::uint32_t four) {
  return widen_e4m3(four);
}
__host__ __device__ inline std::uint32_t odd_e4m3(std::uint32_t four) {
  return widen_e4m3(four >> 8);
}

}  // namespace kneepoint::microbench
