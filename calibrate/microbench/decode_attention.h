// Paged decode attention: one new token for each sequence, over its whole context.
//
// Keys and values lie in blocks of 16 tokens, [block][KV head][token][128], as
// FlashInfer wants them in vLLM: a block of one KV head is 4 KiB (bf16) in a
// row. A table names each sequence's blocks.
//
// Work is cut along the context: an item is one sequence's tokens [begin, end), and
// a block of threads does one item for one KV head with all query heads of its
// group as rows of the same matrix product. Items are about equally long, so uneven
// contexts fill the SMs as even ones do (decode_items.h plans them). A
// sequence that is one item writes its result; else the parts are merged after.
//
// Each of four warps has tiles and a ring of stages of its own, filled by
// copy_async two tiles ahead: no barrier in the loop, and 64 KiB a block of
// threads on the way at any time, more than latency times bandwidth of any GPU here.
//
// Bound   memory: every key and value is read once.
// Source  T. Dao et al., "Flash-Decoding for long-context inference", 2023; W. Kwon et al.,
//         "PagedAttention", SOSP 2023.
#pragma once

#include "calibrate/microbench/attention_tile.h"
#include "calibrate/microbench/decode_items.h"

namespace kneepoint::microbench {

struct DecodeArguments {
  const std::uint16_t* queries;  ///< [sequence][head][128], bf16.
  const unsigned char* keys;     ///< [block][KV head][16][128]
  const unsigned char* values;
  const std::int32_t* block_table;  ///< [sequence][table_width]
  const DecodeItem* items;
  const std::int32_t* first_item;  ///< [sequence + 1]
  std::uint16_t* outputs;          ///< [sequence][head][128], bf16.
  float* part_outputs;             ///< [item][head][128]
  float* part_sums;                ///< [item][head][2]: maximum, sum.
  std::int32_t table_width;
  std::int32_t num_heads;
  std::int32_t num_kv_heads;
  float scale;  ///< Of scores, log2(e) included.
};

constexpr int kDecodeWarps = 4;
constexpr int kDecodeThreads = 32 * kDecodeWarps;
constexpr int kDecodeStages = 3;

/// Tokens of a tile: so many that a tile of keys is 4 KiB.
template <class Kv>
constexpr int kDecodeTile = 4096 / Kv::kRowBytes;

constexpr int kDecodeStageBytes = 2 * 4096;
constexpr int kDecodeSharedBytes = kDecodeWarps * kDecodeStages * kDecodeStageBytes;
static_assert(kDecodeSharedBytes >= kDecodeWarps * kTileRows * (kHeadSize + 2) * 4,
              "warps meet in the same memory");

/// One warp's walk over its tiles of an item.
template <class Kv>
class DecodeLoader {
 public:
  static constexpr int kTile = kDecodeTile<Kv>;
  static constexpr int kBlocks = kTile / kBlockSize;  // Of a tile.

  __device__ DecodeLoader(const DecodeArguments& arguments, const DecodeItem& item, int kv_head, int warp,
                          unsigned char* stages)
      : arguments_(arguments), item_(item), kv_head_(kv_head), warp_(warp), stages_(stages) {}

  /// First token of this warp's tile `i`; past the end if there is none.
  [[nodiscard]] __device__ int token_of(int i) const {
    return item_.begin + (i * kDecodeWarps + warp_) * kTile;
  }
  [[nodiscard]] __device__ unsigned char* stage(int i) const {
    return stages_ + (i % kDecodeStages) * kDecodeStageBytes;
  }

  /// Starts the copy of tile `i`, whole warps alike. Tokens past the end become zeros.
  __device__ void load(int i) {
    if (token_of(i) < item_.end) {
      fetch_block_ids(i);
      const int lane = lane_id();
      std::int64_t bases[kBlocks];
      KP_UNROLL
      for (int b = 0; b < kBlocks; ++b) {
        const std::int64_t id = shuffle_from(ids_[b], i % 32);
        bases[b] = (id * arguments_.num_kv_heads + kv_head_) * (kBlockSize * Kv::kRowBytes);
      }
      constexpr int kChunks = Kv::kRowBytes / kChunkBytes;  // Of a row.
      KP_UNROLL
      for (int c = 0; c < kTile * kChunks / 32; ++c) {
        const int row = (c * 32 + lane) / kChunks;
        const int chunk = (c * 32 + lane) % kChunks;
        const bool valid = token_of(i) + row < item_.end;
        // 32 lanes cover whole rows of one block: which one is known when compiling.
        constexpr int kRowsAtOnce = 32 / kChunks;
        const std::int64_t from =
            bases[c * kRowsAtOnce / kBlockSize] + (row % kBlockSize) * Kv::kRowBytes + chunk * kChunkBytes;
        unsigned char* to = stage(i) + tile_offset<Kv>(row, chunk);
        copy_async(to, arguments_.keys + from, valid);
        copy_async(to + kDecodeStageBytes / 2, arguments_.values + from, valid);
      }
    }
    copy_async_commit();  // An empty group keeps the count.
  }

 private:
  // Each lane keeps the block ids of one of the next 32 tiles.
  __device__ void fetch_block_ids(int i) {
    if (i % 32 != 0) return;
    const std::int32_t* table =
        arguments_.block_table + static_cast<std::int64_t>(item_.sequence) * arguments_.table_width;
    KP_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const int token = token_of(i + lane_id()) + b * kBlockSize;
      ids_[b] = token < item_.end ? table[token / kBlockSize] : 0;
    }
  }

  const DecodeArguments& arguments_;
  DecodeItem item_;
  int kv_head_;
  int warp_;
  unsigned char* stages_;
  int ids_[kBlocks];
};

/// Masks what lies at or past `end`; `token` is the tile's first.
template <int kKeys>
__device__ inline void mask_tail(float (&s)[kKeys / 8][4], int token, int end) {
  if (token + kKeys <= end) return;
  const int t = lane_id() % 4;
  KP_UNROLL
  for (int tile = 0; tile < kKeys / 8; ++tile) {
    KP_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (token + 8 * tile + 2 * t + i % 2 >= end) s[tile][i] = kMinusInfinity;
    }
  }
}

/// Row `row` of the four warps' results joined, dimension `d`; returns maximum and sum too.
struct JoinedRow {
  float output;
  float m;
  float l;
};
__device__ inline JoinedRow join_warps(const float* outputs, const float* sums, int row, int d) {
  JoinedRow joined{0, kMinusInfinity, 0};
  KP_UNROLL
  for (int w = 0; w < kDecodeWarps; ++w) joined.m = fmaxf(joined.m, sums[2 * (w * kTileRows + row)]);
  KP_UNROLL
  for (int w = 0; w < kDecodeWarps; ++w) {
    const int at = w * kTileRows + row;
    const float weight = exp2_fast(sums[2 * at] - joined.m);  // A warp without tiles: 2^-inf.
    joined.l += weight * sums[2 * at + 1];
    joined.output += weight * outputs[at * kHeadSize + d];
  }
  return joined;
}

template <class Kv>
__device__ inline void store_warp(const WarpState<Kv>& state, int warp, float* outputs, float* sums) {
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
  KP_UNROLL
  for (int tile = 0; tile < kOutputTiles; ++tile) {
    KP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = warp * kTileRows + g + 8 * (i / 2);
      outputs[row * kHeadSize + Kv::dimension_of_output(tile, t, i % 2)] = state.o[tile][i];
    }
  }
  if (t == 0) {
    KP_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = warp * kTileRows + g + 8 * half;
      sums[2 * row] = state.m[half];
      sums[2 * row + 1] = state.l[half];
    }
  }
}

/// Grid (items, KV heads x groups of 16 query heads of one), kDecodeThreads threads, kDecodeSharedBytes.
template <class Kv>
__global__ void __launch_bounds__(kDecodeThreads) decode_attention(const DecodeArguments arguments) {
  KP_SHARED_MEMORY(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int group = arguments.num_heads / arguments.num_kv_heads;
  const int rounds = (group + kTileRows - 1) / kTileRows;
  const int kv_head = static_cast<int>(blockIdx.y) / rounds;
  const int first_in_group = static_cast<int>(blockIdx.y) % rounds * kTileRows;
  const int first_head = kv_head * group + first_in_group;
  const int rows = group - first_in_group < kTileRows ? group - first_in_group : kTileRows;
  const DecodeItem item = arguments.items[blockIdx.x];

  const auto query_row = [&](int row) -> const std::uint16_t* {
    if (row >= rows) return nullptr;
    const std::int64_t head =
        static_cast<std::int64_t>(item.sequence) * arguments.num_heads + first_head + row;
    return arguments.queries + head * kHeadSize;
  };
  DecodeLoader<Kv> loader(arguments, item, kv_head, warp, shared + warp * kDecodeStages * kDecodeStageBytes);
  KP_UNROLL
  for (int i = 0; i < kDecodeStages - 1; ++i) loader.load(i);
  WarpState<Kv> state;
  start_warp(state, query_row(lane_id() / 4), query_row(lane_id() / 4 + 8));

  constexpr int kTile = kDecodeTile<Kv>;
  for (int i = 0; loader.token_of(i) < item.end; ++i) {
    copy_async_wait<kDecodeStages - 2>();
    __syncwarp();  // Everybody's part of tile i is there, and everybody is done with tile i - 1.
    loader.load(i + kDecodeStages - 1);
    float s[kTile / 8][4];
    scores<Kv, kTile>(s, state, loader.stage(i));
    mask_tail<kTile>(s, loader.token_of(i), item.end);
    soften<Kv, kTile>(s, state, arguments.scale * Kv::kUnit);
    accumulate<Kv, kTile>(s, state, loader.stage(i) + kDecodeStageBytes / 2);
  }
  finish_sums(state);

  copy_async_wait<0>();
  __syncthreads();  // The stages become the warps' meeting place.
  auto* outputs = reinterpret_cast<float*>(shared);
  float* sums = outputs + kDecodeWarps * kTileRows * kHeadSize;
  store_warp(state, warp, outputs, sums);
  __syncthreads();
  const bool whole = arguments.first_item[item.sequence + 1] - arguments.first_item[item.sequence] == 1;
  const int d = static_cast<int>(threadIdx.x);
  for (int row = 0; row < rows; ++row) {
    const JoinedRow joined = join_warps(outputs, sums, row, d);
    if (whole) {
      const std::int64_t head =
          static_cast<std::int64_t>(item.sequence) * arguments.num_heads + first_head + row;
      arguments.outputs[head * kHeadSize + d] =
          static_cast<std::uint16_t>(pack_bf16(joined.output * Kv::kUnit / joined.l, 0));
      continue;
    }
    const std::int64_t part = static_cast<std::int64_t>(blockIdx.x) * arguments.num_heads + first_head + row;
    arguments.part_outputs[part * kHeadSize + d] = joined.output * Kv::kUnit;
    if (d == 0) {
      arguments.part_sums[2 * part] = joined.m;
      arguments.part_sums[2 * part + 1] = joined.l;
    }
  }
}

/// Joins the items of sequences that have several. Grid (heads, sequences), kHeadSize threads.
__global__ void __launch_bounds__(kHeadSize) merge_decode_parts(const DecodeArguments arguments) {
  const auto sequence = static_cast<int>(blockIdx.y);
  const auto head = static_cast<int>(blockIdx.x);
  const auto d = static_cast<int>(threadIdx.x);
  const int begin = arguments.first_item[sequence];
  const int end = arguments.first_item[sequence + 1];
  if (end - begin == 1) return;
  float m = kMinusInfinity;
  for (int item = begin; item < end; ++item) {
    m = fmaxf(m, arguments.part_sums[2 * (static_cast<std::int64_t>(item) * arguments.num_heads + head)]);
  }
  float l = 0;
  float output = 0;
  for (int item = begin; item < end; ++item) {
    const std::int64_t part = static_cast<std::int64_t>(item) * arguments.num_heads + head;
    const float weight = exp2_fast(arguments.part_sums[2 * part] - m);
    l += weight * arguments.part_sums[2 * part + 1];
    output += weight * arguments.part_outputs[part * kHeadSize + d];
  }
  const std::int64_t to = (static_cast<std::int64_t>(sequence) * arguments.num_heads + head) * kHeadSize + d;
  arguments.outputs[to] = static_cast<std::uint16_t>(pack_bf16(output / l, 0));
}

}  // namespace kneepoint::microbench
