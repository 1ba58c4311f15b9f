#include "calibrate/microbench/command_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <numeric>

namespace kneepoint::microbench {

namespace {

constexpr std::array<const char*, 6> kOptions{"--budget-seconds", "--check", "--date",
                                              "--device",         "--help",  "--out"};

std::size_t edits_between(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// The one that `given` begins, else the one with the fewest letters changed.
std::string closest_option(const std::string& given) {
  for (const char* option : kOptions) {
    if (given.size() > 2 && std::string(option).rfind(given, 0) == 0) return option;
  }
  return *std::min_element(kOptions.begin(), kOptions.end(), [&](const char* a, const char* b) {
    return edits_between(given, a) < edits_between(given, b);
  });
}

template <class T>
T number_of(const std::string& option, const std::string& text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most)) {
    throw UsageError(option + " '" + text + "': a number from " +
                     std::to_string(static_cast<long long>(least)) + " to " +
                     std::to_string(static_cast<long long>(most)) + " is needed");
  }
  return value;
}

std::string checked_date(const std::string& text) {
  bool good = text.size() == 10;
  for (std::size_t i = 0; good && i < text.size(); ++i) {
    good = i == 4 || i == 7 ? text[i] == '-' : text[i] >= '0' && text[i] <= '9';
  }
  if (!good) throw UsageError("--date '" + text + "': a day as 2026-12-01 is needed");
  return text;
}

std::string line(const char* format, double value, const std::string& shape) {
  char number[64];
  std::snprintf(number, sizeof number, format, value);
  return number + ("  (" + shape + ")");
}

// The row that reaches most of `rate`, which is 0 where it does not apply.
template <class Rate>
void add_best(const Measurement& m, const char* format, const Rate& rate, std::vector<std::string>& lines) {
  double best = 0;
  const MeasuredRow* row = nullptr;
  for (const MeasuredRow& candidate : m.rows) {
    const double reached = rate(candidate);
    if (reached > best) {
      best = reached;
      row = &candidate;
    }
  }
  if (row != nullptr) lines.push_back(line(format, best, describe(row->shape)));
}

double gigabytes_per_s(const MeasuredRow& row, MemoryOp op) {
  constexpr std::int64_t kLarge = 512 << 20;  // Past any L2.
  const auto* s = std::get_if<MemoryShape>(&row.shape);
  if (s == nullptr || s->op != op || s->bytes < kLarge) return 0;
  return static_cast<double>(bytes_moved(*s)) / median(row.timing.us) * 1e-3;
}

double gemm_teraflops(const MeasuredRow& row, Precision precision) {
  const auto* s = std::get_if<GemmShape>(&row.shape);
  if (s == nullptr || s->precision != precision || s->quantise) return 0;
  return 2.0 * static_cast<double>(s->m * s->n) * static_cast<double>(s->k) / median(row.timing.us) * 1e-6;
}

double decode_gigabytes_per_s(const MeasuredRow& row, Precision kv) {
  constexpr std::int64_t kLarge = 1'000'000'000;
  const auto* s = std::get_if<DecodeShape>(&row.shape);
  if (s == nullptr || s->kv != kv || kv_bytes(*s) < kLarge) return 0;
  return static_cast<double>(kv_bytes(*s)) / median(row.timing.us) * 1e-3;
}

double prefill_teraflops(const MeasuredRow& row) {
  const auto* s = std::get_if<PrefillShape>(&row.shape);
  if (s == nullptr) return 0;
  const auto tokens = static_cast<double>(s->tokens);
  const double pairs = tokens * static_cast<double>(s->computed) + tokens * (tokens + 1) / 2;
  return 4.0 * 128 * static_cast<double>(s->batch * s->heads) * pairs / median(row.timing.us) * 1e-6;
}

}  // namespace

CommandOptions parse_options(const std::vector<std::string>& arguments) {
  CommandOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string name = arguments[i];
    std::string value;
    const std::size_t equals = name.find('=');
    const bool inline_value = equals != std::string::npos;
    if (inline_value) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (name == "-h") name = "--help";
    if (std::find(kOptions.begin(), kOptions.end(), name) == kOptions.end()) {
      throw UsageError("unknown option '" + name + "'; did you mean " + closest_option(name) + "?");
    }
    const bool flag = name == "--help" || name == "--check";
    if (flag && inline_value) throw UsageError(name + " takes no value");
    if (!flag && !inline_value) {
      if (++i == arguments.size()) throw UsageError(name + " needs a value");
      value = arguments[i];
    }
    if (name == "--help") options.help = true;
    if (name == "--check") options.check = true;
    if (name == "--out") options.out = value;
    if (name == "--date") options.date = checked_date(value);
    if (name == "--device") options.device = number_of<int>(name, value, 0, 63);
    if (name == "--budget-seconds") options.budget_seconds = number_of<double>(name, value, 1, 86400);
  }
  if (options.out.empty()) throw UsageError("--out needs the name of a file");
  return options;
}

const char* usage_text() {
  return "Measures this machine's GPU for `calibrate fit-ops`: memory, matrix products, attention, row "
         "kernels,\n"
         "latencies and, with several GPUs, all-reduce.\n\n"
         "  gpu_microbench --out my-gpu.measurement.textproto\n\n"
         "  --out FILE             what to write (my-gpu.measurement.textproto)\n"
         "  --budget-seconds N     stop after N seconds, the most informative shapes come first (240)\n"
         "  --date YYYY-MM-DD      the day of the measurement (today, UTC)\n"
         "  --device N             which GPU (0)\n"
         "  --check                compare the kernels with a reference in double instead; exit status 1 if "
         "wrong\n"
         "  --help                 this\n\n"
         "Ctrl-C ends the measuring early; the file is valid and holds what was measured.\n";
}

std::vector<std::string> highlights(const Measurement& m) {
  std::vector<std::string> lines;
  add_best(
      m, "memory read   %7.0f GB/s", [](const auto& r) { return gigabytes_per_s(r, MemoryOp::kRead); },
      lines);
  add_best(
      m, "memory write  %7.0f GB/s", [](const auto& r) { return gigabytes_per_s(r, MemoryOp::kWrite); },
      lines);
  add_best(
      m, "memory copy   %7.0f GB/s", [](const auto& r) { return gigabytes_per_s(r, MemoryOp::kCopy); },
      lines);
  add_best(
      m, "GEMM bf16     %7.0f TFLOP/s", [](const auto& r) { return gemm_teraflops(r, Precision::kBf16); },
      lines);
  add_best(
      m, "GEMM fp8      %7.0f TFLOP/s", [](const auto& r) { return gemm_teraflops(r, Precision::kFp8); },
      lines);
  add_best(
      m, "decode bf16   %7.0f GB/s",
      [](const auto& r) { return decode_gigabytes_per_s(r, Precision::kBf16); }, lines);
  add_best(
      m, "decode fp8    %7.0f GB/s", [](const auto& r) { return decode_gigabytes_per_s(r, Precision::kFp8); },
      lines);
  add_best(
      m, "prefill       %7.0f TFLOP/s", [](const auto& r) { return prefill_teraflops(r); }, lines);
  return lines;
}

}  // namespace kneepoint::microbench
