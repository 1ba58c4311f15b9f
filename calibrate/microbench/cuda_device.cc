#include "calibrate/microbench/cuda_device.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "calibrate/microbench/all_reduce_bench.h"
#include "calibrate/microbench/attention_bench.h"
#include "calibrate/microbench/cuda_bench.h"
#include "calibrate/microbench/gemm_bench.h"
#include "calibrate/microbench/latency_bench.h"
#include "calibrate/microbench/number_formats.h"
#include "calibrate/microbench/reference.h"
#include "calibrate/microbench/row_bench.h"

namespace kneepoint::microbench {

namespace {

constexpr double kKilo = 1e3;

std::int64_t attribute(cudaDeviceAttr name, int gpu) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, name, gpu), "cudaDeviceGetAttribute");
  return value;
}

std::string cuda_version_text(int version) {  // 13000
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string bus_id_of(int gpu) {
  std::array<char, 32> id{};
  check_cuda(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), gpu), "cudaDeviceGetPCIBusId");
  return id.data();
}

DeviceFacts facts_of(int gpu) {
  DeviceFacts facts;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
  facts.name = properties.name;
  facts.capability_major = properties.major;
  facts.capability_minor = properties.minor;
  facts.sm_count = properties.multiProcessorCount;
  facts.l2_bytes = properties.l2CacheSize;
  facts.shared_bytes_per_sm = static_cast<std::int64_t>(properties.sharedMemPerMultiprocessor);
  facts.shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  facts.registers_per_sm = properties.regsPerMultiprocessor;
  facts.memory_bus_bits = properties.memoryBusWidth;
  facts.memory_clock_mhz = static_cast<double>(attribute(cudaDevAttrMemoryClockRate, gpu)) / kKilo;
  facts.max_sm_clock_mhz = static_cast<double>(attribute(cudaDevAttrClockRate, gpu)) / kKilo;
  std::size_t free = 0;
  std::size_t all = 0;
  check_cuda(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  facts.memory_bytes = static_cast<std::int64_t>(all);
  facts.free_memory_bytes = static_cast<std::int64_t>(free);
  check_cuda(cudaGetDeviceCount(&facts.num_gpus), "cudaGetDeviceCount");
  int version = 0;
  check_cuda(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  facts.cuda_version = cuda_version_text(version);
  check_cuda(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  facts.driver_version = "CUDA " + cuda_version_text(version);  // NVML knows better.
  facts.cublas_version = std::to_string(cublasLtGetVersion());
  return facts;
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int gpu, std::vector<std::string>& notes) {
    check_cuda(cudaSetDevice(gpu), "cudaSetDevice");
    bench_.facts = facts_of(gpu);
    std::string why;
    bench_.nvml = Nvml::open(bus_id_of(gpu), why);
    if (bench_.nvml) {
      bench_.nvml->add_facts(bench_.facts);
    } else {
      notes.push_back("no clocks, power and throttle reasons: " + why);
    }
    check_cuda(cudaStreamCreate(bench_.stream.to_fill()), "cudaStreamCreate");
    gemm_ = std::make_unique<GemmBench>(bench_);
    attention_ = std::make_unique<AttentionBench>(bench_);
    all_reduce_ = std::make_unique<AllReduceBench>();
    bench_.facts.nccl_version = all_reduce_->version();
    if (attention_->cudnn() != nullptr) {
      bench_.facts.cudnn_version = attention_->cudnn()->version();
    } else {
      notes.emplace_back("prefill attention by our own kernel: no cuDNN");
    }
    // What the libraries took is gone by now; leave them some more.
    std::size_t free = 0;
    std::size_t all = 0;
    check_cuda(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    constexpr std::int64_t kMost = std::int64_t{32} << 30;
    bench_.arena =
        std::make_unique<Arena>(std::min<std::int64_t>(kMost, static_cast<std::int64_t>(free) * 8 / 10));
    // Shapes are planned for what the arena can hold.
    bench_.facts.free_memory_bytes = bench_.arena->size();
  }

  [[nodiscard]] DeviceFacts facts() override { return bench_.facts; }

  [[nodiscard]] Timing measure(const Shape& shape, const TimingOptions& options) override {
    bench_.arena->clear();
    return std::visit([&](const auto& s) { return measure_one(s, options); }, shape);
  }

  [[nodiscard]] std::vector<Comparison> check() override {
    std::vector<Comparison> all = gemm_->check();
    for (Comparison& comparison : attention_->check()) all.push_back(std::move(comparison));
    for (const RowOp op : {RowOp::kSiluAndMul, RowOp::kQuantise, RowOp::kRmsNorm})
      all.push_back(check_rows(op));
    return all;
  }

 private:
  Timing measure_one(const MemoryShape& s, const TimingOptions& o) { return measure_memory(bench_, s, o); }
  Timing measure_one(const GemmShape& s, const TimingOptions& o) { return gemm_->measure(s, o); }
  Timing measure_one(const DecodeShape& s, const TimingOptions& o) { return attention_->measure(s, o); }
  Timing measure_one(const PrefillShape& s, const TimingOptions& o) { return attention_->measure(s, o); }
  Timing measure_one(const RowShape& s, const TimingOptions& o) { return measure_rows(bench_, s, o); }
  Timing measure_one(const LatencyShape& s, const TimingOptions& o) { return measure_latency(bench_, s, o); }
  Timing measure_one(const AllReduceShape& s, const TimingOptions& o) {
    Timing timing = all_reduce_->measure(s, o);
    timing.clocks = bench_.clocks();
    return timing;
  }

  Comparison check_rows(RowOp op);

  CudaBench bench_;
  std::unique_ptr<GemmBench> gemm_;
  std::unique_ptr<AttentionBench> attention_;
  std::unique_ptr<AllReduceBench> all_reduce_;
};

std::vector<double> numbers_of(const std::vector<std::uint16_t>& bits) {
  std::vector<double> out;
  for (const std::uint16_t b : bits) out.push_back(decode(b, kBf16Format));
  return out;
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

Comparison CudaDevice::check_rows(RowOp op) {
  bench_.arena->clear();
  const RowShape shape{op, 3, 4096};
  const RowBuffers rows = take_rows(bench_, shape, 1);
  const auto residual = numbers_of(download(rows.residual, rows.numbers));
  enqueue_rows(shape, rows, 0, bench_.stream.get());
  check_cuda(cudaStreamSynchronize(bench_.stream.get()), "a checked row kernel");
  const auto input = numbers_of(download(rows.input, rows.input_numbers));
  const auto weight = numbers_of(download(rows.weight, shape.columns));
  const auto scales = download(rows.scales, shape.rows);
  const auto raw = download(reinterpret_cast<const unsigned char*>(rows.output), 2 * rows.numbers);
  const auto columns = static_cast<std::size_t>(shape.columns);
  std::vector<double> expected;
  std::vector<double> got;
  for (std::size_t row = 0; row < static_cast<std::size_t>(shape.rows); ++row) {
    double squares = 0;
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
      squares += (input[i] + residual[i]) * (input[i] + residual[i]);
    }
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t i = row * columns + c;
      const auto bits = static_cast<std::uint16_t>(raw[2 * i] | raw[2 * i + 1] << 8);
      got.push_back(op == RowOp::kQuantise ? decode(raw[i], kE4m3Format) * static_cast<double>(scales[row])
                                           : decode(bits, kBf16Format));
      if (op == RowOp::kQuantise) expected.push_back(input[i]);
      if (op == RowOp::kSiluAndMul) {
        expected.push_back(silu(input[2 * row * columns + c]) * input[(2 * row + 1) * columns + c]);
      }
      if (op == RowOp::kRmsNorm) {
        expected.push_back((input[i] + residual[i]) /
                           std::sqrt(squares / static_cast<double>(columns) + 1e-6) * weight[c]);
      }
    }
  }
  // e4m3 keeps three bits: a sixteenth of the number at most.
  return {describe(shape), relative_error(got, expected), op == RowOp::kQuantise ? 0.0626 : 0.01};
}

}  // namespace

std::unique_ptr<Device> open_cuda_device(int index, std::vector<std::string>& notes) {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "no GPU can be used (is there a driver, as new as the toolkit?)");
  if (index < 0 || index >= count) {
    throw DeviceError("--device " + std::to_string(index) + ": this machine has GPUs 0 to " +
                      std::to_string(count - 1));
  }
  return std::make_unique<CudaDevice>(index, notes);
}

}  // namespace kneepoint::microbench
