#include <algorithm>
#include <array>
#include <cmath>

#include "hw/forms_attention.h"

namespace kneepoint::hw {

namespace {

constexpr double kMega = 1e6;
constexpr double kL2Sharpness = 12;
constexpr double kBytesOfAQuery = 2;  // Queries and outputs are bf16 with either KV type.

constexpr std::array kSplits{1.0,  2.0,  3.0,  4.0,  6.0,  8.0,   12.0,  16.0,
                             24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0};

using P = DecodeAttentionParams;
constexpr std::array<ParameterSpec<P>, 19> kParameters{{
    {"launch", "us", &P::launch_us, 1, 30, 11, "kernel start and end"},
    {"bandwidth", "1", &P::bandwidth, 0.3, 1, 0.9, "share of nominal memory bandwidth reached"},
    {"overlap", "1", &P::overlap, 1, 12, 2, "exponent that joins memory and the walk along the context"},
    {"wave", "us", &P::wave_us, 0.01, 10, 3.5, "a further (sequence, KV head) pair on the same SM"},
    {"token", "us", &P::token_us, 1e-4, 0.1, 3e-3, "one SM's time for a token of context"},
    {"l2_gain", "1", &P::l2_gain, 0.3, 8, 1.5, "bandwidth from L2 over nominal memory bandwidth"},
    {"l2_bytes", "MB", &P::l2_bytes, 5, 200, 55, "KV that stays in L2 over a benchmark's replays"},
    {"max_splits", "1", &P::max_splits, 1, 256, 16, "most parts of a context"},
    {"head", "us", &P::head_us, 1e-4, 1, 0.05, "each query head of a sequence, on one SM"},
    {"split", "us", &P::split_us, 1e-3, 5, 0.7, "merging, once a context is split"},
    {"ramp", "us", &P::ramp_us, 1e-2, 40, 5, "filling the pipes of memory"},
    {"ramp_bytes", "MB", &P::ramp_bytes, 0.5, 100, 15, "KV at which half of the ramp is reached"},
    {"split_tokens", "1", &P::split_tokens, 32, 1024, 128, "shortest part of a context"},
    {"serial", "us", &P::serial_us, 1e-4, 0.1, 3e-3, "latency of a token of context"},
    {"merge", "us", &P::merge_us, 1e-3, 2, 0.1, "merging another part"},
    {"group", "1", &P::group, 1e-4, 2, 1e-2,
     "a group of 8 more query heads a KV head than 8, on the same SM"},
    {"heads_slow", "1", &P::heads_slow, 1e-4, 1, 1e-2,
     "loss of bandwidth when 8 KV heads are read in place of one"},
    {"batch", "us", &P::batch_us, 1e-3, 10, 0.1, "a second kernel for batches of grouped heads"},
    {"split_ungrouped", "1", &P::split_ungrouped, 0, 1, 1,
     "1: contexts are split with one query head a KV head too; 0: that kernel cannot"},
}};

}  // namespace

std::span<const ParameterSpec<DecodeAttentionParams>> decode_attention_parameters() {
  return kParameters;
}

namespace {
double kv_bytes(const DecodeAttentionShape& s) {
  return 2.0 * static_cast<double>(s.head_size * s.num_kv_heads * s.context_sum) *
         (s.kv_precision == Precision::kFp8 ? 1 : 2);
}
double query_bytes(const DecodeAttentionShape& s) {
  return 2.0 * kBytesOfAQuery * static_cast<double>(s.head_size * s.count * s.num_heads);
}
}  // namespace

double decode_attention_floor_us(const DecodeAttentionShape& s, const Roof& roof, CacheState cache) {
  const double flops = 4.0 * static_cast<double>(s.head_size * s.num_heads * s.context_sum);
  const double bandwidth = cache == CacheState::kWarm ? roof.l2_bytes_per_us : roof.bytes_per_us;
  return std::max(flops / roof.bf16_flops_per_us, (kv_bytes(s) + query_bytes(s)) / bandwidth);
}

double decode_attention_us(const DecodeAttentionShape& s, const DecodeAttentionParams& params,
                           const Roof& roof, CacheState cache) {
  const auto heads = static_cast<double>(s.num_heads);
  const auto kv_heads = static_cast<double>(s.num_kv_heads);
  const auto count = static_cast<double>(s.count);
  const auto longest = static_cast<double>(s.context_max);
  const double group = heads / kv_heads;
  const double megabytes = kv_bytes(s) / kMega;
  const double hit = cache == CacheState::kWarm ? l2_share(megabytes, params.l2_bytes, kL2Sharpness) : 0;

  const double from_memory = 1 / (params.bandwidth * roof.bytes_per_us);
  const double from_l2 = std::min(from_memory, 1 / (params.l2_gain * roof.bytes_per_us));
  const double memory = (kv_bytes(s) + query_bytes(s)) * (hit * from_l2 + (1 - hit) * from_memory) *
                            (1 + params.heads_slow * std::log2(kv_heads) / 3) +
                        (1 - hit) * params.ramp_us * megabytes / (megabytes + params.ramp_bytes);

  const double pairs = count * kv_heads;
  const bool splits_at_all = group > 1 || params.split_ungrouped > 0.5;
  const double most_splits =
      splits_at_all ? std::min(params.max_splits, std::max(1.0, roof.num_sms / pairs)) : 1;
  const double waves = std::max(1.0, pairs / roof.num_sms);
  const double tokens = std::max(longest, kv_heads * static_cast<double>(s.context_sum) / roof.num_sms);
  const double later_waves = (waves - 1) * params.wave_us * (1 + params.group * std::max(0.0, group - 8) / 8);
  // The kernel splits as pays. Each candidate grows with every size, and a
  // larger batch allows fewer of them: so the least grows too.
  double fastest = HUGE_VAL;
  for (const double splits : kSplits) {
    if (splits > most_splits) break;
    const double walk = later_waves + params.token_us * tokens / splits;
    const double serial =
        params.serial_us * std::max(longest / splits, std::min(longest, params.split_tokens));
    const double merging = splits > 1 ? params.split_us + params.merge_us * (splits - 1) : 0;
    fastest = std::min(fastest, std::max(smooth_max(memory, walk, params.overlap), serial) + merging);
  }
  const double us = params.launch_us + fastest + params.head_us * count * heads / roof.num_sms +
                    (kv_heads >= 2 && count >= 2 && group > 1 ? params.batch_us : 0);
  return std::max(us, decode_attention_floor_us(s, roof, cache));
}

}  // namespace kneepoint::hw
