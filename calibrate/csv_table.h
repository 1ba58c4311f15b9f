// A small CSV table with a header: cells by column name, numbers checked where
// they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kneepoint::calibrate {

class CsvTable {
 public:
  /// Throws CalibrateError: unreadable file, no header, a row with more or fewer
  /// cells than the header.
  explicit CsvTable(const std::filesystem::path& path);

  [[nodiscard]] std::size_t num_rows() const { return rows_.size(); }
  [[nodiscard]] bool has(std::string_view column) const;
  [[nodiscard]] std::int64_t line(std::size_t row) const { return rows_[row].line; }

  /// The cell, "" if there is no such column.
  [[nodiscard]] std::string text(std::size_t row, std::string_view column) const;
  /// Throws CalibrateError, naming file, line and column, if the cell is missing
  /// or no finite number.
  [[nodiscard]] double number(std::size_t row, std::string_view column) const;
  [[nodiscard]] std::int64_t integer(std::size_t row, std::string_view column) const;
  /// Nothing for a missing column or an empty cell.
  [[nodiscard]] std::optional<double> maybe_number(std::size_t row, std::string_view column) const;
  [[nodiscard]] std::optional<std::int64_t> maybe_integer(std::size_t row, std::string_view column) const;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  struct Row {
    std::int64_t line = 0;
    std::vector<std::string> cells;
  };
  std::filesystem::path path_;
  std::map<std::string, std::size_t, std::less<>> columns_;
  std::vector<Row> rows_;
};

}  // namespace kneepoint::calibrate
