// Inside the importers: what a format's row in the table says.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "traces/import.h"

namespace kneepoint::traces {

/// Column names; "" where the format has none.
struct ColumnNames {
  std::string_view arrival;  ///< "": lengths without times.
  std::string_view prompt;
  std::string_view output;
  std::string_view ids;     ///< JSONL: hash ids of the prompt's blocks.
  std::string_view chat;    ///< Identity of the request,
  std::string_view parent;  ///< and of the one it continues; negative: none.
};

enum class Container { kCsv, kJsonl, kDocument };

struct FormatRow {
  std::string_view name;
  std::string_view summary;
  Container container;
  std::span<const ColumnNames> columns = {};  ///< Alternatives: the first one the file has is meant.
  /// Which options it looks at, beside those of every table if it is one.
  std::string_view takes = "";
  TimeUnit unit = TimeUnit::kSeconds;
  bool epoch_by_size = true;     ///< Large numbers are epoch times whose size shows their unit.
  std::int64_t block_size = 0;   ///< Tokens per hash id; 0: must be told or found out.
  bool optional_fields = false;  ///< Reads kOptionalNames too, where they are there.
  std::unique_ptr<Importer> (*make)(const std::filesystem::path&,
                                    const ImportOptions&) = nullptr;  ///< kDocument.
};

/// The columns that csv and jsonl may have beside arrival, prompt and output:
/// the fields of TraceRecord, as `traces convert --to csv` writes them.
enum OptionalField {
  kAskedTokens,
  kEndsBy,
  kOutputContent,
  kSession,
  kAfterPrevious,
  kThinkTime,
  kPriority,
  kSalt,
  kAdapter,
  kNumOptionalFields
};
inline constexpr std::array<std::string_view, kNumOptionalFields> kOptionalNames{
    "max_tokens",   "ends_by",  "output_content", "session", "after_previous",
    "think_time_s", "priority", "salt",           "adapter"};

/// All formats, ordered by name.
[[nodiscard]] std::span<const FormatRow> format_rows();

/// The names of a CSV file's header. Throws TraceError if there is none.
[[nodiscard]] std::vector<std::string> csv_columns(const std::filesystem::path& path);

/// The format that the file's first lines show. Throws TraceError if none does.
[[nodiscard]] const FormatRow& sniff_format(const std::filesystem::path& path);

/// Rows of a table, one record each.
[[nodiscard]] std::unique_ptr<Importer> import_rows(const std::filesystem::path& path,
                                                    const FormatRow& format, const ImportOptions& options);

// Formats of whole documents.
[[nodiscard]] std::unique_ptr<Importer> import_vllm_bench(const std::filesystem::path& path,
                                                          const ImportOptions& options);
[[nodiscard]] std::unique_ptr<Importer> import_sharegpt(const std::filesystem::path& path,
                                                        const ImportOptions& options);
/// Our own files.
[[nodiscard]] std::unique_ptr<Importer> import_pb(const std::filesystem::path& path,
                                                  const ImportOptions& options);

}  // namespace kneepoint::traces
