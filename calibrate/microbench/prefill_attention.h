// Causal prefill attention: new tokens of each sequence over what was computed
// before and over themselves.
//
// A block of threads has 64 queries of one head, a warp 16 of them, and walks over
// the keys 64 at a time, two tiles in shared memory in turn. Query i sees keys 0 to
// computed + i; tiles beyond are never touched, and only tiles that the diagonal
// crosses are masked. The last queries have the longest walk and start first.
//
// This is the kernel for machines without cuDNN. It uses the matrix instructions
// that all GPUs since the A100 have, and on the H100 reaches about half of what
// kernels written for its own (wgmma) do; a measurement says which one it shows.
//
// Bound   arithmetic: 4 x 128 x heads x pairs of query and key.
// Source  T. Dao, "FlashAttention-2", 2023.
#pragma once

#include "calibrate/microbench/attention_tile.h"

namespace kneepoint::microbench {

struct PrefillArguments {
  const std::uint16_t* queries;  ///< [sequence][token][head][128], bf16.
  const std::uint16_t* keys;     ///< [sequence][computed + token][KV head][128]
  const std::uint16_t* values;
  std::uint16_t* outputs;  ///< As queries.
  std::int32_t tokens;
  std::int32_t computed;
  std::int32_t num_heads;
  std::int32_t num_kv_heads;
  float scale;  ///< Of scores, log2(e) included.
};

constexpr int kPrefillWarps = 4;
constexpr int kPrefillThreads = 32 * kPrefillWarps;
constexpr int kPrefillQueries = kPrefillWarps * kTileRows;
constexpr int kPrefillKeys = 64;
constexpr int kPrefillTileBytes = kPrefillKeys * Bf16Kv::kRowBytes;
constexpr int kPrefillSharedBytes = 2 * 2 * kPrefillTileBytes;

/// Starts the copy of keys [first, first + 64) and their values; zeros at or past `end`.
__device__ inline void load_keys(const PrefillArguments& arguments, std::int64_t sequence, int kv_head,
                                 int first, int end, unsigned char* stage) {
  constexpr int kChunks = Bf16Kv::kRowBytes / kChunkBytes;
  const auto thread = static_cast<int>(threadIdx.x);
  KP_UNROLL
  for (int c = 0; c < kPrefillKeys * kChunks / kPrefillThreads; ++c) {
    const int row = (c * kPrefillThreads + thread) / kChunks;
    const int chunk = (c * kPrefillThreads + thread) % kChunks;
    const bool valid = first + row < end;
    const std::int64_t key = valid ? first + row : 0;
    const std::int64_t from =
        ((sequence * end + key) * arguments.num_kv_heads + kv_head) * kHeadSize + chunk * (kChunkBytes / 2);
    unsigned char* to = stage + tile_offset<Bf16Kv>(row, chunk);
    copy_async(to, arguments.keys + from, valid);
    copy_async(to + kPrefillTileBytes, arguments.values + from, valid);
  }
  copy_async_commit();
}

/// Masks keys that a query may not see. `query` is this lane's row g, counted with
/// the computed tokens; `key` the tile's first.
__device__ inline void mask_causal(float (&s)[kPrefillKeys / 8][4], int query, int key) {
  const int t = lane_id() % 4;
  KP_UNROLL
  for (int tile = 0; tile < kPrefillKeys / 8; ++tile) {
    KP_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (key + 8 * tile + 2 * t + i % 2 > query + 8 * (i / 2)) s[tile][i] = kMinusInfinity;
    }
  }
}

__device__ inline void store_prefill(const WarpState<Bf16Kv>& state, std::uint16_t* row, int half) {
  const int t = lane_id() % 4;
  const float over = 1 / state.l[half];
  KP_UNROLL
  for (int tile = 0; tile < kOutputTiles; ++tile) {
    const std::uint32_t pair = pack_bf16(state.o[tile][2 * half] * over, state.o[tile][2 * half + 1] * over);
    *reinterpret_cast<std::uint32_t*>(row + Bf16Kv::dimension_of_output(tile, t, 0)) = pair;
  }
}

/// Grid (ceil(tokens / 64), heads, sequences), kPrefillThreads threads, kPrefillSharedBytes.
__global__ void __launch_bounds__(kPrefillThreads) prefill_attention(const PrefillArguments arguments) {
  KP_SHARED_MEMORY(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (arguments.num_heads / arguments.num_kv_heads);
  const auto sequence = static_cast<std::int64_t>(blockIdx.z);
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kPrefillQueries;
  const int query = first_query + warp * kTileRows + lane_id() / 4;
  const int end = arguments.computed + arguments.tokens;
  const auto row_at = [&](int token) {
    return ((sequence * arguments.tokens + token) * arguments.num_heads + head) * kHeadSize;
  };

  const int last_query =
      first_query + kPrefillQueries < arguments.tokens ? first_query + kPrefillQueries : arguments.tokens;
  const int tiles = (arguments.computed + last_query + kPrefillKeys - 1) / kPrefillKeys;
  load_keys(arguments, sequence, kv_head, 0, end, shared);
  WarpState<Bf16Kv> state;
  start_warp(state, query < arguments.tokens ? arguments.queries + row_at(query) : nullptr,
             query + 8 < arguments.tokens ? arguments.queries + row_at(query + 8) : nullptr);
  for (int tile = 0; tile < tiles; ++tile) {
    unsigned char* stage = shared + (tile % 2) * 2 * kPrefillTileBytes;
    copy_async_wait<0>();
    __syncthreads();  // Tile is there for all, and all are done with the one before, whose place is next.
    if (tile + 1 < tiles) {
      load_keys(arguments, sequence, kv_head, (tile + 1) * kPrefillKeys, end,
                shared + ((tile + 1) % 2) * 2 * kPrefillTileBytes);
    }
    float s[kPrefillKeys / 8][4];
    scores<Bf16Kv, kPrefillKeys>(s, state, stage);
    const int key = tile * kPrefillKeys;
    if (key + kPrefillKeys > arguments.computed + first_query + warp * kTileRows) {
      mask_causal(s, arguments.computed + query, key);
    }
    soften<Bf16Kv, kPrefillKeys>(s, state, arguments.scale);
    accumulate<Bf16Kv, kPrefillKeys>(s, state, stage + kPrefillTileBytes);
  }
  finish_sums(state);
  if (query < arguments.tokens) store_prefill(state, arguments.outputs + row_at(query), 0);
  if (query + 8 < arguments.tokens) store_prefill(state, arguments.outputs + row_at(query + 8), 1);
}

}  // namespace kneepoint::microbench
