// Rows of a CSV or JSONL file: the fields an importer asks for, by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "traces/line_reader.h"

namespace kneepoint::traces {

/// A row's wanted fields as text, in the order they were asked for. Views are
/// valid until the next row.
struct Row {
  std::uint64_t line = 0;                ///< Where the row begins, from 1.
  std::vector<std::string_view> fields;  ///< data() is null if the row lacks the field.
  std::vector<std::uint64_t> ids;        ///< JSONL: the integers of the array field, if one was asked for.
  bool has_ids = false;
};

class RowReader {
 public:
  virtual ~RowReader() = default;

  enum class Got {
    kRow,
    kBad,  ///< `problem` says why; row.line is set.
    kEnd,
  };
  [[nodiscard]] virtual Got next(Row& row, std::string& problem) = 0;
  /// How to find wanted field `i`: "column 2 (ContextTokens)" or "field input_length".
  [[nodiscard]] virtual std::string where(std::size_t i) const = 0;
  [[nodiscard]] virtual const LineReader& lines() const = 0;
};

/// RFC 4180 with what people make of it: LF or CR LF, comma, semicolon or tab
/// (the header shows which), quoted fields that hold delimiters, quotes and line
/// ends. Each row has as many fields as the header. Throws TraceError if the
/// header lacks a wanted column.
[[nodiscard]] std::unique_ptr<RowReader> csv_rows(LineReader lines, const std::vector<std::string>& wanted);

/// One JSON object a line. `ids_field` names an array of integers; "" none.
[[nodiscard]] std::unique_ptr<RowReader> json_rows(LineReader lines, const std::vector<std::string>& wanted,
                                                   const std::string& ids_field);

/// The fields of a CSV header line, and the delimiter it shows.
struct CsvHeader {
  std::vector<std::string> names;
  char delimiter = ',';
};
[[nodiscard]] CsvHeader parse_csv_header(std::string_view line);

}  // namespace kneepoint::traces
