#include "calibrate/csv_table.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "calibrate/calibrate_error.h"

namespace kneepoint::calibrate {
namespace {

// Cells may be quoted; a doubled quote inside stands for one.
std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

void strip_line_end(std::string& line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) {
    line.pop_back();
  }
}

}  // namespace

CsvTable::CsvTable(const std::filesystem::path& path) : path_(path) {
  std::ifstream in(path);
  if (!in) {
    throw CalibrateError(fmt::format("{}: cannot be opened", path.string()));
  }
  std::string line;
  if (!std::getline(in, line)) {
    throw CalibrateError(fmt::format("{}: empty; a header line is needed", path.string()));
  }
  strip_line_end(line);
  if (line.rfind("\xEF\xBB\xBF", 0) == 0) {
    line.erase(0, 3);
  }
  const std::vector<std::string> header = split(line);
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (!columns_.emplace(header[i], i).second) {
      throw CalibrateError(fmt::format("{}: line 1: column '{}' is there twice", path.string(), header[i]));
    }
  }
  for (std::int64_t number = 2; std::getline(in, line); ++number) {
    strip_line_end(line);
    if (line.empty()) {
      continue;
    }
    rows_.push_back({number, split(line)});
    if (rows_.back().cells.size() != header.size()) {
      throw CalibrateError(fmt::format("{}: line {}: {} cells where the header has {}", path.string(), number,
                                       rows_.back().cells.size(), header.size()));
    }
  }
}

bool CsvTable::has(std::string_view column) const { return columns_.find(column) != columns_.end(); }

std::string CsvTable::text(std::size_t row, std::string_view column) const {
  const auto found = columns_.find(column);
  return found == columns_.end() ? "" : rows_[row].cells[found->second];
}

double CsvTable::number(std::size_t row, std::string_view column) const {
  const std::string cell = text(row, column);
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (cell.empty() || end != cell.c_str() + cell.size() || !std::isfinite(value)) {
    throw CalibrateError(fmt::format("{}: line {}: column '{}' is '{}'; a number is needed", path_.string(),
                                     line(row), column, cell));
  }
  return value;
}

std::int64_t CsvTable::integer(std::size_t row, std::string_view column) const {
  const double value = number(row, column);
  if (value != std::floor(value) || std::abs(value) > 9e15) {
    throw CalibrateError(fmt::format("{}: line {}: column '{}' is '{}'; a whole number is needed", path_.string(),
                                     line(row), column, text(row, column)));
  }
  return static_cast<std::int64_t>(value);
}

std::optional<double> CsvTable::maybe_number(std::size_t row, std::string_view column) const {
  return text(row, column).empty() ? std::nullopt : std::optional<double>(number(row, column));
}

std::optional<std::int64_t> CsvTable::maybe_integer(std::size_t row, std::string_view column) const {
  return text(row, column).empty() ? std::nullopt : std::optional<std::int64_t>(integer(row, column));
}

}  // namespace kneepoint::calibrate
