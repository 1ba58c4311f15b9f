#include "calibrate/microbench/measurement.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>

namespace kneepoint::microbench {

namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}
std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

// Fields one after the other, those with nothing to say left out.
class Fields {
 public:
  Fields& add(const char* name, const std::string& text) {
    return text.empty() ? *this : raw(name, quoted(text));
  }
  Fields& add(const char* name, double value) { return value == 0 ? *this : raw(name, number(value)); }
  Fields& add(const char* name, std::int64_t value) { return value == 0 ? *this : raw(name, number(value)); }
  Fields& add(const char* name, bool value) { return value ? raw(name, "true") : *this; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  Fields& raw(const char* name, const std::string& value) {
    text_ += std::string(text_.empty() ? "" : " ") + name + ": " + value;
    return *this;
  }
  std::string text_;
};

struct ShapeText {
  std::string operator()(const MemoryShape& s) const {
    return "memory { " + Fields().add("op", std::string(name_of(s.op))).add("bytes", s.bytes).text() + " }";
  }
  std::string operator()(const GemmShape& s) const {
    return "gemm { " +
           Fields()
               .add("precision", std::string(name_of(s.precision)))
               .add("m", s.m)
               .add("n", s.n)
               .add("k", s.k)
               .add("quantise", s.quantise)
               .text() +
           " }";
  }
  std::string operator()(const DecodeShape& s) const {
    const std::vector<std::int32_t> contexts = contexts_of(s);
    const std::int64_t longest = *std::max_element(contexts.begin(), contexts.end());
    return "decode_attention { " +
           Fields()
               .add("kv_precision", std::string(name_of(s.kv)))
               .add("sequences", s.sequences)
               .add("context_sum", std::accumulate(contexts.begin(), contexts.end(), std::int64_t{0}))
               .add("context_max", longest)
               .add("heads", s.heads)
               .add("kv_heads", s.kv_heads)
               .text() +
           " }";
  }
  std::string operator()(const PrefillShape& s) const {
    return "prefill_attention { " +
           Fields()
               .add("batch", s.batch)
               .add("tokens", s.tokens)
               .add("computed", s.computed)
               .add("heads", s.heads)
               .add("kv_heads", s.kv_heads)
               .text() +
           " }";
  }
  std::string operator()(const RowShape& s) const {
    return "elementwise { " +
           Fields()
               .add("op", std::string(name_of(s.op)))
               .add("rows", s.rows)
               .add("columns", s.columns)
               .add("bytes", bytes_moved(s))
               .text() +
           " }";
  }
  std::string operator()(const LatencyShape& s) const {
    return "latency { " + Fields().add("op", std::string(name_of(s.op))).text() + " }";
  }
  std::string operator()(const AllReduceShape& s) const {
    return "all_reduce { " + Fields().add("gpus", s.gpus).add("bytes", s.bytes).text() + " }";
  }
};

std::string facts_text(const DeviceFacts& f) {
  return Fields()
      .add("name", f.name)
      .add("compute_capability",
           std::to_string(f.capability_major) + "." + std::to_string(f.capability_minor))
      .add("sm_count", f.sm_count)
      .add("l2_bytes", f.l2_bytes)
      .add("memory_bytes", f.memory_bytes)
      .add("free_memory_bytes", f.free_memory_bytes)
      .add("shared_bytes_per_sm", f.shared_bytes_per_sm)
      .add("shared_bytes_per_block", f.shared_bytes_per_block)
      .add("registers_per_sm", f.registers_per_sm)
      .add("memory_clock_mhz", f.memory_clock_mhz)
      .add("memory_bus_bits", f.memory_bus_bits)
      .add("max_sm_clock_mhz", f.max_sm_clock_mhz)
      .add("power_limit_w", f.power_limit_w)
      .add("default_power_limit_w", f.default_power_limit_w)
      .add("ecc", f.ecc)
      .add("num_gpus", static_cast<std::int64_t>(f.num_gpus))
      .add("driver_version", f.driver_version)
      .add("cuda_version", f.cuda_version)
      .add("cublas_version", f.cublas_version)
      .add("cudnn_version", f.cudnn_version)
      .add("nccl_version", f.nccl_version)
      .text();
}

std::string row_text(const MeasuredRow& row) {
  const Timing& t = row.timing;
  Fields fields;
  fields.add("us", median(t.us))
      .add("us_min", *std::min_element(t.us.begin(), t.us.end()))
      .add("us_max", *std::max_element(t.us.begin(), t.us.end()))
      .add("repeats", static_cast<std::int64_t>(t.us.size()))
      .add("calls", t.calls)
      .add("implementation", t.implementation)
      .add("sm_mhz", t.clocks.sm_mhz)
      .add("memory_mhz", t.clocks.memory_mhz)
      .add("temperature_c", t.clocks.temperature_c)
      .add("power_w", t.clocks.power_w);
  for (const std::string& reason : t.clocks.throttle) fields.add("throttle", reason);
  return "row { " + fields.text() + "\n  " + std::visit(ShapeText{}, row.shape) + " }\n";
}

}  // namespace

void Measurement::skip(const Shape& shape, const std::string& why) {
  const auto same = std::find_if(skipped.begin(), skipped.end(), [&](const auto& s) { return s.why == why; });
  if (same != skipped.end()) {
    ++same->count;
  } else {
    skipped.push_back({why, describe(shape), 1});
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string measurement_text(const Measurement& m) {
  std::string text =
      "# proto-file: calibrate/measurement.proto\n# proto-message: kneepoint.calibrate.pb.Measurement\n"
      "# Written by gpu_microbench; `calibrate fit-ops` reads it. Times are microseconds of one call.\n";
  text += "date: " + quoted(m.date) + "\nplanned: " + number(m.planned) + "\nseconds: " + number(m.seconds) +
          "\nended_by: " + quoted(m.ended_by.empty() ? "still running" : m.ended_by) + "\n";
  text += "gpu { " + facts_text(m.facts) + " }\n";
  for (const SkippedShapes& s : m.skipped) {
    text +=
        "skipped { " + Fields().add("why", s.why).add("count", s.count).add("first", s.first).text() + " }\n";
  }
  for (const MeasuredRow& row : m.rows) text += row_text(row);
  return text;
}

void replace_file(const std::string& path, const std::string& text) {
  const std::string beside = path + ".tmp";
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw std::runtime_error(path + ": cannot be written");
  if (std::rename(beside.c_str(), path.c_str()) != 0) {
    throw std::runtime_error(path + ": cannot be replaced: " + std::strerror(errno));
  }
}

}  // namespace kneepoint::microbench
