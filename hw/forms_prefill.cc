#include <algorithm>
#include <array>
#include <cmath>

#include "hw/forms_attention.h"

namespace kneepoint::hw {

namespace {

constexpr double kMega = 1e6;
constexpr double kTera = 1e12;
constexpr double kL2Sharpness = 8;
constexpr double kBlock = 128;  // block_us is the time of a 128 x 128 block.

using P = PrefillAttentionParams;
constexpr std::array<ParameterSpec<P>, 21> kParameters{{
    {"launch", "us", &P::launch_us, 1, 30, 9, "kernel start and end"},
    {"bandwidth", "1", &P::bandwidth, 0.1, 1, 0.5, "share of nominal memory bandwidth reached"},
    {"overlap", "1", &P::overlap, 1, 8, 1.2, "exponent that joins memory and arithmetic"},
    {"block_start", "us", &P::block_start_us, 0.02, 10, 0.9, "start of a block of queries"},
    {"block", "us", &P::block_us, 0.5, 20, 2, "one SM's time for 128 queries x 128 keys of a head"},
    {"throttle", "1", &P::throttle, 1e-3, 1, 0.2, "lower clock of long prefills"},
    {"throttle_tflop", "TFLOP", &P::throttle_tflop, 0.1, 50, 8,
     "work at which half of the throttle is reached"},
    {"tail", "1", &P::tail, 0.05, 4, 0.4,
     "a block's time when it is the last one running, over its share of the whole"},
    {"l2_gain", "1", &P::l2_gain, 0.3, 8, 0.8, "bandwidth from L2 over nominal memory bandwidth"},
    {"l2_bytes", "MB", &P::l2_bytes, 5, 200, 40, "activations that stay in L2"},
    {"kv_weight", "1", &P::kv_weight, 0.5, 8, 2, "a KV head's traffic over a query head's"},
    {"wave_rounding", "1", &P::wave_rounding, 0.001, 1, 0.2, "share of the work that comes in whole waves"},
    {"head", "us", &P::head_us, 1e-3, 5, 1, "each (sequence, KV head) pair, on one SM"},
    {"long", "us", &P::long_us, 0.01, 10, 1.5, "the kernel for more than 64 query rows"},
    {"alone", "1", &P::alone, 0.5, 2, 1,
     "a block's time with one query head a KV head, over that with four and more"},
    {"small_group", "1", &P::small_group, 0.5, 2, 1.05, "the same with two and three"},
    {"token", "us", &P::token_us, 1e-3, 10, 1,
     "each new token by itself, on one SM: its row is stored, or quantised"},
    {"token_heads", "1", &P::token_heads, 1, 64, 4,
     "KV heads at which a token costs that much; fewer cost less"},
    {"block_q", "1", &P::block_q, 64, 128, 128, "queries of a block"},
    {"block_kv", "1", &P::block_kv, 64, 128, 64, "keys of a block"},
    {"pack", "1", &P::pack, 0, 1, 1, "1: the query heads of a KV head share blocks"},
}};

}  // namespace

std::span<const ParameterSpec<PrefillAttentionParams>> prefill_attention_parameters() {
  return kParameters;
}

double prefill_attention_floor_us(const PrefillAttentionShape& s, const Roof& roof, CacheState cache) {
  const auto tokens = static_cast<double>(s.num_tokens);
  const auto computed = static_cast<double>(s.num_computed_tokens);
  const auto batch_dim = static_cast<double>(s.batch * s.head_size);
  const double kv_size = s.kv_precision == Precision::kFp8 ? 1 : 2;
  const double flops =
      4 * batch_dim * static_cast<double>(s.num_heads) * (tokens * computed + tokens * (tokens + 1) / 2);
  const double bytes = batch_dim * (4 * tokens * static_cast<double>(s.num_heads) +
                                    2 * kv_size * (tokens + computed) * static_cast<double>(s.num_kv_heads));
  const double bandwidth = cache == CacheState::kWarm ? roof.l2_bytes_per_us : roof.bytes_per_us;
  return std::max(flops / roof.bf16_flops_per_us, bytes / bandwidth);
}

double prefill_attention_us(const PrefillAttentionShape& s, const PrefillAttentionParams& params,
                            const Roof& roof, CacheState cache) {
  const auto tokens = static_cast<double>(s.num_tokens);
  const auto computed = static_cast<double>(s.num_computed_tokens);
  const auto batch = static_cast<double>(s.batch);
  const auto heads = static_cast<double>(s.num_heads);
  const auto kv_heads = static_cast<double>(s.num_kv_heads);
  const auto dim = static_cast<double>(s.head_size);
  const double group = heads / kv_heads;
  const double kv_size = s.kv_precision == Precision::kFp8 ? 1 : 2;

  // The new tokens' rows, which the projection before has just written.
  const double rows = 4 * dim * batch * tokens;
  const double hit = l2_share(rows * (heads + kv_heads), params.l2_bytes * kMega, kL2Sharpness);
  const double from_memory = 1 / (params.bandwidth * roof.bytes_per_us);
  const double from_l2 = std::min(from_memory, 1 / (params.l2_gain * roof.bytes_per_us));
  const double old_kv = 2 * kv_size * dim * batch * computed * kv_heads;
  const double memory =
      rows * (heads + params.kv_weight * kv_heads) * (hit * from_l2 + (1 - hit) * from_memory) +
      old_kv * from_memory;

  // Blocks: each of block_q queries against, on average, half of the new keys and all old ones.
  const bool packed = params.pack > 0.5;
  const double blocks = packed ? kv_heads * std::ceil(tokens * group / params.block_q)
                               : heads * std::ceil(tokens / params.block_q);
  const double per_sm = batch * blocks / roof.num_sms;
  const double waves =
      std::max(1.0, (1 - params.wave_rounding) * per_sm + params.wave_rounding * std::ceil(per_sm));
  const double kernel = group < 1.5 ? params.alone : group < 3.5 ? params.small_group : 1;
  const double unit =
      params.block_us * (params.block_q / kBlock) * (params.block_kv / kBlock) * kernel * (dim / 128);
  const double start = params.block_start_us * kernel;
  const double all_keys = std::ceil((tokens + computed) / params.block_kv);
  const double mean_keys = computed / params.block_kv + (std::ceil(tokens / params.block_kv) + 1) / 2;
  const double total = waves * (start + unit * mean_keys);
  const double last = start + unit * all_keys * params.tail;
  const double flops = 4 * dim * batch * heads * (tokens * computed + tokens * (tokens + 1) / 2);
  const double throttle = 1 + params.throttle * flops / (flops + params.throttle_tflop * kTera);
  const double arithmetic =
      std::max(smooth_max(total, last, params.overlap), flops / roof.bf16_flops_per_us) * throttle;
  const double us =
      params.launch_us + smooth_max(memory, arithmetic, params.overlap) +
      params.head_us * batch * kv_heads / roof.num_sms +
      params.token_us * batch * tokens * std::min(1.0, kv_heads / params.token_heads) / roof.num_sms +
      (tokens * group > 64 ? params.long_us : 0);
  return std::max(us, prefill_attention_floor_us(s, roof, cache));
}

}  // namespace kneepoint::hw
