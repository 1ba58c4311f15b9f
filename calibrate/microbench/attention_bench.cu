#include "calibrate/microbench/attention_bench.h"

#include <algorithm>
#include <cmath>

#include "calibrate/microbench/decode_attention.h"
#include "calibrate/microbench/number_formats.h"
#include "calibrate/microbench/prefill_attention.h"
#include "calibrate/microbench/reference.h"

namespace kneepoint::microbench {

namespace {

// Weights and results are rounded to 8 bits of precision.
constexpr double kAllowedError = 0.02;

float softmax_scale() {
  return static_cast<float>(1 / (std::sqrt(static_cast<double>(kHeadSize)) * std::log(2.0)));
}

// A decode batch in memory: `copies` sets of blocks, used in turn, scattered over one pool.
struct DecodeBatch {
  std::vector<std::int32_t> contexts;
  DecodePlan plan;
  std::vector<std::int32_t> tables;  // [copies][sequences][width], as uploaded.
  std::int64_t blocks = 0;
  DecodeArguments arguments{};  // Of copy 0.
  std::int64_t table_stride = 0;
};

// A permutation of 0 to n - 1 (Fisher and Yates), the same every time.
std::vector<std::int32_t> scattered(std::int64_t n) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  std::uint64_t state = 88172645463325252ULL;
  for (std::size_t i = ids.size(); i > 1; --i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::swap(ids[i - 1], ids[state % i]);
  }
  return ids;
}

std::vector<std::int32_t> block_tables(const std::vector<std::int32_t>& contexts, int copies,
                                       std::int64_t width, const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> tables;
  std::size_t next = 0;
  for (int copy = 0; copy < copies; ++copy) {
    for (const std::int32_t context : contexts) {
      const std::int64_t used = (context + kBlockSize - 1) / kBlockSize;
      for (std::int64_t b = 0; b < width; ++b) tables.push_back(b < used ? ids[next++] : 0);
    }
  }
  return tables;
}

DecodeBatch take_batch(CudaBench& bench, const DecodeShape& s, int copies) {
  DecodeBatch batch;
  batch.contexts = contexts_of(s);
  batch.plan = plan_decode(batch.contexts, decode_part_tokens(batch.contexts, static_cast<int>(s.kv_heads),
                                                              static_cast<int>(bench.facts.sm_count)));
  std::int64_t blocks_of_a_copy = 0;
  std::int64_t width = 0;
  for (const std::int32_t context : batch.contexts) {
    const std::int64_t blocks = (context + kBlockSize - 1) / kBlockSize;
    blocks_of_a_copy += blocks;
    width = std::max(width, blocks);
  }
  batch.blocks = copies * blocks_of_a_copy;
  batch.tables = block_tables(batch.contexts, copies, width, scattered(batch.blocks));
  batch.table_stride = s.sequences * width;
  const std::int64_t row_bytes = kHeadSize * (s.kv == Precision::kFp8 ? 1 : 2);
  const std::int64_t cache_bytes = batch.blocks * s.kv_heads * kBlockSize * row_bytes;
  const std::int64_t rows = s.sequences * s.heads;
  const auto items = static_cast<std::int64_t>(batch.plan.items.size());
  Arena& arena = *bench.arena;
  auto* keys = arena.take<unsigned char>(cache_bytes);
  auto* values = arena.take<unsigned char>(cache_bytes);
  auto* queries = arena.take<std::uint16_t>(rows * kHeadSize);
  auto* outputs = arena.take<std::uint16_t>(rows * kHeadSize);
  auto* table = arena.take<std::int32_t>(static_cast<std::int64_t>(batch.tables.size()));
  auto* item_list = arena.take<DecodeItem>(items);
  auto* first_item = arena.take<std::int32_t>(s.sequences + 1);
  auto* part_outputs = arena.take<float>(items * s.heads * kHeadSize);
  auto* part_sums = arena.take<float>(items * s.heads * 2);
  for (unsigned char* cache : {keys, values}) {
    if (s.kv == Precision::kFp8) {
      bench.fill_e4m3(cache, cache_bytes);
    } else {
      bench.fill_bf16(cache, cache_bytes);
    }
  }
  bench.fill_bf16(queries, rows * kHeadSize * 2);
  upload(table, batch.tables);
  upload(item_list, batch.plan.items);
  upload(first_item, batch.plan.first_item);
  batch.arguments = {queries,
                     keys,
                     values,
                     table,
                     item_list,
                     first_item,
                     outputs,
                     part_outputs,
                     part_sums,
                     static_cast<std::int32_t>(width),
                     static_cast<std::int32_t>(s.heads),
                     static_cast<std::int32_t>(s.kv_heads),
                     softmax_scale()};
  return batch;
}

void enqueue_decode(const DecodeShape& s, const DecodeBatch& batch, int copy, cudaStream_t on) {
  DecodeArguments arguments = batch.arguments;
  arguments.block_table += copy * batch.table_stride;
  const std::int64_t group = s.heads / s.kv_heads;
  const dim3 grid(static_cast<unsigned>(batch.plan.items.size()),
                  static_cast<unsigned>(s.kv_heads * ((group + kTileRows - 1) / kTileRows)));
  if (s.kv == Precision::kFp8) {
    decode_attention<Fp8Kv><<<grid, kDecodeThreads, kDecodeSharedBytes, on>>>(arguments);
  } else {
    decode_attention<Bf16Kv><<<grid, kDecodeThreads, kDecodeSharedBytes, on>>>(arguments);
  }
  check_launch("decode_attention");
  if (!batch.plan.merge) return;
  const dim3 rows(static_cast<unsigned>(s.heads), static_cast<unsigned>(s.sequences));
  merge_decode_parts<<<rows, kHeadSize, 0, on>>>(arguments);
  check_launch("merge_decode_parts");
}

struct PrefillBatch {
  PrefillArguments arguments{};  // Of copy 0.
  std::int64_t query_numbers = 0;
  std::int64_t key_numbers = 0;
};

PrefillBatch take_prefill(CudaBench& bench, const PrefillShape& s, int copies) {
  PrefillBatch batch;
  batch.query_numbers = s.batch * s.tokens * s.heads * kHeadSize;
  batch.key_numbers = s.batch * (s.tokens + s.computed) * s.kv_heads * kHeadSize;
  Arena& arena = *bench.arena;
  auto* queries = arena.take<std::uint16_t>(copies * batch.query_numbers);
  auto* keys = arena.take<std::uint16_t>(copies * batch.key_numbers);
  auto* values = arena.take<std::uint16_t>(copies * batch.key_numbers);
  auto* outputs = arena.take<std::uint16_t>(copies * batch.query_numbers);
  bench.fill_bf16(queries, copies * batch.query_numbers * 2);
  bench.fill_bf16(keys, copies * batch.key_numbers * 2);
  bench.fill_bf16(values, copies * batch.key_numbers * 2);
  batch.arguments = {queries,
                     keys,
                     values,
                     outputs,
                     static_cast<std::int32_t>(s.tokens),
                     static_cast<std::int32_t>(s.computed),
                     static_cast<std::int32_t>(s.heads),
                     static_cast<std::int32_t>(s.kv_heads),
                     softmax_scale()};
  return batch;
}

PrefillArguments copy_of(const PrefillBatch& batch, int copy) {
  PrefillArguments arguments = batch.arguments;
  arguments.queries += copy * batch.query_numbers;
  arguments.keys += copy * batch.key_numbers;
  arguments.values += copy * batch.key_numbers;
  arguments.outputs += copy * batch.query_numbers;
  return arguments;
}

void enqueue_prefill(const PrefillShape& s, const PrefillArguments& arguments, cudaStream_t on) {
  const dim3 grid(static_cast<unsigned>((s.tokens + kPrefillQueries - 1) / kPrefillQueries),
                  static_cast<unsigned>(s.heads), static_cast<unsigned>(s.batch));
  prefill_attention<<<grid, kPrefillThreads, kPrefillSharedBytes, on>>>(arguments);
  check_launch("prefill_attention");
}

void allow_shared(const void* kernel, int bytes, const char* name) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
}

std::vector<double> bf16_row(const std::vector<std::uint16_t>& numbers, std::int64_t row) {
  std::vector<double> out;
  for (std::int64_t d = 0; d < kHeadSize; ++d) {
    out.push_back(decode(numbers[static_cast<std::size_t>(row * kHeadSize + d)], kBf16Format));
  }
  return out;
}

void append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

AttentionBench::AttentionBench(CudaBench& bench) : bench_(bench), cudnn_(CudnnAttention::open()) {
  allow_shared(reinterpret_cast<const void*>(&decode_attention<Bf16Kv>), kDecodeSharedBytes,
               "decode_attention bf16");
  allow_shared(reinterpret_cast<const void*>(&decode_attention<Fp8Kv>), kDecodeSharedBytes,
               "decode_attention fp8");
  allow_shared(reinterpret_cast<const void*>(&prefill_attention), kPrefillSharedBytes, "prefill_attention");
}

Timing AttentionBench::measure(const DecodeShape& s, const TimingOptions& options) {
  const int copies = bench_.copies_for(kv_bytes(s));
  const DecodeBatch batch = take_batch(bench_, s, copies);
  Timing timing = bench_.time(
      copies, [&](cudaStream_t on, int i) { enqueue_decode(s, batch, i % copies, on); }, options);
  timing.implementation = "own";
  return timing;
}

Timing AttentionBench::measure(const PrefillShape& s, const TimingOptions& options) {
  const std::int64_t bytes =
      4 * s.batch * (s.tokens * s.heads + (s.tokens + s.computed) * s.kv_heads) * kHeadSize;
  const int copies = bench_.copies_for(bytes);
  const PrefillBatch batch = take_prefill(bench_, s, copies);
  std::unique_ptr<CudnnAttention::Plan> plan;
  if (cudnn_) plan = cudnn_->plan(s, *bench_.arena);
  Timing timing = bench_.time(
      copies,
      [&](cudaStream_t on, int i) {
        const PrefillArguments a = copy_of(batch, i % copies);
        if (plan) {
          cudnn_->enqueue(*plan, {a.queries, a.keys, a.values, a.outputs}, on);
        } else {
          enqueue_prefill(s, a, on);
        }
      },
      options);
  timing.implementation = plan ? "cudnn" : "own";
  return timing;
}

Comparison AttentionBench::check_decode(const DecodeShape& s) {
  bench_.arena->clear();
  const DecodeBatch batch = take_batch(bench_, s, 2);
  enqueue_decode(s, batch, 1, bench_.stream.get());
  check_cuda(cudaStreamSynchronize(bench_.stream.get()), "a checked decode attention");
  const std::int64_t bytes = s.kv == Precision::kFp8 ? 1 : 2;
  const std::int64_t cache_bytes = batch.blocks * s.kv_heads * kBlockSize * kHeadSize * bytes;
  const auto keys = download(batch.arguments.keys, cache_bytes);
  const auto values = download(batch.arguments.values, cache_bytes);
  const auto queries = download(batch.arguments.queries, s.sequences * s.heads * kHeadSize);
  const auto outputs = download(batch.arguments.outputs, s.sequences * s.heads * kHeadSize);
  std::vector<double> got;
  std::vector<double> expected;
  for (std::int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    for (std::int64_t head = 0; head < s.heads; head += 3) {
      const std::int64_t kv_head = head / (s.heads / s.kv_heads);
      const auto reader = [&](const std::vector<unsigned char>& cache) {
        return [&, kv_head, sequence](int token, int d) {
          const std::int64_t block = batch.tables[static_cast<std::size_t>(
              batch.table_stride + sequence * batch.arguments.table_width + token / kBlockSize)];
          const std::int64_t row = (block * s.kv_heads + kv_head) * kBlockSize + token % kBlockSize;
          const auto at = static_cast<std::size_t>((row * kHeadSize + d) * bytes);
          if (bytes == 1) return decode(cache[at], kE4m3Format);
          return decode(static_cast<std::uint16_t>(cache[at] | cache[at + 1] << 8), kBf16Format);
        };
      };
      const std::int64_t row = sequence * s.heads + head;
      append(expected, reference_attention(
                           bf16_row(queries, row), batch.contexts[static_cast<std::size_t>(sequence)],
                           1 / std::sqrt(static_cast<double>(kHeadSize)), reader(keys), reader(values)));
      append(got, bf16_row(outputs, row));
    }
  }
  return {describe(s), relative_error(got, expected), kAllowedError};
}

Comparison AttentionBench::check_prefill(const PrefillShape& s, bool by_cudnn) {
  bench_.arena->clear();
  const PrefillBatch batch = take_prefill(bench_, s, 2);
  const PrefillArguments a = copy_of(batch, 1);
  if (by_cudnn) {
    const auto plan = cudnn_->plan(s, *bench_.arena);
    if (!plan) return {describe(s) + " by cuDNN: refused, " + cudnn_->refusal(), 0, kAllowedError};
    cudnn_->enqueue(*plan, {a.queries, a.keys, a.values, a.outputs}, bench_.stream.get());
  } else {
    enqueue_prefill(s, a, bench_.stream.get());
  }
  check_cuda(cudaStreamSynchronize(bench_.stream.get()), "a checked prefill attention");
  const auto queries = download(a.queries, batch.query_numbers);
  const auto keys = download(a.keys, batch.key_numbers);
  const auto values = download(a.values, batch.key_numbers);
  const auto outputs = download(a.outputs, batch.query_numbers);
  std::vector<double> got;
  std::vector<double> expected;
  for (std::int64_t sequence = 0; sequence < s.batch; ++sequence) {
    for (std::int64_t token = 0; token < s.tokens; token += 7) {
      for (std::int64_t head = token % 3; head < s.heads; head += 3) {
        const std::int64_t kv_head = head / (s.heads / s.kv_heads);
        const auto reader = [&](const std::vector<std::uint16_t>& numbers) {
          return [&, kv_head, sequence](int key, int d) {
            const std::int64_t row = (sequence * (s.tokens + s.computed) + key) * s.kv_heads + kv_head;
            return decode(numbers[static_cast<std::size_t>(row * kHeadSize + d)], kBf16Format);
          };
        };
        const std::int64_t row = (sequence * s.tokens + token) * s.heads + head;
        append(expected, reference_attention(bf16_row(queries, row), static_cast<int>(s.computed + token + 1),
                                             1 / std::sqrt(static_cast<double>(kHeadSize)), reader(keys),
                                             reader(values)));
        append(got, bf16_row(outputs, row));
      }
    }
  }
  return {describe(s) + (by_cudnn ? " by cuDNN" : ""), relative_error(got, expected), kAllowedError};
}

std::vector<Comparison> AttentionBench::check() {
  std::vector<Comparison> all;
  for (const Precision kv : {Precision::kBf16, Precision::kFp8}) {
    all.push_back(check_decode({kv, 5, 700, true, 32, 8}));
    all.push_back(check_decode({kv, 1, 5000, false, 8, 1}));
    all.push_back(check_decode({kv, 3, 37, false, 40, 2}));
  }
  for (const PrefillShape& s : {PrefillShape{2, 200, 0, 6, 2}, PrefillShape{1, 70, 133, 4, 4}}) {
    all.push_back(check_prefill(s, false));
    if (cudnn_) all.push_back(check_prefill(s, true));
  }
  return all;
}

}  // namespace kneepoint::microbench
