#include "calibrate/ops_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "calibrate/calibrate_error.h"
#include "calibrate/csv_table.h"

namespace kneepoint::calibrate {

namespace {

namespace fs = std::filesystem;

// A cell-reader with the checks that all kinds share.
class Reader {
 public:
  explicit Reader(const CsvTable& csv) : csv_(csv) {}

  [[nodiscard]] std::int64_t positive(std::size_t row, std::string_view column) const {
    need(column);
    const std::int64_t value = csv_.integer(row, column);
    if (value <= 0) throw error(row, column, fmt::format("{} is not positive", value));
    return value;
  }
  [[nodiscard]] double latency(std::size_t row) const {
    need("latency_us");
    const double value = csv_.number(row, "latency_us");
    if (!(value > 0)) throw error(row, "latency_us", fmt::format("{} is not positive", value));
    return value;
  }
  [[nodiscard]] std::string text(std::size_t row, std::string_view column) const {
    need(column);
    return csv_.text(row, column);
  }
  [[nodiscard]] CalibrateError error(std::size_t row, std::string_view column, const std::string& why) const {
    return CalibrateError(
        fmt::format("{}: line {}: {}: {}", csv_.path().string(), csv_.line(row), column, why));
  }
  [[nodiscard]] hw::Precision precision(std::size_t row, std::string_view column) const {
    const std::string name = text(row, column);
    if (name == "bfloat16") return hw::Precision::kBf16;
    if (name == "fp8" || name == "fp8_block") return hw::Precision::kFp8;
    throw error(row, column, fmt::format("'{}' is no known type; known are bfloat16, fp8, fp8_block", name));
  }

 private:
  void need(std::string_view column) const {
    if (!csv_.has(column)) {
      throw CalibrateError(fmt::format("{}: line 1: column '{}' is missing", csv_.path().string(), column));
    }
  }

  const CsvTable& csv_;
};

std::string_view suffix_of(hw::Precision precision) {
  return precision == hw::Precision::kFp8 ? "fp8" : "bf16";
}

void read_gemm(const Reader& in, std::size_t i, OperatorRow& row) {
  const hw::GemmShape shape{.precision = in.precision(i, "dtype"),
                            .m = in.positive(i, "m"),
                            .n = in.positive(i, "n"),
                            .k = in.positive(i, "k")};
  row.family = fmt::format("gemm_{}", suffix_of(shape.precision));
  row.shape = shape;
}

void read_decode(const Reader& in, std::size_t i, OperatorRow& row) {
  hw::DecodeAttentionShape shape{.kv_precision = in.precision(i, "kv_cache_dtype"),
                                 .count = in.positive(i, "batch_size"),
                                 .context_max = in.positive(i, "kv_len"),
                                 .num_heads = in.positive(i, "num_heads"),
                                 .num_kv_heads = in.positive(i, "num_key_value_heads")};
  shape.context_sum = shape.count * shape.context_max;
  row.family = fmt::format("decode_attention_{}", suffix_of(shape.kv_precision));
  row.shape = shape;
}

void read_prefill(const Reader& in, std::size_t i, OperatorRow& row) {
  const hw::PrefillAttentionShape shape{.kv_precision = in.precision(i, "kv_cache_dtype"),
                                        .batch = in.positive(i, "batch_size"),
                                        .num_tokens = in.positive(i, "isl"),
                                        .num_heads = in.positive(i, "num_heads"),
                                        .num_kv_heads = in.positive(i, "num_key_value_heads")};
  row.family = fmt::format("prefill_attention_{}", suffix_of(shape.kv_precision));
  row.shape = shape;
}

void read_moe(const Reader& in, std::size_t i, OperatorRow& row) {
  const std::string spread = in.text(i, "distribution");
  if (spread != "balanced" && spread.rfind("power_law", 0) != 0) {
    throw in.error(i, "distribution", fmt::format("'{}' is neither balanced nor power_law_*", spread));
  }
  const hw::MoeShape shape{.precision = in.precision(i, "moe_dtype"),
                           .num_tokens = in.positive(i, "num_tokens"),
                           .hidden_size = in.positive(i, "hidden_size"),
                           .intermediate_size = in.positive(i, "inter_size"),
                           .top_k = in.positive(i, "topk"),
                           .num_experts = in.positive(i, "num_experts"),
                           .moe_tp = in.positive(i, "moe_tp_size"),
                           .moe_ep = in.positive(i, "moe_ep_size"),
                           .balanced = spread == "balanced"};
  row.family = fmt::format("moe_{}{}", suffix_of(shape.precision), shape.moe_ep > 1 ? "_ep" : "");
  row.shape = shape;
}

void read_allreduce(const Reader& in, std::size_t i, OperatorRow& row) {
  const hw::CollectiveShape shape{.op = hw::Collective::kAllReduce,
                                  .num_gpus = in.positive(i, "num_gpus"),
                                  .message_bytes = in.positive(i, "message_bytes")};
  const std::string backend = in.text(i, "backend");
  if (backend != "vllm_graph" && backend != "vllm_eager") {
    throw in.error(i, "backend", fmt::format("'{}' is neither vllm_graph nor vllm_eager", backend));
  }
  row.family = fmt::format("all_reduce{}_{}", backend == "vllm_eager" ? "_eager" : "", shape.num_gpus);
  row.shape = shape;
}

void read_nccl(const Reader& in, std::size_t i, OperatorRow& row) {
  struct Operation {
    std::string_view name;
    std::string_view family;
    hw::Collective op;
  };
  constexpr std::array kOperations{
      Operation{"all_reduce", "all_reduce_nccl", hw::Collective::kAllReduce},
      Operation{"all_gather", "all_gather", hw::Collective::kAllGather},
      Operation{"reduce_scatter", "reduce_scatter", hw::Collective::kReduceScatter},
      Operation{"alltoall", "all_to_all", hw::Collective::kAllToAll},
  };
  const std::string name = in.text(i, "op_name");
  const auto* const operation = std::ranges::find(kOperations, name, &Operation::name);
  if (operation == kOperations.end()) {
    throw in.error(i, "op_name", fmt::format("'{}' is no known operation", name));
  }
  const std::string type = in.text(i, "nccl_dtype");
  if (type != "half" && type != "int8")
    throw in.error(i, "nccl_dtype", fmt::format("'{}' is neither half nor int8", type));
  const hw::CollectiveShape shape{
      .op = operation->op,
      .num_gpus = in.positive(i, "num_gpus"),
      .message_bytes = in.positive(i, "message_elems") * (type == "half" ? 2 : 1)};
  row.family = fmt::format("{}_{}", operation->family, shape.num_gpus);
  row.shape = shape;
}

struct Kind {
  std::string_view name;
  void (*read)(const Reader&, std::size_t, OperatorRow&);
};
constexpr std::array kKinds{
    Kind{"allreduce", &read_allreduce}, Kind{"decode_attention", &read_decode},
    Kind{"gemm", &read_gemm},           Kind{"moe", &read_moe},
    Kind{"nccl", &read_nccl},           Kind{"prefill_attention", &read_prefill},
};

// "h100_sxm_gemm" -> gemm of "h100"; the form factor is no part of our names.
struct FileName {
  std::string gpu;
  const Kind* kind = nullptr;
};

FileName take_apart(const fs::path& path) {
  const std::string stem = path.stem().string();
  for (const Kind& kind : kKinds) {
    const std::string end = fmt::format("_{}", kind.name);
    if (!stem.ends_with(end) || stem.size() == end.size()) continue;
    std::string gpu = stem.substr(0, stem.size() - end.size());
    if (gpu.ends_with("_sxm")) gpu.resize(gpu.size() - 4);
    return {gpu, &kind};
  }
  std::string known;
  for (const Kind& kind : kKinds) known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  throw CalibrateError(
      fmt::format("{}: unknown family of operators; name the file GPU_KIND.csv with one of the kinds {}",
                  path.string(), known));
}

}  // namespace

void read_ops_csv(const fs::path& path, OpsTable& table) {
  const FileName name = take_apart(path);
  const CsvTable csv(path);
  const Reader in(csv);
  for (std::size_t i = 0; i < csv.num_rows(); ++i) {
    OperatorRow row;
    row.gpu = name.gpu;
    row.where = fmt::format("{}, line {}", path.filename().string(), csv.line(i));
    name.kind->read(in, i, row);
    row.us = in.latency(i);
    table.push_back(std::move(row));
  }
}

OpsTable read_ops(const std::vector<std::string>& paths, std::string_view gpu) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) throw CalibrateError(fmt::format("{}: no such file or folder", path));
    if (!fs::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".csv") files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  OpsTable table;
  for (const fs::path& file : files) {
    if (gpu.empty() || take_apart(file).gpu == gpu) read_ops_csv(file, table);
  }
  if (table.empty()) {
    throw CalibrateError(fmt::format("{}: no measured operators{}; files are named GPU_KIND.csv",
                                     fmt::join(paths, ", "), gpu.empty() ? "" : fmt::format(" of {}", gpu)));
  }
  return table;
}

std::vector<std::string> gpus_of(const OpsTable& table) {
  std::set<std::string> names;
  for (const OperatorRow& row : table) names.insert(row.gpu);
  return {names.begin(), names.end()};
}

}  // namespace kneepoint::calibrate
