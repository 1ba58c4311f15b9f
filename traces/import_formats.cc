// The table of formats, and telling them apart by their first lines.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "traces/closest_name.h"
#include "traces/frame.h"
#include "traces/import_format.h"
#include "traces/line_reader.h"
#include "traces/row_reader.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

namespace fs = std::filesystem;

constexpr std::array kAzure{ColumnNames{"TIMESTAMP", "ContextTokens", "GeneratedTokens", "", "", ""}};
constexpr std::array kBurstGpt{ColumnNames{"Timestamp", "Request tokens", "Response tokens", "", "", ""}};
constexpr std::array kOwn{ColumnNames{"arrival_s", "prompt_tokens", "output_tokens", "segments", "", ""}};
constexpr std::array kHashed{ColumnNames{"timestamp", "input_length", "output_length", "hash_ids", "", ""}};
constexpr std::array kQwen{
    ColumnNames{"timestamp", "input_length", "output_length", "hash_ids", "chat_id", "parent_chat_id"}};
constexpr std::array kServeGen{ColumnNames{"timestamp", "input_tokens", "output_tokens", "", "", ""}};
constexpr std::array kLengthsOnly{ColumnNames{"", "num_prefill_tokens", "num_decode_tokens", "", "", ""}};
constexpr std::array kVidur{ColumnNames{"arrived_at", "num_prefill_tokens", "num_decode_tokens", "", "", ""}};
constexpr std::array kSplitwise{
    ColumnNames{"arrived_at", "num_prefill_tokens", "num_decode_tokens", "", "", ""},
    ColumnNames{"arrival_timestamp", "prompt_size", "token_size", "", "", ""}};

constexpr std::array kFormats{
    FormatRow{.name = "azure",
              .summary = "Azure LLM inference traces of 2023 and 2024 (CSV)",
              .container = Container::kCsv,
              .columns = kAzure},
    FormatRow{.name = "burstgpt",
              .summary = "BurstGPT (CSV)",
              .container = Container::kCsv,
              .columns = kBurstGpt,
              .epoch_by_size = false},
    FormatRow{.name = "csv",
              .summary = "any CSV; --columns names its columns",
              .container = Container::kCsv,
              .columns = kOwn,
              .optional_fields = true},
    FormatRow{.name = "jsonl",
              .summary = "any JSON Lines; --columns names its fields",
              .container = Container::kJsonl,
              .columns = kOwn,
              .takes = "block-size",
              .optional_fields = true},
    FormatRow{.name = "mooncake",
              .summary = "Mooncake (JSONL, ms, hash_ids of 512-token blocks)",
              .container = Container::kJsonl,
              .columns = kHashed,
              .takes = "block-size",
              .unit = TimeUnit::kMilliseconds,
              .epoch_by_size = false,
              .block_size = 512},
    FormatRow{.name = "pb",
              .summary = "this tool's own trace files",
              .container = Container::kDocument,
              .takes = "recover",
              .make = &import_pb},
    FormatRow{.name = "qwen-bailian",
              .summary = "Qwen Bailian traces (JSONL, hash_ids of 16-token blocks, turns)",
              .container = Container::kJsonl,
              .columns = kQwen,
              .takes = "block-size",
              .epoch_by_size = false,
              .block_size = 16},
    FormatRow{.name = "servegen",
              .summary = "workloads that ServeGen saves (CSV)",
              .container = Container::kCsv,
              .columns = kServeGen},
    FormatRow{.name = "sharegpt",
              .summary = "ShareGPT conversations (JSON, tokens estimated from text)",
              .container = Container::kDocument,
              .takes = "rate chars-per-token",
              .make = &import_sharegpt},
    FormatRow{.name = "sharegpt-lengths",
              .summary = "lengths without times (CSV); needs --rate",
              .container = Container::kCsv,
              .columns = kLengthsOnly},
    FormatRow{.name = "splitwise",
              .summary = "Splitwise (CSV)",
              .container = Container::kCsv,
              .columns = kSplitwise},
    FormatRow{.name = "timed-trace",
              .summary = "what `vllm bench serve --dataset-name timed_trace` replays (JSONL)",
              .container = Container::kJsonl,
              .columns = kHashed,
              .takes = "block-size"},
    FormatRow{.name = "vidur", .summary = "Vidur (CSV)", .container = Container::kCsv, .columns = kVidur},
    FormatRow{.name = "vllm-bench",
              .summary = "a result that `vllm bench serve --save-detailed` saved (JSON)",
              .container = Container::kDocument,
              .takes = "sort skip-bad-rows",
              .make = &import_vllm_bench},
};
static_assert(std::ranges::is_sorted(kFormats, {}, &FormatRow::name));

// The first lines of a file, each cut to what a format shows in.
std::vector<std::string> first_lines(const fs::path& path) {
  constexpr std::size_t kLines = 32;
  LineReader reader(open_bytes(path), path.string());
  std::vector<std::string> lines;
  std::string_view line;
  while (lines.size() < kLines) {
    const LineReader::Got got = reader.next(line);
    if (got == LineReader::Got::kEnd) break;
    lines.emplace_back(got == LineReader::Got::kLine ? line : std::string_view());
  }
  return lines;
}

// The first bytes, for documents whose one line may be longer than is kept.
std::string first_bytes(const fs::path& path) {
  const auto bytes = open_bytes(path);
  std::string start(4096, '\0');
  start.resize(bytes->read(start.data(), start.size()));
  return start;
}

bool has_columns(const std::vector<std::string>& header, const ColumnNames& names) {
  const auto has = [&header](std::string_view name) {
    return name.empty() || std::ranges::find(header, name) != header.end();
  };
  return has(names.arrival) && has(names.prompt) && has(names.output);
}

// CSV formats by their columns; those with times before lengths alone.
const FormatRow* sniff_csv(std::string_view header_line) {
  const std::vector<std::string> header = parse_csv_header(header_line).names;
  const FormatRow* lengths_only = nullptr;
  for (const FormatRow& format : kFormats) {
    if (format.container != Container::kCsv) continue;
    for (const ColumnNames& names : format.columns) {
      if (!has_columns(header, names)) continue;
      if (!names.arrival.empty()) return &format;
      lengths_only = &format;
    }
  }
  return lengths_only;
}

// Mooncake tells whole milliseconds and 512-token blocks; else it is a timed trace.
bool looks_like_mooncake(const std::vector<std::string>& lines) {
  bool any_ids = false;
  for (const std::string& line : lines) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) continue;
    // No value is copied: copying one that is nested a million deep would end the stack.
    const auto stamp = object.find("timestamp"), length = object.find("input_length"), ids = object.find("hash_ids");
    if (stamp == object.end() || length == object.end() || ids == object.end()) return false;
    if (!stamp->is_number_integer() || !length->is_number_unsigned() || !ids->is_array()) return false;
    if (ids->size() != length->get<std::uint64_t>() / 512 + (length->get<std::uint64_t>() % 512 != 0 ? 1 : 0))
      return false;
    any_ids = true;
  }
  return any_ids;
}

const FormatRow& by_name(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &FormatRow::name);
  if (found != kFormats.end()) return *found;
  std::vector<std::string> names;
  for (const FormatRow& row : kFormats) names.emplace_back(row.name);
  throw TraceError(fmt::format("format {} is not known{}; known are {}", name, did_you_mean(name, names),
                               fmt::join(names, ", ")));
}

// A header frame whose content begins with the version (trace.proto).
bool looks_like_pb(std::string_view start) {
  std::size_t length = 0;
  for (int i = 0; i < 2; ++i) {  // The frame, then its content.
    if (!start.starts_with('\x0a')) return false;
    start.remove_prefix(1);
    if (!take_length(start, length)) return false;
  }
  return start.starts_with('\x08');
}

const FormatRow* sniff_jsonl(const std::vector<std::string>& lines) {
  const auto object = nlohmann::json::parse(lines.front(), nullptr, false);
  if (!object.is_object()) return nullptr;
  if (object.contains("arrival_s")) return &by_name("jsonl");
  if (!object.contains("timestamp") || !object.contains("input_length")) return nullptr;
  if (object.contains("chat_id")) return &by_name("qwen-bailian");
  return &by_name(looks_like_mooncake(lines) ? "mooncake" : "timed-trace");
}

}  // namespace

std::span<const FormatRow> format_rows() {
  return kFormats;
}

std::vector<ImportFormat> import_formats() {
  std::vector<ImportFormat> formats;
  for (const FormatRow& row : kFormats) formats.push_back({row.name, row.summary});
  return formats;
}

std::vector<std::string> csv_columns(const fs::path& path) {
  LineReader reader(open_bytes(path), path.string());
  std::string_view line;
  if (reader.next(line) != LineReader::Got::kLine) {
    throw TraceError(fmt::format("{}: has no header line with column names", path.string()));
  }
  return parse_csv_header(line).names;
}

const FormatRow& sniff_format(const fs::path& path) {
  const std::string start = first_bytes(path);
  if (start.empty()) throw TraceError(fmt::format("{}: is empty", path.string()));
  const std::size_t first = start.find_first_not_of("\xef\xbb\xbf \t\r\n");
  const char opens = first == std::string::npos ? '\0' : start[first];
  if (looks_like_pb(start)) return by_name("pb");
  const FormatRow* found = nullptr;
  if (opens == '[') {
    found = &by_name("sharegpt");
  } else if (opens == '{' && start.find("\"endpoint_type\"") != std::string::npos) {
    found = &by_name("vllm-bench");
  } else if (const auto lines = first_lines(path); !lines.empty()) {
    found = opens == '{' ? sniff_jsonl(lines) : sniff_csv(lines.front());
  }
  if (found == nullptr) {
    throw TraceError(fmt::format(
        "{}: is of no format known by its looks; say --from FORMAT, or --from csv|jsonl with --columns",
        path.string()));
  }
  return *found;
}

namespace {

// What every table format looks at.
constexpr std::string_view kTables = "columns time-unit sort skip-bad-rows recover rate";

// An option that the format would not look at is a misunderstanding.
void check_taken(const FormatRow& format, const ImportOptions& options) {
  const auto takes = [&format](std::string_view option) {
    const bool table = format.container != Container::kDocument;
    return format.takes.find(option) != std::string_view::npos ||
           (table && kTables.find(option) != std::string_view::npos);
  };
  const auto check = [&](std::string_view option, bool given) {
    if (given && !takes(option))
      throw TraceError(fmt::format("--{} says nothing to format {}", option, format.name));
  };
  check("columns", !options.columns.empty());
  check("time-unit", options.time_unit.has_value());
  check("block-size", options.block_size.has_value());
  check("sort", options.sort);
  check("skip-bad-rows", options.skip_bad_rows > 0);
  check("recover", options.recover);
  check("rate", options.arrivals.has_value());
  check("chars-per-token", options.chars_per_token.has_value());
  if (options.block_size && *options.block_size < 1) {
    throw TraceError(fmt::format("--block-size is {}; it must be at least 1", *options.block_size));
  }
}

}  // namespace

std::unique_ptr<Importer> import_trace(const fs::path& path, const ImportOptions& options) {
  const FormatRow& format = options.format.empty() ? sniff_format(path) : by_name(options.format);
  check_taken(format, options);
  return format.make != nullptr ? format.make(path, options) : import_rows(path, format, options);
}

}  // namespace kneepoint::traces
