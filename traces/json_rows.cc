#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "traces/row_reader.h"

namespace kneepoint::traces {
namespace {

using Json = nlohmann::json;

// Listens to the parser and keeps the wanted fields of the outermost object: no
// tree is built, whatever else the line holds.
class FieldListener final : public nlohmann::json_sax<Json> {
 public:
  FieldListener(const std::vector<std::string>& wanted, const std::string& ids_field)
      : wanted_(wanted), ids_field_(ids_field), values_(wanted.size()) {}

  void start() {
    depth_ = 0;
    target_ = kNone;
    found_.assign(wanted_.size(), false);
    ids.clear();
    has_ids = false;
    problem.clear();
  }

  bool null() override { return true; }
  bool boolean(bool value) override { return keep(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    if (in_ids()) return refuse(fmt::format("{} holds {}; ids are not negative", ids_field_, value));
    return keep(fmt::format("{}", value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_ids()) {
      ids.push_back(value);
      return true;
    }
    return keep(fmt::format("{}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    if (in_ids()) return refuse(fmt::format("{} holds {}; ids are whole numbers", ids_field_, text));
    return keep(text);
  }
  bool string(string_t& value) override {
    if (in_ids()) return refuse(fmt::format("{} holds a text; ids are whole numbers", ids_field_));
    return keep(value);
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    if (depth_ > 0) target_ = kNone;
    return ++depth_ <= kMaxDepth || refuse("is nested too deeply");
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return refuse("is no JSON object");
    if (depth_ == 1 && target_ == kIds) {
      has_ids = true;
    } else {
      target_ = kNone;
    }
    return ++depth_ <= kMaxDepth || refuse("is nested too deeply");
  }
  bool end_array() override {
    --depth_;
    target_ = kNone;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    target_ = kNone;
    if (!ids_field_.empty() && name == ids_field_) target_ = kIds;
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      if (name == wanted_[i]) target_ = static_cast<int>(i);
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    return refuse(fmt::format("is no valid JSON from column {} on", position));
  }

  void give(Row& row) const {
    row.fields.resize(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i)
      row.fields[i] = found_[i] ? std::string_view(values_[i]) : std::string_view();
  }

  std::vector<std::uint64_t> ids;
  bool has_ids = false;
  std::string problem;

 private:
  static constexpr int kNone = -1, kIds = -2, kMaxDepth = 64;

  [[nodiscard]] bool in_ids() const { return depth_ == 2 && target_ == kIds; }
  bool refuse(std::string why) {
    problem = std::move(why);
    return false;
  }
  bool keep(std::string_view value) {
    if (depth_ == 0) return refuse("is no JSON object");
    if (depth_ == 1 && target_ >= 0) {
      values_[static_cast<std::size_t>(target_)] = value;
      found_[static_cast<std::size_t>(target_)] = true;
    }
    return true;
  }

  const std::vector<std::string>& wanted_;
  const std::string& ids_field_;
  std::vector<std::string> values_;
  std::vector<bool> found_;
  int depth_ = 0;
  int target_ = kNone;
};

class JsonRows final : public RowReader {
 public:
  JsonRows(LineReader lines, std::vector<std::string> wanted, std::string ids_field)
      : lines_(std::move(lines)),
        wanted_(std::move(wanted)),
        ids_field_(std::move(ids_field)),
        listener_(wanted_, ids_field_) {}

  [[nodiscard]] Got next(Row& row, std::string& problem) override {
    std::string_view line;
    LineReader::Got got = lines_.next(line);
    while (got == LineReader::Got::kLine && line.find_first_not_of(" \t") == std::string_view::npos) {
      got = lines_.next(line);  // JSON Lines allows blank lines.
    }
    if (got == LineReader::Got::kEnd) return Got::kEnd;
    row.line = lines_.line_number();
    if (got == LineReader::Got::kTooLong) {
      problem = fmt::format("is longer than {} bytes", lines_.max_line_bytes());
      return Got::kBad;
    }
    listener_.start();
    if (!Json::sax_parse(line.begin(), line.end(), &listener_)) {
      problem = listener_.problem;
      return Got::kBad;
    }
    listener_.give(row);
    row.ids.swap(listener_.ids);
    row.has_ids = listener_.has_ids;
    return Got::kRow;
  }

  [[nodiscard]] std::string where(std::size_t i) const override {
    return fmt::format("field {}", wanted_[i]);
  }
  [[nodiscard]] const LineReader& lines() const override { return lines_; }

 private:
  LineReader lines_;
  std::vector<std::string> wanted_;
  std::string ids_field_;
  FieldListener listener_;
};

}  // namespace

std::unique_ptr<RowReader> json_rows(LineReader lines, const std::vector<std::string>& wanted,
                                     const std::string& ids_field) {
  return std::make_unique<JsonRows>(std::move(lines), wanted, ids_field);
}

}  // namespace kneepoint::traces
