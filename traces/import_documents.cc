// Formats that are one document: a saved vLLM benchmark, ShareGPT conversations,
// our own files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "traces/byte_source.h"
#include "traces/import_format.h"
#include "traces/record_check.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::nanoseconds;

// Bytes of a file one by one for the parser, which keeps a text whole: so one
// text longer than any conversation is refused before it fills the memory.
class BoundedBytes {
 public:
  explicit BoundedBytes(const fs::path& path) : bytes_(open_bytes(path)), name_(path.string()) {}

  [[nodiscard]] bool next(char& byte) {
    if (used_ == filled_) {
      filled_ = bytes_->read(buffer_.data(), buffer_.size());
      used_ = 0;
      if (filled_ == 0) return false;
    }
    byte = buffer_[used_++];
    run_ = byte == '"' && !escaped_ ? 0 : run_ + 1;
    escaped_ = byte == '\\' && !escaped_;
    if (run_ > kMaxText)
      throw TraceError(fmt::format("{}: holds a text of more than {} bytes", name_, kMaxText));
    return true;
  }

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  static constexpr std::size_t kMaxText = std::size_t{64} << 20;
  std::unique_ptr<ByteSource> bytes_;
  std::string name_;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{1} << 16);
  std::size_t used_ = 0, filled_ = 0, run_ = 0;
  bool escaped_ = false;
};

// An input iterator over them, as nlohmann's parser takes one.
class ByteIterator {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = char;
  using pointer = const char*;
  using reference = const char&;
  using iterator_category = std::input_iterator_tag;

  ByteIterator() = default;
  explicit ByteIterator(BoundedBytes& bytes) : bytes_(&bytes) { ++*this; }
  reference operator*() const { return byte_; }
  ByteIterator& operator++() {
    if (!bytes_->next(byte_)) bytes_ = nullptr;
    return *this;
  }
  ByteIterator operator++(int) {
    ByteIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const ByteIterator& a, const ByteIterator& b) { return a.bytes_ == b.bytes_; }

 private:
  BoundedBytes* bytes_ = nullptr;
  char byte_ = 0;
};

// A listener that hears where in the document a value stands: the path of keys,
// "[]" for an array.
class PathListener : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(static_cast<double>(value)), true; }
  bool number_unsigned(number_unsigned_t value) override { return number(static_cast<double>(value)), true; }
  bool number_float(number_float_t value, const string_t&) override { return number(value), true; }
  bool string(string_t& value) override { return text(value), true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(), true; }
  bool end_array() override { return leave(), true; }
  bool key(string_t& name) override { return key_ = name, true; }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    error_ = fmt::format("is no valid JSON from byte {} on", position);
    return false;
  }
  [[nodiscard]] const std::string& error() const { return error_; }

 protected:
  virtual void number(double) {}
  virtual void text(const std::string&) {}
  virtual void closed() {}  ///< An object or array ended; path() is its own.

  /// Keys from the root on: {"", "conversations", "value"} and so on.
  [[nodiscard]] const std::vector<std::string>& path() const { return path_; }
  [[nodiscard]] const std::string& last_key() const { return key_; }

 private:
  bool enter() {
    if (path_.size() >= 64) {
      error_ = "is nested too deeply";
      return false;
    }
    path_.push_back(std::exchange(key_, ""));
    return true;
  }
  void leave() {
    closed();
    key_ = "";
    path_.pop_back();
  }

  std::vector<std::string> path_;
  std::string key_;
  std::string error_;
};

void parse(const fs::path& path, PathListener& listener) {
  BoundedBytes bytes(path);
  if (!Json::sax_parse(ByteIterator(bytes), ByteIterator(), &listener)) {
    throw TraceError(fmt::format("{}: {}", path.string(), listener.error()));
  }
}

// Records that are all in memory already: what the document formats end up as.
class ListImporter final : public Importer {
 public:
  ListImporter(std::vector<TraceRecord> records, ImportReport report)
      : records_(std::move(records)), report_(std::move(report)) {
    report_.num_records = records_.size();
  }
  [[nodiscard]] bool next(TraceRecord& record) override {
    if (given_ == records_.size()) return false;
    record = std::move(records_[given_++]);
    return true;
  }
  [[nodiscard]] const ImportReport& report() const override { return report_; }

 private:
  std::vector<TraceRecord> records_;
  ImportReport report_;
  std::size_t given_ = 0;
};

nanoseconds to_ns(double seconds) {
  return nanoseconds(static_cast<std::int64_t>(std::floor(seconds * 1e9 + 0.5)));
}

class BenchListener final : public PathListener {
 public:
  std::vector<double> starts, inputs, outputs;

 private:
  void number(double value) override {
    if (path().size() != 2) return;
    if (path()[1] == "start_times") starts.push_back(value);
    if (path()[1] == "input_lens") inputs.push_back(value);
    if (path()[1] == "output_lens") outputs.push_back(value);
  }
};

std::string bench_problem(const BenchListener& found, std::size_t i) {
  const double input = found.inputs[i], output = found.outputs[i];
  if (!(input >= 1 && input <= kMaxTokens)) return fmt::format("input_lens[{}] is {}", i, input);
  if (!(output >= 1 && output <= kMaxTokens))
    return fmt::format("output_lens[{}] is {}: the request failed", i, output);
  return {};
}

// Turns of one conversation: lengths of what the person and the model said.
struct Turn {
  double prompt_chars = 0;
  double answer_chars = 0;
};

class ShareGptListener final : public PathListener {
 public:
  std::vector<std::vector<Turn>> conversations;

 private:
  void text(const std::string& value) override {
    if (path().size() < 3 || path()[2] != "conversations") return;
    if (last_key() == "from" || last_key() == "role") from_ = value;
    if (last_key() == "value" || last_key() == "content") {
      // Characters, not bytes: UTF-8 continuation bytes are left out.
      chars_ = static_cast<double>(std::ranges::count_if(
          value, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
    }
  }
  void closed() override {
    if (path().size() == 4 && path()[2] == "conversations") {
      said();
    } else if (path().size() == 2) {
      while (!turns_.empty() && turns_.back().answer_chars == 0)
        turns_.pop_back();  // A question without an answer.
      conversations.push_back(std::exchange(turns_, {}));
    }
  }
  void said() {
    const bool model =
        from_ == "gpt" || from_ == "assistant" || from_ == "chatgpt" || from_ == "bing" || from_ == "bard";
    if (model) {
      if (!turns_.empty()) turns_.back().answer_chars += chars_;
    } else {
      if (turns_.empty() || turns_.back().answer_chars > 0) turns_.emplace_back();
      turns_.back().prompt_chars += chars_;
    }
    from_.clear();
    chars_ = 0;
  }

  std::string from_;
  double chars_ = 0;
  std::vector<Turn> turns_;
};

// A conversation's requests: each prompt is all that was said before and the
// new text; each answer returns in the next prompt.
void append_conversation(const std::vector<Turn>& turns, std::uint64_t session, nanoseconds arrival,
                         double chars_per_token, ContentId& next_content, std::vector<TraceRecord>& records) {
  const auto tokens = [chars_per_token](double chars) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(chars / chars_per_token)));
  };
  std::vector<PromptSegment> so_far;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    TraceRecord record;
    record.arrival = arrival;
    so_far.push_back({++next_content, 0, tokens(turns[i].prompt_chars)});
    record.prompt = so_far;
    for (const PromptSegment& segment : so_far) record.prompt_tokens += segment.length;
    record.output_tokens = tokens(turns[i].answer_chars);
    record.output_content = ++next_content;
    record.session = session;
    record.after_previous = i > 0;
    so_far.push_back({record.output_content, 0, record.output_tokens});
    records.push_back(std::move(record));
  }
}

class PbImporter final : public Importer {
 public:
  PbImporter(const fs::path& path, bool recover)
      : reader_(path, recover ? TraceReader::Damage::kKeepWhole : TraceReader::Damage::kRefuse) {
    report_.format = "pb";
  }
  [[nodiscard]] bool next(TraceRecord& record) override {
    if (!reader_.next(record)) {
      if (!reader_.damage().empty() && report_.notices.empty())
        report_.notices.push_back(reader_.damage() + "; what is whole before it was kept (--recover)");
      return false;
    }
    ++report_.num_records;
    return true;
  }
  [[nodiscard]] const ImportReport& report() const override { return report_; }

 private:
  TraceReader reader_;
  ImportReport report_;
};

}  // namespace

std::unique_ptr<Importer> import_vllm_bench(const fs::path& path, const ImportOptions& options) {
  BenchListener found;
  parse(path, found);
  if (found.starts.empty() || found.inputs.size() != found.starts.size() ||
      found.outputs.size() != found.starts.size()) {
    throw TraceError(
        fmt::format("{}: has no start_times, input_lens and output_lens of one length; save it with "
                    "--save-result --save-detailed",
                    path.string()));
  }
  ImportReport report;
  report.format = "vllm-bench";
  std::vector<TraceRecord> records;
  std::uint64_t num_bad = 0;
  for (std::size_t i = 0; i < found.starts.size(); ++i) {
    if (const std::string problem = bench_problem(found, i); !problem.empty()) {
      if (num_bad++ == options.skip_bad_rows) {
        throw TraceError(fmt::format("{}: {}; --skip-bad-rows N passes over up to N such requests",
                                     path.string(), problem));
      }
      continue;
    }
    TraceRecord record;
    record.arrival = to_ns(found.starts[i]);
    record.prompt_tokens = static_cast<std::int64_t>(found.inputs[i]);
    record.output_tokens = static_cast<std::int64_t>(found.outputs[i]);
    records.push_back(std::move(record));
  }
  if (num_bad > 0) report.notices.push_back(fmt::format("{} failed requests passed over", num_bad));
  // Saved in the order of the requests, whose sends may overtake each other by a little.
  const bool sorted = std::ranges::is_sorted(records, {}, &TraceRecord::arrival);
  if (!sorted && !options.sort)
    throw TraceError(fmt::format("{}: start_times are not in order; --sort sorts them", path.string()));
  if (!sorted) report.notices.push_back("sorted by start time (--sort)");
  std::ranges::stable_sort(records, {}, &TraceRecord::arrival);
  const nanoseconds first = records.empty() ? nanoseconds(0) : records.front().arrival;
  for (TraceRecord& record : records) record.arrival -= first;  // The clock's origin is arbitrary.
  return std::make_unique<ListImporter>(std::move(records), std::move(report));
}

std::unique_ptr<Importer> import_sharegpt(const fs::path& path, const ImportOptions& options) {
  if (!options.arrivals) {
    throw TraceError(
        fmt::format("{}: ShareGPT has conversations but no times; --rate R [--arrivals poisson] says how "
                    "many begin a second",
                    path.string()));
  }
  const double chars_per_token = options.chars_per_token.value_or(4);
  if (!(chars_per_token >= 0.5 && chars_per_token <= 100)) {
    throw TraceError(fmt::format("--chars-per-token is {}; it must lie in 0.5..100", chars_per_token));
  }
  ShareGptListener found;
  parse(path, found);
  ImportReport report;
  report.format = "sharegpt";
  const auto arrivals = make_arrivals(*options.arrivals);
  std::vector<TraceRecord> records;
  ContentId next_content = 0;
  std::uint64_t session = 0, empty = 0;
  for (const auto& turns : found.conversations) {
    if (turns.empty()) {
      ++empty;
      continue;
    }
    append_conversation(turns, ++session, to_ns(arrivals->next_s()), chars_per_token, next_content, records);
  }
  if (session == 0)
    throw TraceError(fmt::format("{}: holds no conversation with a question and an answer", path.string()));
  if (empty > 0)
    report.notices.push_back(
        fmt::format("{} conversations without a question and an answer left out", empty));
  report.notices.push_back(fmt::format(
      "token counts are estimates: text at {} characters a token (--chars-per-token)", chars_per_token));
  return std::make_unique<ListImporter>(std::move(records), std::move(report));
}

std::unique_ptr<Importer> import_pb(const fs::path& path, const ImportOptions& options) {
  return std::make_unique<PbImporter>(path, options.recover);
}

}  // namespace kneepoint::traces
