#include "hw/forms_gemm.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace kneepoint::hw {

namespace {

constexpr double kMega = 1e6;
constexpr double kNsPerUs = 1e3;
// The tables fall off a cliff where the weights outgrow L2, they do not slope.
constexpr double kL2Sharpness = 8;
constexpr double kLargestTile = 128 * 128;

struct Tile {
  double rows;     // Tokens.
  double columns;  // Outputs.
};
// What the bf16 libraries have; the fastest one for a shape counts.
constexpr std::array kTiles{Tile{64, 64}, Tile{64, 128}, Tile{128, 64}, Tile{128, 128}, Tile{128, 256}};
constexpr std::array kSplits{1.0, 2.0, 4.0, 8.0, 16.0};

constexpr std::array<ParameterSpec<GemmBf16Params>, 12> kBf16Parameters{{
    {"launch", "us", &GemmBf16Params::launch_us, 0.5, 10, 3, "kernel start and end"},
    {"bandwidth", "1", &GemmBf16Params::bandwidth, 0.3, 1, 0.85, "share of nominal memory bandwidth reached"},
    {"overlap", "1", &GemmBf16Params::overlap, 1, 12, 3, "exponent that joins memory and arithmetic"},
    {"peak", "1", &GemmBf16Params::peak, 0.3, 1, 0.95, "share of an SM's peak reached inside a large tile"},
    {"small_tile", "1", &GemmBf16Params::small_tile, 1e-6, 4, 0.1,
     "loss of tiles below 128 x 128, which read more per FLOP"},
    {"split", "us", &GemmBf16Params::split_us, 0.02, 10, 0.5, "start of a tile, paid again by a split of k"},
    {"reduction", "1", &GemmBf16Params::reduction, 0.02, 5, 0.2,
     "bandwidth of adding up the parts of a split k, over nominal memory bandwidth"},
    {"throttle", "1", &GemmBf16Params::throttle, 1e-3, 2, 0.3, "lower clock and L2 misses of large products"},
    {"throttle_outputs", "Mi", &GemmBf16Params::throttle_outputs, 0.1, 1e3, 15,
     "outputs, in millions, at which half of the throttle is reached"},
    {"staging", "1", &GemmBf16Params::staging, 1e-3, 3, 0.3,
     "share of the activations' traffic that is not hidden behind arithmetic"},
    {"l2_bytes", "MB", &GemmBf16Params::l2_bytes, 1, 60, 12,
     "weights that stay in L2 over a benchmark's replays"},
    {"l2_gain", "1", &GemmBf16Params::l2_gain, 0.5, 8, 1.5,
     "bandwidth from L2 over nominal memory bandwidth"},
}};

constexpr std::array<ParameterSpec<GemmFp8Params>, 21> kFp8Parameters{{
    {"launch", "us", &GemmFp8Params::launch_us, 0.5, 10, 3, "kernel start and end"},
    {"quant_launch", "us", &GemmFp8Params::quant_launch_us, 1.5, 1.5, 1.5,
     "start and end of the quantisation kernel"},
    {"bandwidth", "1", &GemmFp8Params::bandwidth, 0.3, 1, 0.8, "share of nominal memory bandwidth reached"},
    {"overlap", "1", &GemmFp8Params::overlap, 1, 12, 2.5, "exponent that joins memory and arithmetic"},
    {"k64", "ns", &GemmFp8Params::k64_ns, 0.05, 10, 0.8, "one wave's time for an element of k, m <= 64"},
    {"k128", "ns", &GemmFp8Params::k128_ns, 0.05, 10, 1.3, "the same, 65 <= m <= 128"},
    {"k256", "ns", &GemmFp8Params::k256_ns, 0.05, 10, 2.2, "the same, m > 128"},
    {"memory17", "1", &GemmFp8Params::memory17, 1, 1.5, 1.05,
     "time of memory with the kernel for 17 to 64 tokens, over that up to 16"},
    {"step65", "us", &GemmFp8Params::step65_us, 0.01, 5, 0.3,
     "what the kernel for m > 64 costs more to start"},
    {"step129", "us", &GemmFp8Params::step129_us, 0.01, 5, 0.8,
     "what the kernel for m > 128 costs more to start"},
    {"wave", "1", &GemmFp8Params::wave, 0.3, 6, 1, "a further wave's time over the first one's"},
    {"wave_start", "us", &GemmFp8Params::wave_us, 1e-3, 10, 0.1, "start of a further wave"},
    {"throttle", "1", &GemmFp8Params::throttle, 1e-3, 2, 0.4, "lower clock and L2 misses of large products"},
    {"throttle_size", "Mi", &GemmFp8Params::throttle_size, 0.01, 1e3, 5,
     "outputs, in millions, at which half of the throttle is reached"},
    {"quant_bandwidth", "1", &GemmFp8Params::quant_bandwidth, 0.1, 2, 0.4,
     "bandwidth of the quantisation, over nominal memory bandwidth"},
    {"quant_token", "ns", &GemmFp8Params::quant_token_ns, 0.1, 20, 6, "least time to quantise a token"},
    {"l2_bytes", "MB", &GemmFp8Params::l2_bytes, 1, 60, 12,
     "weights that stay in L2 over a benchmark's replays"},
    {"l2_gain", "1", &GemmFp8Params::l2_gain, 0.5, 8, 1.5, "bandwidth from L2 over nominal memory bandwidth"},
    {"tile_n64", "1", &GemmFp8Params::tile_n64, 64, 256, 64, "outputs of a tile, m <= 64"},
    {"tile_m128", "1", &GemmFp8Params::tile_m128, 64, 128, 128, "tokens of a tile, 65 <= m <= 128"},
    {"tile_n128", "1", &GemmFp8Params::tile_n128, 64, 256, 128, "outputs of a tile, m > 64"},
}};

// Microseconds a byte takes, when `weight_bytes` of weights may lie in L2.
double us_per_byte(double weight_bytes, double bandwidth, double l2_megabytes, double l2_gain,
                   const Roof& roof, CacheState cache) {
  const double from_memory = 1 / (bandwidth * roof.bytes_per_us);
  if (cache == CacheState::kCold) return from_memory;
  const double from_l2 = std::min(from_memory, 1 / (l2_gain * roof.bytes_per_us));
  const double hit = l2_share(weight_bytes, l2_megabytes * kMega, kL2Sharpness);
  return hit * from_l2 + (1 - hit) * from_memory;
}

struct Problem {
  double m, n, k;
  double weight_bytes;  // Of all weights.
  double flops;
  double outputs_mega;
};

Problem problem_of(const GemmShape& shape, double bytes_of_a_weight) {
  const auto m = static_cast<double>(shape.m);
  const auto n = static_cast<double>(shape.n);
  const auto k = static_cast<double>(shape.k);
  return {m, n, k, bytes_of_a_weight * n * k, 2 * m * n * k, m * n / kMega};
}

// Arithmetic with one tile size and one split of k.
double tiled_us(const Problem& p, const Tile& tile, double split, const GemmBf16Params& params,
                const Roof& roof) {
  const double waves =
      std::ceil(std::ceil(p.m / tile.rows) * std::ceil(p.n / tile.columns) * split / roof.num_sms);
  const double area = tile.rows * tile.columns;
  const double reached =
      params.peak * area * (1 + params.small_tile) / (area + kLargestTile * params.small_tile);
  const double sm_flops_per_us = std::min(reached, 1.0) * roof.bf16_flops_per_us / roof.num_sms;
  double us = params.split_us + waves * 2 * area * (p.k / split) / sm_flops_per_us;
  if (split > 1) {
    constexpr double kBytesOfAPart = 4;  // Parts are added up in fp32.
    us += params.split_us + kBytesOfAPart * split * p.m * p.n / (params.reduction * roof.bytes_per_us);
  }
  return us;
}

// Arithmetic and memory of one fp8 kernel.
struct Fp8Kernel {
  Tile tile;
  double k_ns;
  double step_us;
  double memory;  // Factor on the time of memory.
};

double fp8_kernel_us(const Problem& p, const Fp8Kernel& kernel, double memory_us, const GemmFp8Params& params,
                     const Roof& roof, double sustained) {
  const double waves =
      std::ceil(std::ceil(p.m / kernel.tile.rows) * std::ceil(p.n / kernel.tile.columns) / roof.num_sms);
  const double walk =
      kernel.k_ns * p.k * (1 + (waves - 1) * params.wave) / kNsPerUs + params.wave_us * (waves - 1);
  const double throttle = 1 + params.throttle * p.outputs_mega / (p.outputs_mega + params.throttle_size);
  const double arithmetic = std::max(std::max(walk, p.flops / roof.fp8_flops_per_us) * throttle,
                                     p.flops / (sustained * roof.fp8_flops_per_us));
  return kernel.step_us + smooth_max(memory_us * kernel.memory, arithmetic, params.overlap);
}

}  // namespace

std::span<const ParameterSpec<GemmBf16Params>> gemm_bf16_parameters() {
  return kBf16Parameters;
}
std::span<const ParameterSpec<GemmFp8Params>> gemm_fp8_parameters() {
  return kFp8Parameters;
}

double gemm_floor_us(const GemmShape& shape, double weight_bytes, const Roof& roof, CacheState cache) {
  const Problem p = problem_of(shape, weight_bytes);
  const bool fp8 = shape.precision == Precision::kFp8;
  const double bytes = p.weight_bytes + (fp8 ? 1 : 2) * p.m * p.k + 2 * p.m * p.n;
  const double bandwidth = cache == CacheState::kWarm ? roof.l2_bytes_per_us : roof.bytes_per_us;
  return std::max(p.flops / (fp8 ? roof.fp8_flops_per_us : roof.bf16_flops_per_us), bytes / bandwidth);
}

double gemm_bf16_us(const GemmShape& shape, double weight_bytes, const GemmBf16Params& params,
                    const Roof& roof, CacheState cache, double sustained) {
  const Problem p = problem_of(shape, weight_bytes);
  const double activations = 2 * (p.m * p.k + p.m * p.n);
  const double memory =
      (p.weight_bytes + activations) *
      us_per_byte(p.weight_bytes, params.bandwidth, params.l2_bytes, params.l2_gain, roof, cache);
  double fastest = HUGE_VAL;
  for (const Tile& tile : kTiles) {
    for (const double split : kSplits) fastest = std::min(fastest, tiled_us(p, tile, split, params, roof));
  }
  const double throttle = 1 + params.throttle * p.outputs_mega / (p.outputs_mega + params.throttle_outputs);
  const double tiled = std::max(fastest, p.flops / roof.bf16_flops_per_us) * throttle +
                       params.staging * activations / roof.bytes_per_us;
  const double arithmetic = std::max(tiled, p.flops / (sustained * roof.bf16_flops_per_us));
  const double us = params.launch_us + smooth_max(memory, arithmetic, params.overlap);
  return std::max(us, gemm_floor_us(shape, weight_bytes, roof, cache));
}

double gemm_fp8_us(const GemmShape& shape, const GemmFp8Params& params, const Roof& roof, CacheState cache,
                   double sustained) {
  const Problem p = problem_of(shape, 1);
  const double bytes = p.weight_bytes + p.m * p.k + 2 * p.m * p.n;
  const double memory =
      bytes * us_per_byte(p.weight_bytes, params.bandwidth, params.l2_bytes, params.l2_gain, roof, cache);

  const std::array kernels{
      Fp8Kernel{{64, params.tile_n64}, params.k64_ns, 0, 1},
      Fp8Kernel{{64, params.tile_n64}, params.k64_ns, 0, params.memory17},
      Fp8Kernel{{params.tile_m128, params.tile_n128}, params.k128_ns, params.step65_us, 1},
      Fp8Kernel{{128, params.tile_n128}, params.k256_ns, params.step65_us + params.step129_us, 1},
  };
  constexpr std::array kUpTo{16.0, 64.0, 128.0};
  // A shape past a kernel's last m takes at least what that kernel takes there:
  // the dispatch on m must not make more tokens cheaper.
  double us = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const bool last = i == kUpTo.size() || p.m <= kUpTo[i];
    Problem part = p;
    if (!last) {
      part = problem_of({.m = static_cast<std::int64_t>(kUpTo[i]), .n = shape.n, .k = shape.k}, 1);
    }
    const double part_memory = memory * (part.weight_bytes + part.m * part.k + 2 * part.m * part.n) / bytes;
    us = std::max(us, fp8_kernel_us(part, kernels[i], part_memory, params, roof, sustained));
    if (last) break;
  }
  us += params.launch_us;
  if (!shape.static_scales) {
    const double quant_bytes = 3 * p.m * p.k;  // Reads two bytes, writes one.
    us += params.quant_launch_us + std::max(quant_bytes / (params.quant_bandwidth * roof.bytes_per_us),
                                            params.quant_token_ns * p.m / kNsPerUs);
  }
  return std::max(us, gemm_floor_us(shape, 1, roof, cache));
}

}  // namespace kneepoint::hw
