#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "traces/closest_name.h"
#include "traces/row_reader.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Splits a row whose quotes are closed. What was quoted with quotes inside is
// rewritten into `unquoted`, which must not move meanwhile.
void split(std::string_view line, char delimiter, std::vector<std::string_view>& fields,
           std::string& unquoted) {
  fields.clear();
  unquoted.clear();
  unquoted.reserve(line.size());
  while (true) {
    if (line.starts_with('"')) {
      const std::size_t begins = unquoted.size();
      std::size_t i = 1;
      for (; i < line.size(); ++i) {
        if (line[i] == '"' && (i + 1 == line.size() || line[i + 1] != '"')) break;
        if (line[i] == '"') ++i;
        unquoted.push_back(line[i]);
      }
      fields.emplace_back(unquoted.data() + begins, unquoted.size() - begins);
      line.remove_prefix(std::min(i + 1, line.size()));
      const std::size_t end = line.find(delimiter);
      if (end == std::string_view::npos) return;
      line.remove_prefix(end + 1);
      continue;
    }
    const void* found = std::memchr(line.data(), delimiter, line.size());
    const std::size_t end = found == nullptr
                                ? line.size()
                                : static_cast<std::size_t>(static_cast<const char*>(found) - line.data());
    fields.push_back(line.substr(0, end));
    if (found == nullptr) return;
    line.remove_prefix(end + 1);
  }
}

bool has_odd_quotes(std::string_view line) {
  return std::ranges::count(line, '"') % 2 != 0;
}

class CsvRows final : public RowReader {
 public:
  CsvRows(LineReader lines, const std::vector<std::string>& wanted) : lines_(std::move(lines)) {
    std::string_view line;
    if (lines_.next(line) != LineReader::Got::kLine) {
      throw TraceError(fmt::format("{}: has no header line with column names", lines_.name()));
    }
    header_ = parse_csv_header(line);
    for (const std::string& name : wanted) columns_.push_back(find_column(name));
  }

  [[nodiscard]] Got next(Row& row, std::string& problem) override {
    std::string_view line;
    const Got got = logical_line(line, row.line, problem);
    if (got != Got::kRow) return got;
    split(line, header_.delimiter, fields_, unquoted_);
    if (fields_.size() != header_.names.size()) {
      problem = fmt::format("has {} columns, the header {}", fields_.size(), header_.names.size());
      return Got::kBad;
    }
    row.fields.resize(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) row.fields[i] = trimmed(fields_[columns_[i]]);
    row.has_ids = false;
    return Got::kRow;
  }

  [[nodiscard]] std::string where(std::size_t i) const override {
    return fmt::format("column {} ({})", columns_[i] + 1, header_.names[columns_[i]]);
  }
  [[nodiscard]] const LineReader& lines() const override { return lines_; }

 private:
  std::size_t find_column(const std::string& name) const {
    const auto found = std::ranges::find(header_.names, name);
    if (found != header_.names.end()) return static_cast<std::size_t>(found - header_.names.begin());
    const std::size_t shown = std::min<std::size_t>(header_.names.size(), 12);
    throw TraceError(fmt::format(
        "{}: has no column '{}'{}; it has {}{}; --columns arrival=A,prompt=P,output=O names others",
        lines_.name(), name, did_you_mean(name, header_.names),
        fmt::join(header_.names.begin(), header_.names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
        shown < header_.names.size() ? ", ..." : ""));
  }

  // The next line that is not blank, or several if a quote spans them. A blank
  // line is bad unless only blank ones follow.
  Got logical_line(std::string_view& line, std::uint64_t& number, std::string& problem) {
    if (after_blank_) {
      after_blank_ = false;
      line = pending_;
      number = lines_.line_number();
    } else {
      std::uint64_t blank = 0;
      while (true) {
        const LineReader::Got got = lines_.next(line);
        if (got == LineReader::Got::kEnd) return Got::kEnd;
        number = lines_.line_number();
        if (got == LineReader::Got::kTooLong) return too_long(problem);
        if (!trimmed(line).empty()) break;
        if (blank == 0) blank = number;
      }
      if (blank != 0) {
        after_blank_ = true;  // `line` is given by the next call.
        pending_ = line;
        problem = "is blank, and rows follow";
        number = blank;
        return Got::kBad;
      }
    }
    return has_odd_quotes(line) ? join_lines(line, problem) : Got::kRow;
  }

  Got join_lines(std::string_view& line, std::string& problem) {
    joined_ = line;
    for (bool open = true; open;) {  // Each line is looked at once, however many there are.
      const LineReader::Got got = lines_.next(line);
      if (got == LineReader::Got::kEnd) {
        problem = "opens a quote that is never closed";
        return Got::kBad;
      }
      if (got == LineReader::Got::kTooLong || joined_.size() + line.size() > lines_.max_line_bytes()) {
        return too_long(problem);
      }
      joined_.push_back('\n');
      joined_ += line;
      open = !has_odd_quotes(line);
    }
    line = joined_;
    return Got::kRow;
  }

  Got too_long(std::string& problem) const {
    problem = fmt::format("is longer than {} bytes", lines_.max_line_bytes());
    return Got::kBad;
  }

  LineReader lines_;
  CsvHeader header_;
  std::vector<std::size_t> columns_;  // Of the wanted fields.
  std::vector<std::string_view> fields_;
  std::string unquoted_;
  std::string joined_;
  std::string_view pending_;
  bool after_blank_ = false;
};

}  // namespace

CsvHeader parse_csv_header(std::string_view line) {
  constexpr std::array kDelimiters{',', ';', '\t'};
  CsvHeader header;
  std::ptrdiff_t most = 0;
  for (const char delimiter : kDelimiters) {
    const std::ptrdiff_t count = std::ranges::count(line, delimiter);
    if (count > most) {
      most = count;
      header.delimiter = delimiter;
    }
  }
  std::vector<std::string_view> fields;
  std::string unquoted;
  split(line, header.delimiter, fields, unquoted);
  for (const std::string_view field : fields) header.names.emplace_back(trimmed(field));
  return header;
}

std::unique_ptr<RowReader> csv_rows(LineReader lines, const std::vector<std::string>& wanted) {
  return std::make_unique<CsvRows>(std::move(lines), wanted);
}

}  // namespace kneepoint::traces
