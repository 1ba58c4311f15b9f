#include "hw/forms_moe.h"

#include <algorithm>
#include <array>
#include <boost/assert.hpp>
#include <cmath>

namespace kneepoint::hw {

namespace {

constexpr double kMega = 1e6;
constexpr double kTera = 1e12;
constexpr std::array kTileRows{16.0, 32.0, 64.0, 128.0};
constexpr double kMostStarts = 200;  // Experts beyond it start while others run.

using P = MoeParams;
constexpr std::array<ParameterSpec<P>, 17> kParameters{{
    {"launch", "us", &P::launch_us, 1, 60, 14, "starts and ends of the call's kernels"},
    {"bandwidth", "1", &P::bandwidth, 0.3, 1, 0.9, "share of nominal memory bandwidth reached"},
    {"overlap", "1", &P::overlap, 1, 8, 2, "exponent that joins memory and arithmetic"},
    {"peak", "1", &P::peak, 0.1, 1, 0.7, "share of peak reached inside a full tile"},
    {"tile_loss", "1", &P::tile_loss, 1, 100, 15, "tokens at which a tile runs at half of that"},
    {"throttle", "1", &P::throttle, 1e-3, 2, 0.3, "lower clock and L2 misses of large calls"},
    {"throttle_tflop", "TFLOP", &P::throttle_tflop, 0.1, 50, 5,
     "work at which half of the throttle is reached"},
    {"activations", "1", &P::activations, 0.5, 6, 2, "passes over the activations"},
    {"l2_bytes", "MB", &P::l2_bytes, 5, 200, 40, "weights that stay in L2 over a benchmark's replays"},
    {"l2_gain", "1", &P::l2_gain, 0.5, 8, 2, "bandwidth from L2 over nominal memory bandwidth"},
    {"size", "us", &P::size_us, 0.01, 60, 12,
     "walk along hidden and intermediate size, for 4096 of both together"},
    {"expert", "us", &P::expert_us, 1e-3, 2, 0.2, "start of an expert"},
    {"skew", "1", &P::skew, 0.05, 3, 0.6, "exponent of the power law by which the router favours experts"},
    {"spare_tiles", "1", &P::spare_tiles, 0.5, 3, 0.6,
     "tiles of an expert beyond its tokens when these are spread unevenly: half of one, and the tail"},
    {"ragged", "1", &P::ragged, 1, 10, 4,
     "loss where an expert's slice is no multiple of 16 columns, which tensor cores take at once"},
    {"ragged_rows", "1", &P::ragged_rows, 1, 10, 2, "the same for activations"},
    {"l2_sharpness", "1", &P::l2_sharpness, 4, 32, 8, "how suddenly weights fall out of L2 as they grow"},
}};

struct Load {
  double touched = 0;      // Different experts read.
  double assignments = 0;  // (token, expert) pairs.
  double even_tokens = 0;  // Of each touched expert, if spread evenly; else 0.

  // Tiles of `rows` tokens that they fill. Skewed: a touched expert fills at
  // least one, and on average half a tile more than its tokens.
  std::array<double, kTileRows.size()> tiles{};
};

Load even_load(double assignments, double experts, double local_share) {
  Load load;
  const double chosen = std::min(assignments, experts);
  load.touched = std::max(1.0, chosen * local_share);
  load.assignments = assignments * local_share;
  for (std::size_t i = 0; i < kTileRows.size(); ++i) {
    load.tiles[i] = load.touched * std::ceil(assignments / chosen / kTileRows[i]);
  }
  return load;
}

// Experts alike in popularity. It falls as a power of the rank, so ranks are
// taken in groups that grow by a quarter.
struct ExpertGroup {
  double size = 0;
  double chosen = 0;  // Probability that a token chooses one of these experts.
};
struct ExpertGroups {
  std::array<ExpertGroup, 64> groups{};
  std::size_t count = 0;
};

// A token chooses top_k different experts: probabilities add up to top_k, and
// none exceeds 1. What favourites cannot take goes to the others.
ExpertGroups expert_groups(std::int64_t experts, double top_k, double exponent) {
  ExpertGroups result;
  std::array<double, 64> weight{};
  double open_weight = 0;
  for (std::int64_t first = 1; first <= experts; ++result.count) {
    BOOST_ASSERT_MSG(result.count < weight.size(), "EXPERT_GROUPS_FIT: a quarter more each, 64 reach 10^6 experts");
    const std::int64_t last = std::min(experts, first + first / 4);
    result.groups[result.count].size = static_cast<double>(last - first + 1);
    weight[result.count] = std::pow(std::sqrt(static_cast<double>(first) * static_cast<double>(last)), -exponent);
    open_weight += result.groups[result.count].size * weight[result.count];
    first = last + 1;
  }
  double open_choices = std::min(top_k, static_cast<double>(experts));
  for (std::size_t g = 0; g < result.count; ++g) {  // From the favourites down.
    const double size = result.groups[g].size;
    const double chosen = std::min(1.0, open_choices * weight[g] / open_weight);
    result.groups[g].chosen = chosen;
    open_choices -= size * chosen;
    open_weight -= size * weight[g];
  }
  return result;
}

// All GPUs wait for the slowest one: that which holds the favourite, and others
// of the experts by chance.
Load skewed_load(double tokens, double top_k, std::int64_t experts, double local_share,
                 const MoeParams& params) {
  Load load;
  const ExpertGroups all = expert_groups(experts, top_k, params.skew);
  const double others = static_cast<double>(experts) - 1;
  const double other_share =
      others > 0 ? std::max(0.0, static_cast<double>(experts) * local_share - 1) / others : 0;
  for (std::size_t g = 0; g < all.count; ++g) {
    const ExpertGroup& group = all.groups[g];
    const double here = g == 0 ? 1 : group.size * other_share;
    const double expected = tokens * group.chosen;
    const double read = 1 - std::pow(1 - group.chosen, tokens);
    load.touched += here * read;
    load.assignments += here * expected;
    for (std::size_t i = 0; i < kTileRows.size(); ++i) {
      load.tiles[i] += here * std::max(read, expected / kTileRows[i] + read * params.spare_tiles);
    }
  }
  return load;
}

struct Problem {
  double tokens, hidden, inter, assignments, local_share;
};

Problem problem_of(const MoeShape& s) {
  return {static_cast<double>(s.num_tokens), static_cast<double>(s.hidden_size),
          static_cast<double>(s.intermediate_size) / static_cast<double>(s.moe_tp),
          static_cast<double>(s.num_tokens * s.top_k), 1.0 / static_cast<double>(s.moe_ep)};
}

double peak_of(const MoeShape& s, const Roof& roof) {
  return s.precision == Precision::kFp8 ? roof.fp8_flops_per_us : roof.bf16_flops_per_us;
}

}  // namespace

std::span<const ParameterSpec<MoeParams>> moe_parameters() {
  return kParameters;
}

double moe_floor_us(const MoeShape& s, double weight_bytes, const Roof& roof, CacheState cache) {
  if (s.num_tokens == 0) return 0;
  const Problem p = problem_of(s);
  const double bandwidth = cache == CacheState::kWarm ? roof.l2_bytes_per_us : roof.bytes_per_us;
  const double flops = 6 * p.hidden * p.inter * p.assignments * p.local_share;
  const double surely_read = static_cast<double>(s.top_k) * p.local_share;
  const double bytes =
      3 * p.hidden * p.inter * weight_bytes * surely_read + 4 * p.tokens * p.hidden * p.local_share;
  return std::max(flops / peak_of(s, roof), bytes / bandwidth);
}

double moe_us(const MoeShape& s, double weight_bytes, const MoeParams& params, const Roof& roof,
              CacheState cache) {
  if (s.num_tokens == 0) return 0;
  const Problem p = problem_of(s);
  const Load load = s.balanced ? even_load(p.assignments, static_cast<double>(s.num_experts), p.local_share)
                               : skewed_load(p.tokens, static_cast<double>(s.top_k), s.num_experts, p.local_share, params);
  const double weights = 3 * load.touched * p.hidden * p.inter * weight_bytes;
  const double from_memory = 1 / (params.bandwidth * roof.bytes_per_us);
  const double from_l2 = std::min(from_memory, 1 / (params.l2_gain * roof.bytes_per_us));
  const double hit =
      cache == CacheState::kWarm ? l2_share(weights, params.l2_bytes * kMega, params.l2_sharpness) : 0;
  const double memory = weights * (hit * from_l2 + (1 - hit) * from_memory);

  const double peak = peak_of(s, roof);
  const double flops = 6 * p.hidden * p.inter * load.assignments;
  double fastest = HUGE_VAL;
  for (std::size_t i = 0; i < kTileRows.size(); ++i) {
    const double tile_flops = 6 * p.hidden * p.inter * kTileRows[i];
    fastest = std::min(fastest, tile_flops * load.tiles[i] * (1 + params.tile_loss / kTileRows[i]));
  }
  const double throttle = 1 + params.throttle * flops / (flops + params.throttle_tflop * kTera);
  const double arithmetic = std::max(fastest / (params.peak * peak), flops / peak) * throttle;
  const double traffic = params.activations *
                         (2 * load.assignments * (2 * p.hidden + 3 * p.inter) + 4 * p.tokens * p.hidden) /
                         roof.bytes_per_us;
  constexpr double kColumnsAtOnce = 16;
  const bool ragged = std::fmod(p.inter, kColumnsAtOnce) > 0;
  const double us = params.launch_us + params.size_us * (p.hidden + p.inter) / 4096 +
                    params.expert_us * std::min(load.touched, kMostStarts) +
                    (ragged ? params.ragged_rows : 1) * traffic +
                    (ragged ? params.ragged : 1) * smooth_max(memory, arithmetic, params.overlap);
  return std::max(us, moe_floor_us(s, weight_bytes, roof, cache));
}

}  // namespace kneepoint::hw
