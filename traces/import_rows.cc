// Formats that are tables: CSV and JSON Lines, one request a row.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "traces/closest_name.h"
#include "traces/hash_blocks.h"
#include "traces/import_format.h"
#include "traces/random_stream.h"
#include "traces/record_check.h"
#include "traces/row_reader.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;

// Contents of a prompt's unnamed tail begin here, far from small ids.
constexpr ContentId kOwnTails = 0x9d3f5a7700000000ULL;

// What the three columns, and those that may be there, are called in this file.
struct Names {
  std::string arrival, prompt, output, ids, chat, parent;
  std::array<std::string, kNumOptionalFields> optional;
};

void set_name(Names& names, std::string_view key, std::string_view name) {
  std::vector<std::string> known{"arrival", "prompt", "output", "ids"};
  if (key == "arrival") {
    names.arrival = name;
  } else if (key == "prompt") {
    names.prompt = name;
  } else if (key == "output") {
    names.output = name;
  } else if (key == "ids") {
    names.ids = name;
  } else {
    for (std::size_t i = 0; i < kOptionalNames.size(); ++i) {
      if (key == kOptionalNames[i]) {
        names.optional[i] = name;
        return;
      }
      known.emplace_back(kOptionalNames[i]);
    }
    throw TraceError(fmt::format("--columns {}={}: {} is not a field{}; fields are {}", key, name, key,
                                 did_you_mean(key, known), fmt::join(known, ", ")));
  }
}

// "arrival=ts,prompt=in": names here may hold anything but a comma.
void apply_columns(Names& names, std::string_view columns) {
  while (!columns.empty()) {
    const std::size_t comma = std::min(columns.find(','), columns.size());
    const std::string_view pair = columns.substr(0, comma);
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size()) {
      throw TraceError(fmt::format(
          "--columns {}: each part is FIELD=COLUMN, as in arrival=ts,prompt=in,output=out", pair));
    }
    set_name(names, pair.substr(0, equals), pair.substr(equals + 1));
    columns.remove_prefix(std::min(comma + 1, columns.size()));
  }
}

Names names_in(const fs::path& path, const FormatRow& format, const ImportOptions& options) {
  std::vector<std::string> header;
  if (format.container == Container::kCsv) header = csv_columns(path);
  const auto in_header = [&header](std::string_view name) {
    return std::ranges::find(header, name) != header.end();
  };
  const ColumnNames* chosen = &format.columns.front();
  for (const ColumnNames& names : format.columns) {
    if (in_header(names.prompt) && in_header(names.output)) {
      chosen = &names;
      break;
    }
  }
  Names names{std::string(chosen->arrival),
              std::string(chosen->prompt),
              std::string(chosen->output),
              std::string(chosen->ids),
              std::string(chosen->chat),
              std::string(chosen->parent),
              {}};
  if (format.optional_fields) {
    for (std::size_t i = 0; i < kOptionalNames.size(); ++i) {
      if (format.container == Container::kJsonl || in_header(kOptionalNames[i]))
        names.optional[i] = kOptionalNames[i];
    }
  }
  if (format.container == Container::kCsv) names.ids.clear();
  apply_columns(names, options.columns);
  if (format.container == Container::kCsv && !names.ids.empty()) {
    throw TraceError(
        fmt::format("--columns ids={}: a CSV cell holds no list of ids; JSON Lines can", names.ids));
  }
  return names;
}

struct BadRow {
  std::string problem;
};

class RowImporter final : public Importer {
 public:
  RowImporter(const fs::path& path, const FormatRow& format, const ImportOptions& options)
      : format_(format), options_(options), names_(names_in(path, format, options)) {
    report_.format = format.name;
    std::vector<std::string> wanted;
    const auto want = [&wanted](const std::string& name) -> std::optional<std::size_t> {
      if (name.empty()) return std::nullopt;
      wanted.push_back(name);
      return wanted.size() - 1;
    };
    arrival_ = want(names_.arrival);
    prompt_ = *want(names_.prompt);
    output_ = *want(names_.output);
    chat_ = want(names_.chat);
    parent_ = want(names_.parent);
    for (std::size_t i = 0; i < kOptionalNames.size(); ++i) optional_[i] = want(names_.optional[i]);
    LineReader lines(open_bytes(path), path.string());
    rows_ = format.container == Container::kCsv ? csv_rows(std::move(lines), wanted)
                                                : json_rows(std::move(lines), wanted, names_.ids);
    native_segments_ = names_.ids == "segments";
    if (native_segments_ && options_.block_size) {
      throw TraceError("--block-size needs --columns ids=FIELD: segments have lengths of their own");
    }
    if (arrival_ && options_.arrivals) {
      throw TraceError(
          fmt::format("{}: format {} has times of its own; `traces transform --scale-rate` changes them",
                      path.string(), format_.name));
    }
    if (!arrival_) start_arrivals(path);
  }

  [[nodiscard]] const ImportReport& report() const override { return report_; }

  [[nodiscard]] bool next(TraceRecord& record) override {
    if (options_.sort) return next_sorted(record);
    if (!next_row(record)) return false;
    const nanoseconds stamp = record.arrival;
    if (!base_) base_ = absolute_ ? stamp : nanoseconds(0);
    if (stamp < last_stamp_) {
      throw TraceError(fmt::format(
          "{}:{}: arrives {:.6f} s before the row ahead of it; --sort sorts, and says how many it moved",
          rows_->lines().name(), row_.line, static_cast<double>((last_stamp_ - stamp).count()) * 1e-9));
    }
    last_stamp_ = stamp;
    record.arrival = stamp - *base_;
    check(record);
    return true;
  }

 private:
  void start_arrivals(const fs::path& path) {
    if (!options_.arrivals) {
      throw TraceError(
          fmt::format("{}: format {} has lengths but no times; --rate R [--arrivals poisson] makes them",
                      path.string(), format_.name));
    }
    made_arrivals_ = make_arrivals(*options_.arrivals);
  }

  // The next row that can be read, its stamp as it is in the file.
  bool next_row(TraceRecord& record) {
    std::string problem;
    while (true) {
      const RowReader::Got got = rows_->next(row_, problem);
      if (got == RowReader::Got::kEnd) return end_of_rows();
      const bool cut = rows_->lines().unterminated() && (rows_->lines().cut() || options_.recover);
      if (cut && drop_cut_row()) return end_of_rows();
      if (got == RowReader::Got::kRow) {
        try {
          read(record);
          ++report_.num_records;
          return true;
        } catch (const BadRow& bad) {
          problem = bad.problem;
        }
      }
      pass_over(problem);
    }
  }

  // The last line of a cut file: what is whole ends before it.
  bool drop_cut_row() {
    if (!options_.recover) return false;
    report_.notices.push_back(
        fmt::format("line {}, the last one, has no end and was left out (--recover)", row_.line));
    return true;
  }

  bool end_of_rows() {
    const LineReader& lines = rows_->lines();
    if (lines.cut() && !options_.recover) {
      throw TraceError(fmt::format("{}: ends in the middle, after line {}; --recover keeps what is whole",
                                   lines.name(), lines.line_number()));
    }
    if (lines.cut()) report_.notices.push_back("the packed file was cut; what is whole was kept (--recover)");
    if (num_bad_ > 0)
      report_.notices.push_back(fmt::format("{} bad rows passed over; the first: {}", num_bad_, first_bad_));
    return false;
  }

  void pass_over(const std::string& problem) {
    const LineReader& lines = rows_->lines();
    const std::string what = fmt::format("{}:{}: {}", lines.name(), row_.line, problem);
    if (lines.cut() && lines.unterminated()) {
      throw TraceError(fmt::format("{}: ends in the middle of line {}; --recover keeps what is whole",
                                   lines.name(), row_.line));
    }
    if (num_bad_ == options_.skip_bad_rows) {
      throw TraceError(fmt::format(
          "{}; {}", what,
          lines.unterminated() ? "the file may have been cut: --recover keeps what is whole"
          : num_bad_ > 0
              ? fmt::format("{} bad rows were passed over before, as --skip-bad-rows allows", num_bad_)
              : "--skip-bad-rows N passes over up to N such rows"));
    }
    if (num_bad_++ == 0) first_bad_ = fmt::format("line {} {}", row_.line, problem);
  }

  [[nodiscard]] std::string_view field(std::optional<std::size_t> i) const {
    return i ? row_.fields[*i] : std::string_view();
  }

  [[noreturn]] void bad(std::size_t i, std::string_view must) const {
    const std::string_view text = row_.fields[i];
    if (text.data() == nullptr) throw BadRow{fmt::format("{} is missing", rows_->where(i))};
    throw BadRow{fmt::format("{} is '{}'; it must be {}", rows_->where(i), text.substr(0, 60), must)};
  }

  [[nodiscard]] std::int64_t whole(std::size_t i, std::int64_t low, std::int64_t high) const {
    std::string_view text = row_.fields[i];
    if (text.ends_with(".0")) text.remove_suffix(2);  // Tables that passed through floating point.
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < low ||
        value > high) {
      bad(i, fmt::format("a whole number in {}..{}", low, high));
    }
    return value;
  }

  [[nodiscard]] std::uint64_t identity(std::size_t i) const {
    const std::string_view text = row_.fields[i];
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    return stream_seed(0, text) | 1;  // A name: told apart by its hash.
  }

  [[nodiscard]] nanoseconds time(std::size_t i, std::optional<TimeUnit> unit, bool& absolute) const {
    const auto stamp = parse_time(row_.fields[i], unit);
    if (!stamp) bad(i, "a time: a date, an epoch time or a number that is not negative");
    absolute = stamp->absolute;
    return nanoseconds(stamp->ns);
  }

  void read(TraceRecord& record) {
    record = TraceRecord{};
    record.prompt_tokens = whole(prompt_, 1, kMaxTokens);
    record.output_tokens = whole(output_, 1, kMaxTokens);
    if (row_.has_ids) read_ids(record);
    if (chat_) read_chat(record);
    if (format_.optional_fields) read_optional(record);
    if (const std::string problem = record_problem(record); !problem.empty()) throw BadRow{problem};
    read_arrival(record);
  }

  void read_arrival(TraceRecord& record) {
    if (!arrival_) {
      record.arrival = nanoseconds(static_cast<std::int64_t>(made_arrivals_->next_s() * 1e9 + 0.5));
      return;
    }
    const bool by_size = format_.epoch_by_size && !options_.time_unit;
    bool absolute = false;
    record.arrival =
        time(*arrival_, by_size ? std::nullopt : std::optional(options_.time_unit.value_or(format_.unit)),
             absolute);
    if (report_.num_records == 0) absolute_ = absolute;
    if (absolute != absolute_)
      bad(*arrival_, absolute_ ? "an absolute time, as in the rows before"
                               : "a time from the start, as in the rows before");
  }

  void read_ids(TraceRecord& record) {
    if (native_segments_) {
      if (row_.ids.size() % 3 != 0) throw BadRow{"segments must hold content, offset and length for each"};
      for (std::size_t i = 0; i < row_.ids.size(); i += 3) {
        record.prompt.push_back({row_.ids[i], static_cast<std::int64_t>(row_.ids[i + 1]),
                                 static_cast<std::int64_t>(row_.ids[i + 2])});
      }
      return;
    }
    if (block_size_ == 0) block_size_ = options_.block_size.value_or(format_.block_size);
    if (block_size_ == 0) block_size_ = guess_block_size(record.prompt_tokens);
    const std::string problem =
        segments_from_hash_ids(row_.ids, block_size_, kOwnTails + report_.num_records, record);
    if (!problem.empty()) throw BadRow{problem};
  }

  // The one usual size that the first prompt with ids is in keeping with.
  [[nodiscard]] std::int64_t guess_block_size(std::int64_t prompt_tokens) const {
    std::vector<std::int64_t> fitting;
    const auto ids = static_cast<std::int64_t>(row_.ids.size());
    for (std::int64_t size = 1; size <= 4096; size *= 2) {
      if ((prompt_tokens + size - 1) / size == ids) fitting.push_back(size);
    }
    if (fitting.size() == 1) return fitting.front();
    throw TraceError(
        fmt::format("{}:{}: {} hash ids for {} tokens do not show the size of a block; --block-size says it",
                    rows_->lines().name(), row_.line, ids, prompt_tokens));
  }

  // Turns: a request that continues another belongs to the other's session.
  void read_chat(TraceRecord& record) {
    const std::string_view parent = field(parent_);
    const std::uint64_t chat = identity(*chat_);
    std::uint64_t session = chat + 1;
    if (parent.data() != nullptr && !parent.starts_with('-')) {
      const auto found = session_of_chat_.find(identity(*parent_));
      // The parent may lie before the trace's first request.
      session = found != session_of_chat_.end() ? found->second : identity(*parent_) + 1;
      record.after_previous = found != session_of_chat_.end();
    }
    record.session = session;
    session_of_chat_.insert_or_assign(chat, session);
  }

  void read_optional(TraceRecord& record) {
    const auto there = [this](OptionalField f) {
      return field(optional_[f]).data() != nullptr && !field(optional_[f]).empty();
    };
    const auto at = [this](OptionalField f) { return *optional_[f]; };
    if (there(kAskedTokens)) record.max_tokens = whole(at(kAskedTokens), 0, kMaxTokens);
    if (there(kEndsBy)) {
      const std::string_view text = field(optional_[kEndsBy]);
      if (text != "length" && text != "eos") bad(at(kEndsBy), "length or eos");
      record.ends_by = text == "eos" ? EndsBy::kEos : EndsBy::kLength;
    }
    if (there(kOutputContent)) record.output_content = identity(at(kOutputContent));
    if (there(kSession)) record.session = identity(at(kSession));
    if (there(kAfterPrevious)) {
      record.after_previous = truth(at(kAfterPrevious));
    } else if (record.session != kNoSession) {
      record.after_previous = !seen_sessions_.insert(record.session).second;
    }
    bool absolute = false;
    if (there(kThinkTime)) record.think_time = time(at(kThinkTime), TimeUnit::kSeconds, absolute);
    if (there(kPriority))
      record.priority = static_cast<std::int32_t>(whole(at(kPriority), INT32_MIN, INT32_MAX));
    if (there(kSalt)) record.salt = identity(at(kSalt));
    if (there(kAdapter)) record.adapter = static_cast<std::uint32_t>(whole(at(kAdapter), 0, UINT32_MAX));
  }

  [[nodiscard]] bool truth(std::size_t i) const {
    const std::string_view text = row_.fields[i];
    if (text == "1" || text == "true") return true;
    if (text != "0" && text != "false") bad(i, "true or false");
    return false;
  }

  void check(const TraceRecord& record) const {
    if (record.arrival > kMaxTime) {
      throw TraceError(
          fmt::format("{}:{}: arrives more than ten years after the start; --time-unit names the unit",
                      rows_->lines().name(), row_.line));
    }
  }

  bool next_sorted(TraceRecord& record) {
    if (!sorted_) sort_all();
    if (next_sorted_ == sorted_->size()) return false;
    record = std::move((*sorted_)[next_sorted_++]);
    record.arrival -= *base_;
    check(record);
    return true;
  }

  void sort_all() {
    sorted_.emplace();
    std::uint64_t moved = 0;
    nanoseconds latest = nanoseconds::min();
    for (TraceRecord record; next_row(record);) {
      moved += record.arrival < latest ? 1 : 0;
      latest = std::max(latest, record.arrival);
      sorted_->push_back(record);
    }
    std::ranges::stable_sort(*sorted_, {}, &TraceRecord::arrival);
    base_ = absolute_ && !sorted_->empty() ? sorted_->front().arrival : nanoseconds(0);
    report_.notices.push_back(fmt::format("sorted by arrival: {} rows were moved ahead (--sort)", moved));
  }

  const FormatRow& format_;
  ImportOptions options_;
  Names names_;
  ImportReport report_;
  std::unique_ptr<RowReader> rows_;
  Row row_;
  std::optional<std::size_t> arrival_, chat_, parent_;
  std::size_t prompt_ = 0, output_ = 0;
  std::array<std::optional<std::size_t>, kNumOptionalFields> optional_;
  bool native_segments_ = false;
  std::unique_ptr<ArrivalTimes> made_arrivals_;
  std::int64_t block_size_ = 0;
  bool absolute_ = false;
  std::optional<nanoseconds> base_;
  nanoseconds last_stamp_ = nanoseconds::min();
  std::uint64_t num_bad_ = 0;
  std::string first_bad_;
  std::unordered_map<std::uint64_t, std::uint64_t> session_of_chat_;
  std::unordered_set<std::uint64_t> seen_sessions_;
  std::optional<std::vector<TraceRecord>> sorted_;
  std::size_t next_sorted_ = 0;
};

}  // namespace

std::unique_ptr<Importer> import_rows(const fs::path& path, const FormatRow& format,
                                      const ImportOptions& options) {
  return std::make_unique<RowImporter>(path, format, options);
}

}  // namespace kneepoint::traces
