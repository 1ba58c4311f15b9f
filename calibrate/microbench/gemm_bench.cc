#include "calibrate/microbench/gemm_bench.h"

#include <cstdint>

#include "calibrate/microbench/number_formats.h"
#include "calibrate/microbench/reference.h"
#include "calibrate/microbench/row_bench.h"

namespace kneepoint::microbench {

namespace {

constexpr std::size_t kWorkspaceBytes = 32 << 20;
constexpr std::int64_t kInt4Group = 128;

using MatmulDesc = Owned<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy>;

template <class T>
void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

void make_layout(Layout& layout, cudaDataType type, std::int64_t rows, std::int64_t columns) {
  check_cublas(cublasLtMatrixLayoutCreate(layout.to_fill(), type, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), rows),
               "cublasLtMatrixLayoutCreate");
}

std::int64_t number_bytes(Precision precision) {
  return precision == Precision::kFp8 ? 1 : 2;
}

// Of one copy of the weights as they lie in memory.
std::int64_t weight_bytes(const GemmShape& s) {
  if (s.precision == Precision::kInt4) return s.n * s.k / 2 + 2 * s.n * (s.k / kInt4Group);
  return s.n * s.k * number_bytes(s.precision);
}

}  // namespace

struct GemmBench::Buffers {
  unsigned char* weights = nullptr;  // copies x weight_bytes, each rounded up to 256.
  std::int64_t weight_stride = 0;
  std::uint16_t* wide_weights = nullptr;  // INT4: what the kernel widens to.
  std::uint16_t* input = nullptr;         // bf16; FP8 without quantisation: e4m3 in the same place.
  unsigned char* quantised = nullptr;
  float* row_scales = nullptr;
  float* one = nullptr;  // The scale of FP8 operands.
  std::uint16_t* output = nullptr;
  void* workspace = nullptr;
};

struct GemmBench::Plan {
  MatmulDesc desc;
  Layout weights;
  Layout input;
  Layout output;
  cublasLtMatmulAlgo_t algorithm{};
};

GemmBench::GemmBench(CudaBench& bench) : bench_(bench) {
  check_cublas(cublasLtCreate(handle_.to_fill()), "cublasLtCreate");
}

GemmBench::Buffers GemmBench::take_buffers(const GemmShape& s, int copies) {
  Arena& arena = *bench_.arena;
  Buffers buffers;
  constexpr std::int64_t kAlignment = 256;
  buffers.weight_stride = (weight_bytes(s) + kAlignment - 1) / kAlignment * kAlignment;
  buffers.weights = arena.take<unsigned char>(copies * buffers.weight_stride);
  buffers.input = arena.take<std::uint16_t>(s.m * s.k);
  buffers.output = arena.take<std::uint16_t>(s.m * s.n);
  buffers.workspace = arena.take<unsigned char>(kWorkspaceBytes);
  buffers.one = arena.take<float>(1);
  upload(buffers.one, std::vector<float>{1});
  const std::int64_t all = copies * buffers.weight_stride;
  if (s.precision == Precision::kBf16) bench_.fill_bf16(buffers.weights, all);
  if (s.precision == Precision::kFp8) bench_.fill_e4m3(buffers.weights, all);
  if (s.precision == Precision::kInt4) {
    bench_.fill_bits(buffers.weights, all);
    // The scales, behind the numbers of each copy, are bf16: random bits could be no numbers.
    for (int copy = 0; copy < copies; ++copy) {
      bench_.fill_bf16(buffers.weights + copy * buffers.weight_stride + s.n * s.k / 2,
                       2 * s.n * (s.k / kInt4Group));
    }
    buffers.wide_weights = arena.take<std::uint16_t>(s.n * s.k);
  }
  if (s.precision == Precision::kFp8) {
    buffers.quantised = arena.take<unsigned char>(s.m * s.k);
    buffers.row_scales = arena.take<float>(s.m);
    bench_.fill_e4m3(buffers.quantised, s.m * s.k);
  }
  bench_.fill_bf16(buffers.input, 2 * s.m * s.k);
  return buffers;
}

GemmBench::Plan GemmBench::plan(const GemmShape& s, const float* one) {
  const bool fp8 = s.precision == Precision::kFp8;
  const cudaDataType type = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  Plan plan;
  check_cublas(cublasLtMatmulDescCreate(plan.desc.to_fill(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  if (fp8) {
    set(plan.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});  // As servers do.
    set(plan.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(one));
    set(plan.desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(one));
  }
  make_layout(plan.weights, type, s.k, s.n);
  make_layout(plan.input, type, s.k, s.m);
  make_layout(plan.output, CUDA_R_16BF, s.n, s.m);
  Preference preference;
  check_cublas(cublasLtMatmulPreferenceCreate(preference.to_fill()), "cublasLtMatmulPreferenceCreate");
  check_cublas(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &kWorkspaceBytes, sizeof kWorkspaceBytes),
      "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), plan.desc.get(), plan.weights.get(), plan.input.get(), plan.output.get(),
      plan.output.get(), preference.get(), 1, &found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0)) {
    throw ShapeSkipped(std::string("cublasLt has no kernel for ") + name_of(s.precision) + " of this shape");
  }
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  plan.algorithm = found.algo;
  return plan;
}

void GemmBench::enqueue(const GemmShape& s, const Plan& plan, const Buffers& buffers, int copy,
                        cudaStream_t on) {
  const unsigned char* stored = buffers.weights + copy * buffers.weight_stride;
  const void* weights = stored;
  const void* input = buffers.input;
  if (s.precision == Precision::kInt4) {
    const auto* packed = reinterpret_cast<const std::uint32_t*>(stored);
    const auto* scales = reinterpret_cast<const std::uint16_t*>(stored + s.n * s.k / 2);
    enqueue_dequantise(packed, scales, buffers.wide_weights, s.n, s.k, on);
    weights = buffers.wide_weights;
  }
  if (s.precision == Precision::kFp8) {
    if (s.quantise) enqueue_quantise(buffers.input, buffers.quantised, buffers.row_scales, s.m, s.k, on);
    input = buffers.quantised;
  }
  constexpr float kAlpha = 1;
  constexpr float kBeta = 0;
  check_cublas(cublasLtMatmul(handle_.get(), plan.desc.get(), &kAlpha, weights, plan.weights.get(), input,
                              plan.input.get(), &kBeta, buffers.output, plan.output.get(), buffers.output,
                              plan.output.get(), &plan.algorithm, buffers.workspace, kWorkspaceBytes, on),
               "cublasLtMatmul");
}

Timing GemmBench::measure(const GemmShape& s, const TimingOptions& options) {
  const int copies = bench_.copies_for(weight_bytes(s));
  const Buffers buffers = take_buffers(s, copies);
  const Plan ready = plan(s, buffers.one);
  Timing timing = bench_.time(
      copies, [&](cudaStream_t on, int i) { enqueue(s, ready, buffers, i % copies, on); }, options);
  timing.implementation = s.precision == Precision::kInt4 ? "dequantise + cublasLt"
                          : s.quantise                    ? "quantise + cublasLt"
                                                          : "cublasLt";
  return timing;
}

namespace {

// A row of the operand that the product really read, as numbers.
std::vector<double> weight_row(const GemmShape& s, const std::vector<unsigned char>& stored,
                               std::int64_t row) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < s.k; ++i) {
    const auto at = static_cast<std::size_t>(row * s.k + i);
    if (s.precision == Precision::kFp8) {
      numbers.push_back(decode(stored[at], kE4m3Format));
    } else if (s.precision == Precision::kBf16) {
      numbers.push_back(
          decode(static_cast<std::uint16_t>(stored[2 * at] | stored[2 * at + 1] << 8), kBf16Format));
    } else {
      const int nibble = stored[at / 2] >> (4 * (at % 2)) & 15;
      const auto scale =
          static_cast<std::size_t>(s.n * s.k / 2 + 2 * (row * (s.k / kInt4Group) + i / kInt4Group));
      const double unit =
          decode(static_cast<std::uint16_t>(stored[scale] | stored[scale + 1] << 8), kBf16Format);
      // The kernel rounds the widened weight to bf16.
      numbers.push_back(decode(encode((nibble - 8) * unit, kBf16Format), kBf16Format));
    }
  }
  return numbers;
}

}  // namespace

std::vector<Comparison> GemmBench::check() {
  // Results are rounded to bf16, 2^-9 at most, over sums in float.
  constexpr double kAllowed = 0.01;
  std::vector<Comparison> all;
  std::vector<GemmShape> shapes{{Precision::kBf16, 33, 256, 512}, {Precision::kInt4, 16, 256, 512}};
  if (bench_.facts.capability_major * 10 + bench_.facts.capability_minor >= 89) {
    shapes.push_back({Precision::kFp8, 48, 256, 512});
    shapes.push_back({Precision::kFp8, 48, 256, 512, true});
  }
  for (const GemmShape& s : shapes) {
    bench_.arena->clear();
    const Buffers buffers = take_buffers(s, 2);
    const Plan ready = plan(s, buffers.one);
    enqueue(s, ready, buffers, 1, bench_.stream.get());  // The second copy: strides count.
    check_cuda(cudaStreamSynchronize(bench_.stream.get()), "a checked product");
    const auto stored = download(buffers.weights + buffers.weight_stride, weight_bytes(s));
    const auto output = download(buffers.output, s.m * s.n);
    const auto wide = download(buffers.input, s.m * s.k);
    const auto narrow = s.precision == Precision::kFp8 ? download(buffers.quantised, s.m * s.k)
                                                       : std::vector<unsigned char>{};
    std::vector<double> expected;
    std::vector<double> got;
    for (std::int64_t n = 0; n < s.n; n += 7) {
      const std::vector<double> w = weight_row(s, stored, n);
      for (std::int64_t m = 0; m < s.m; m += 5) {
        std::vector<double> x;
        for (std::int64_t i = 0; i < s.k; ++i) {
          const auto at = static_cast<std::size_t>(m * s.k + i);
          x.push_back(narrow.empty() ? decode(wide[at], kBf16Format) : decode(narrow[at], kE4m3Format));
        }
        expected.push_back(reference_dot(x, w));
        got.push_back(decode(output[static_cast<std::size_t>(m * s.n + n)], kBf16Format));
      }
    }
    all.push_back({describe(s), relative_error(got, expected), kAllowed});
  }
  return all;
}

}  // namespace kneepoint::microbench
