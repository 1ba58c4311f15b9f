#include "calibrate/measurement_file.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

#include "calibrate/calibrate_error.h"
#include "calibrate/measurement.pb.h"

namespace kneepoint::calibrate {

namespace {

constexpr double kBitsOfAByte = 8;
constexpr double kMega = 1e6;

class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text.empty()) text = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  std::string text;
};

// One row's shape as the forms have it, with the checks that all kinds share.
class RowReader {
 public:
  RowReader(const pb::Row& row, std::string where, std::string gpu)
      : row_(row), where_(std::move(where)), gpu_(std::move(gpu)) {}

  void check_times() const {
    const bool ordered =
        row_.us() > 0 && row_.us_min() > 0 && row_.us_min() <= row_.us() && row_.us() <= row_.us_max();
    if (!ordered || !std::isfinite(row_.us_max())) {
      throw error(fmt::format("us: {} with {} to {}: a positive time within its spread is needed", row_.us(),
                              row_.us_min(), row_.us_max()));
    }
  }
  [[nodiscard]] CalibrateError error(const std::string& why) const {
    return CalibrateError(fmt::format("{}: {}", where_, why));
  }
  [[nodiscard]] std::int64_t positive(const char* field, std::int64_t value) const {
    constexpr std::int64_t kLargest = std::int64_t{1} << 50;
    if (value <= 0 || value > kLargest) throw error(fmt::format("{}: {} is no size", field, value));
    return value;
  }
  [[nodiscard]] hw::Precision precision(const char* field, const std::string& name) const {
    if (name == "bf16") return hw::Precision::kBf16;
    if (name == "fp8") return hw::Precision::kFp8;
    if (name == "int4") return hw::Precision::kInt4;
    throw error(fmt::format("{}: '{}' is no known type; known are bf16, fp8, int4", field, name));
  }
  [[nodiscard]] OperatorRow row(std::string family, OperatorShape shape) const {
    return {.gpu = gpu_,
            .family = std::move(family),
            .shape = shape,
            .us = row_.us(),
            .where = where_,
            .cache = hw::CacheState::kCold};
  }

  [[nodiscard]] OperatorRow gemm(const pb::GemmShape& s) const {
    const hw::GemmShape shape{.precision = precision("gemm: precision", s.precision()),
                              .m = positive("gemm: m", s.m()),
                              .n = positive("gemm: n", s.n()),
                              .k = positive("gemm: k", s.k()),
                              .static_scales = s.precision() == "fp8" && !s.quantise()};
    return row("gemm_" + s.precision(), shape);
  }
  [[nodiscard]] OperatorRow decode(const pb::DecodeAttentionShape& s) const {
    const hw::DecodeAttentionShape shape{
        .kv_precision = precision("decode_attention: kv_precision", s.kv_precision()),
        .count = positive("decode_attention: sequences", s.sequences()),
        .context_sum = positive("decode_attention: context_sum", s.context_sum()),
        .context_max = positive("decode_attention: context_max", s.context_max()),
        .num_heads = positive("decode_attention: heads", s.heads()),
        .num_kv_heads = positive("decode_attention: kv_heads", s.kv_heads())};
    if (shape.num_heads % shape.num_kv_heads != 0 || shape.context_sum > shape.count * shape.context_max) {
      throw error("decode_attention: heads and contexts contradict each other");
    }
    return row("decode_attention_" + s.kv_precision(), shape);
  }
  [[nodiscard]] OperatorRow prefill(const pb::PrefillAttentionShape& s) const {
    if (s.computed() < 0)
      throw error(fmt::format("prefill_attention: computed: {} is negative", s.computed()));
    const hw::PrefillAttentionShape shape{
        .batch = positive("prefill_attention: batch", s.batch()),
        .num_tokens = positive("prefill_attention: tokens", s.tokens()),
        .num_computed_tokens = s.computed(),
        .num_heads = positive("prefill_attention: heads", s.heads()),
        .num_kv_heads = positive("prefill_attention: kv_heads", s.kv_heads())};
    if (shape.num_heads % shape.num_kv_heads != 0)
      throw error("prefill_attention: heads contradict each other");
    return row("prefill_attention_bf16", shape);
  }
  [[nodiscard]] OperatorRow elementwise(const pb::ElementwiseShape& s) const {
    return row("elementwise", hw::ElementwiseShape{.bytes = positive("elementwise: bytes", s.bytes())});
  }
  [[nodiscard]] OperatorRow all_reduce(const pb::AllReduceShape& s) const {
    const hw::CollectiveShape shape{.op = hw::Collective::kAllReduce,
                                    .num_gpus = positive("all_reduce: gpus", s.gpus()),
                                    .message_bytes = positive("all_reduce: bytes", s.bytes())};
    return row(fmt::format("all_reduce_{}", shape.num_gpus), shape);
  }

 private:
  const pb::Row& row_;
  std::string where_;
  std::string gpu_;
};

// Warnings: what a reader must know before trusting the rates.

std::string share_text(std::size_t count, int all) {
  return fmt::format("{} of {} rows", count, all);
}

void warn_about_rows(const pb::Measurement& from, std::vector<std::string>& warnings) {
  constexpr double kNoisy = 0.1;
  std::map<std::string, std::size_t> throttled;
  std::size_t noisy = 0;
  for (const pb::Row& row : from.row()) {
    for (const std::string& reason : row.throttle()) ++throttled[reason];
    if (row.us_max() - row.us_min() > kNoisy * row.us()) ++noisy;
  }
  for (const auto& [reason, count] : throttled) {
    warnings.push_back(
        fmt::format("throttled: {} ran below the maximum clock ({}); the rates are those of this "
                    "power and cooling",
                    share_text(count, from.row_size()), reason));
  }
  if (noisy > 0) {
    warnings.push_back(
        fmt::format("noisy: the repeats of {} differ by more than {:.0f} %; is the GPU shared?",
                    share_text(noisy, from.row_size()), 100 * kNoisy));
  }
}

void warn_about_run(const pb::Measurement& from, std::vector<std::string>& warnings) {
  if (from.ended_by() != "all shapes measured") {
    warnings.push_back(
        fmt::format("ended early: {} of {} shapes ({})", from.row_size(), from.planned(), from.ended_by()));
  }
  for (const pb::Skipped& skipped : from.skipped()) {
    warnings.push_back(
        fmt::format("skipped: {} shapes, {} (first: {})", skipped.count(), skipped.why(), skipped.first()));
  }
  const pb::GpuFacts& gpu = from.gpu();
  if (gpu.power_limit_w() > 0 && gpu.power_limit_w() < gpu.default_power_limit_w()) {
    warnings.push_back(fmt::format("power limit: {:.0f} W where the default is {:.0f} W", gpu.power_limit_w(),
                                   gpu.default_power_limit_w()));
  }
  const bool own_prefill = std::ranges::any_of(from.row(), [](const pb::Row& row) {
    return row.has_prefill_attention() && row.implementation() == "own";
  });
  if (own_prefill) {
    warnings.emplace_back(
        "prefill attention was measured with our own kernel, for want of cuDNN: on Hopper and newer, "
        "servers' kernels "
        "are about twice as fast on long prompts");
  }
}

// Figures that no form takes.

void add_memory(const pb::Row& row, std::int64_t l2_bytes, GpuMeasurement& to) {
  const pb::MemoryShape& s = row.memory();
  constexpr std::int64_t kLarge = std::int64_t{512} << 20;
  const double touched = static_cast<double>(s.bytes()) * (s.op() == "copy" ? 2 : 1);
  const double bytes_per_s = touched / (row.us() * 1e-6);
  if (s.op() == "read" && 2 * s.bytes() <= l2_bytes) {
    to.gpu.l2_bytes_per_s = std::max(to.gpu.l2_bytes_per_s, bytes_per_s);
  }
  if (s.bytes() < kLarge && !(s.op() == "read" && 2 * s.bytes() <= l2_bytes)) return;
  to.figures.push_back({"memory " + s.op(), s.bytes(), bytes_per_s * 1e-9, "GB/s"});
}

// INT4 is computed from the bf16 form, for kernels that widen on the way; widening first
// costs a write and a read of all weights more, and that is what was timed.
void add_row(const RowReader& reader, const pb::Row& row, std::int64_t l2_bytes, GpuMeasurement& to) {
  switch (row.shape_case()) {
    case pb::Row::kMemory:
      return add_memory(row, l2_bytes, to);
    case pb::Row::kGemm:
      to.rows.push_back(reader.gemm(row.gemm()));
      return;
    case pb::Row::kDecodeAttention:
      to.rows.push_back(reader.decode(row.decode_attention()));
      return;
    case pb::Row::kPrefillAttention:
      to.rows.push_back(reader.prefill(row.prefill_attention()));
      return;
    case pb::Row::kElementwise:
      to.rows.push_back(reader.elementwise(row.elementwise()));
      return;
    case pb::Row::kAllReduce:
      to.rows.push_back(reader.all_reduce(row.all_reduce()));
      return;
    case pb::Row::kLatency:
      to.figures.push_back({row.latency().op(), 0, row.us(), "us"});
      return;
    case pb::Row::SHAPE_NOT_SET:
      throw reader.error("has no shape");
  }
}

MeasuredGpu read_gpu(const pb::Measurement& from, const std::string& label) {
  const pb::GpuFacts& facts = from.gpu();
  if (facts.name().empty() || facts.compute_capability().empty() || facts.sm_count() <= 0 ||
      facts.memory_bytes() <= 0 || facts.l2_bytes() <= 0 || !(facts.max_sm_clock_mhz() > 0)) {
    throw CalibrateError(fmt::format(
        "{}: gpu: name, compute_capability, sm_count, memory_bytes, l2_bytes and max_sm_clock_mhz are needed",
        label));
  }
  MeasuredGpu gpu;
  gpu.full_name = facts.name();
  gpu.capability = facts.compute_capability();
  gpu.about = fmt::format("gpu_microbench on {}, driver {}, CUDA {}, {}", facts.name(),
                          facts.driver_version(), facts.cuda_version(), from.date());
  for (const std::string* text : {&gpu.full_name, &gpu.about}) {  // They go into quoted texts as they are.
    if (text->find_first_of("\"\\\n") == std::string::npos) continue;
    throw CalibrateError(
        fmt::format("{}: gpu: name, versions and date may hold no quotes, backslashes or line ends", label));
  }
  gpu.sm_count = facts.sm_count();
  gpu.l2_bytes = facts.l2_bytes();
  gpu.memory_bytes = facts.memory_bytes();
  constexpr double kEdges = 2;  // Data on both edges of the clock.
  gpu.memory_bytes_per_s =
      kEdges * facts.memory_clock_mhz() * kMega * static_cast<double>(facts.memory_bus_bits()) / kBitsOfAByte;
  gpu.max_sm_clock_hz = facts.max_sm_clock_mhz() * kMega;
  return gpu;
}

// Multiply-adds count two. Dense tensor cores, bf16 in, fp32 sums.
struct Generation {
  std::string_view capability;
  double flops_per_cycle;  // Of an SM.
  bool fp8;
};
// A100: 312 TFLOP/s of 108 SMs at 1.41 GHz; L40S: 362 of 142 at 2.52; H100: 989 of 132 at 1.83;
// B200: 2250 of 148 at 1.86; RTX PRO 6000: 504 of 188 at 2.62. NVIDIA's data sheets and white papers.
constexpr Generation kGenerations[] = {{"8.0", 2048, false}, {"8.6", 1024, false}, {"8.9", 1024, true},
                                       {"9.0", 4096, true},  {"10.0", 8192, true}, {"12.0", 1024, true}};

std::string quantity(std::string_view field, double value, std::string_view unit, const std::string& source) {
  return fmt::format("{} {{ value: {:.6g} unit: \"{}\" source: \"{}\" }}\n", field, value, unit, source);
}

}  // namespace

GpuMeasurement parse_measurement(const std::string& text, const std::string& label,
                                 const std::string& gpu_name) {
  pb::Measurement from;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, &from)) {
    throw CalibrateError(fmt::format("{}: {}; is this a measurement of gpu_microbench?", label, error.text));
  }
  GpuMeasurement to;
  to.gpu = read_gpu(from, label);
  if (from.row_size() == 0)
    throw CalibrateError(fmt::format("{}: holds no rows ({})", label, from.ended_by()));
  for (int i = 0; i < from.row_size(); ++i) {
    const RowReader reader(from.row(i), fmt::format("{}, row {}", label, i + 1), gpu_name);
    reader.check_times();
    add_row(reader, from.row(i), to.gpu.l2_bytes, to);
  }
  std::ranges::sort(to.figures, {}, [](const MeasuredFigure& f) { return std::tie(f.what, f.bytes); });
  warn_about_run(from, to.warnings);
  warn_about_rows(from, to.warnings);
  return to;
}

GpuMeasurement read_measurement(const std::string& path, const std::string& gpu_name) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw CalibrateError(fmt::format("{}: cannot be opened", path));
  std::ostringstream text;
  text << in.rdbuf();
  return parse_measurement(text.str(), path.substr(path.rfind('/') + 1), gpu_name);
}

std::string gpu_description(const MeasuredGpu& gpu, const std::string& name, const std::string& rates_file) {
  const auto* const generation = std::ranges::find(kGenerations, gpu.capability, &Generation::capability);
  if (generation == std::ranges::end(kGenerations)) {
    throw CalibrateError(
        fmt::format("compute capability {}: its peak is not known here; give the GPU's data sheet "
                    "with --gpu FILE.textproto (hw/gpus has examples)",
                    gpu.capability));
  }
  if (!(gpu.memory_bytes_per_s > 0)) {
    throw CalibrateError(
        "the driver did not tell memory clock and bus; give the GPU's data sheet with --gpu FILE.textproto");
  }
  constexpr double kMib = 1048576;
  constexpr double kL2BytesPerCycle = 64;  // Of an SM.
  const double sms = static_cast<double>(gpu.sm_count);
  const double peak = sms * generation->flops_per_cycle * gpu.max_sm_clock_hz * 1e-12;
  const std::string peak_source =
      fmt::format("{} SMs x {:.0f} FLOP a cycle (compute capability {}) x maximum clock", gpu.sm_count,
                  generation->flops_per_cycle, gpu.capability);
  const bool l2_measured = gpu.l2_bytes_per_s > 0;
  const double l2 = l2_measured ? gpu.l2_bytes_per_s : sms * kL2BytesPerCycle * gpu.max_sm_clock_hz;
  std::string text =
      "# Written by `calibrate fit-ops` from a measurement.\n# proto-file: hw/specs.proto\n"
      "# proto-message: kneepoint.hw.pb.GpuSpec\n";
  text += fmt::format("name: \"{}\"\nfull_name: \"{}\"\nrates: \"{}\"\n", name, gpu.full_name, rates_file);
  text += quantity("nominal_memory", std::round(static_cast<double>(gpu.memory_bytes) * 1e-9), "GB",
                   "what the driver reports, in whole GB: " + gpu.about);
  text += quantity("reported_memory", std::floor(static_cast<double>(gpu.memory_bytes) / kMib), "MiB",
                   "cudaMemGetInfo, " + gpu.about);
  text +=
      quantity("memory_bandwidth", gpu.memory_bytes_per_s * 1e-9, "GB/s", "driver: memory clock x bus x 2");
  text += quantity("l2_size", static_cast<double>(gpu.l2_bytes) / kMega, "MB", "driver");
  text += quantity(
      "l2_bandwidth", l2 * 1e-9, "GB/s",
      l2_measured ? "measured: fastest read within half of L2" : "64 byte a cycle and SM, not measured");
  text += quantity("bf16_peak", peak, "TFLOP/s", peak_source);
  if (generation->fp8) text += quantity("fp8_peak", 2 * peak, "TFLOP/s", "twice bf16_peak");
  text += quantity("sm_count", sms, "count", "driver");
  text += quantity("boost_clock", gpu.max_sm_clock_hz / kMega, "MHz", "driver, maximum SM clock");
  text += quantity("link_bandwidth", 32, "GB/s",
                   "assumed: PCIe 4.0 x16; replace it where GPUs are linked by NVLink");
  text += quantity("link_latency", 5, "us", "assumed: PCIe through the host");
  if (gpu.capability == "10.0") text += "data_centre_blackwell: true\n";
  return text;
}

}  // namespace kneepoint::calibrate
