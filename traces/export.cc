#include "traces/export.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "traces/atomic_file.h"
#include "traces/closest_name.h"
#include "traces/prefix_chain.h"
#include "traces/record_check.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

namespace fs = std::filesystem;

class PbSink final : public TraceSink {
 public:
  PbSink(const fs::path& path, const ExportOptions& options) : writer_(path, options.source) {}
  void add(const TraceRecord& record) override { writer_.add(record); }
  void finish() override { writer_.finish(); }

 private:
  TraceWriter writer_;
};

// Nanoseconds as seconds, exactly: 12.500000001.
void append_seconds(fmt::memory_buffer& out, std::chrono::nanoseconds time) {
  const std::int64_t ns = time.count();
  fmt::format_to(std::back_inserter(out), "{}.{:09}", ns / 1'000'000'000, ns % 1'000'000'000);
}

// What the text writers have in common: lines, and refusing what is out of order.
class TextSink : public TraceSink {
 public:
  explicit TextSink(const fs::path& path) : name_(path.string()), file_(path) {}

  void add(const TraceRecord& record) override {
    ++num_records_;
    std::string problem = record_problem(record);
    if (problem.empty() && record.arrival < last_) problem = "arrives before the record ahead of it";
    if (!problem.empty()) throw TraceError(fmt::format("{}: record {}: {}", name_, num_records_, problem));
    last_ = record.arrival;
    line_.clear();
    append(record, line_);
    file_.write({line_.data(), line_.size()});
  }
  void finish() override { file_.commit(); }

 protected:
  virtual void append(const TraceRecord& record, fmt::memory_buffer& out) = 0;
  void write(std::string_view text) { file_.write(text); }

 private:
  std::string name_;
  AtomicFile file_;
  fmt::memory_buffer line_;
  std::uint64_t num_records_ = 0;
  std::chrono::nanoseconds last_{0};
};

class CsvSink final : public TextSink {
 public:
  explicit CsvSink(const fs::path& path) : TextSink(path) {
    write(
        "arrival_s,prompt_tokens,output_tokens,max_tokens,ends_by,session,after_previous,think_time_s,"
        "priority,salt,adapter\n");
  }
  [[nodiscard]] std::vector<std::string> notices() const override {
    if (num_shared_ == 0) return {};
    return {
        fmt::format("csv cannot say what prompts share: {} requests lost it; jsonl keeps it", num_shared_)};
  }

 private:
  void append(const TraceRecord& record, fmt::memory_buffer& out) override {
    num_shared_ += record.prompt.empty() ? 0 : 1;
    append_seconds(out, record.arrival);
    fmt::format_to(std::back_inserter(out), ",{},{},{},{},{},{},", record.prompt_tokens, record.output_tokens,
                   record.max_tokens, record.ends_by == EndsBy::kEos ? "eos" : "length", record.session,
                   record.after_previous ? 1 : 0);
    append_seconds(out, record.think_time);
    fmt::format_to(std::back_inserter(out), ",{},{},{}\n", record.priority, record.salt, record.adapter);
  }
  std::uint64_t num_shared_ = 0;
};

class JsonlSink final : public TextSink {
 public:
  using TextSink::TextSink;

 private:
  // Fields at their defaults are left out.
  void append(const TraceRecord& record, fmt::memory_buffer& out) override {
    const auto put = [&out](std::string_view text) { out.append(text.data(), text.data() + text.size()); };
    const auto number = [&out](std::string_view name, auto value) {
      if (value != 0) fmt::format_to(std::back_inserter(out), ", \"{}\": {}", name, value);
    };
    put("{\"arrival_s\": ");
    append_seconds(out, record.arrival);
    number("prompt_tokens", record.prompt_tokens);
    number("output_tokens", record.output_tokens);
    number("max_tokens", record.max_tokens);
    if (record.ends_by == EndsBy::kEos) put(", \"ends_by\": \"eos\"");
    number("output_content", record.output_content);
    number("session", record.session);
    if (record.session != kNoSession)
      put(record.after_previous ? ", \"after_previous\": true" : ", \"after_previous\": false");
    if (record.think_time.count() != 0) {
      put(", \"think_time_s\": ");
      append_seconds(out, record.think_time);
    }
    number("priority", record.priority);
    number("salt", record.salt);
    number("adapter", record.adapter);
    if (!record.prompt.empty()) {
      put(", \"segments\": [");
      for (std::size_t i = 0; i < record.prompt.size(); ++i) {
        const PromptSegment& s = record.prompt[i];
        fmt::format_to(std::back_inserter(out), "{}{}, {}, {}", i == 0 ? "" : ", ", s.content, s.offset,
                       s.length);
      }
      put("]");
    }
    put("}\n");
  }
};

class TimedTraceSink final : public TextSink {
 public:
  TimedTraceSink(const fs::path& path, std::int64_t block_size) : TextSink(path), block_size_(block_size) {}

  [[nodiscard]] std::vector<std::string> notices() const override {
    std::vector<std::string> lines;
    const auto lost = [&lines](std::uint64_t count, std::string_view what) {
      if (count > 0)
        lines.push_back(fmt::format("timed-trace cannot say {}: {} requests lost it", what, count));
    };
    lost(num_after_, "that a turn waits for the answer before");
    lost(num_other_, "max_tokens, priority, salt or adapter");
    return lines;
  }

 private:
  void append(const TraceRecord& record, fmt::memory_buffer& out) override {
    num_after_ += record.after_previous ? 1 : 0;
    num_other_ +=
        record.max_tokens != 0 || record.priority != 0 || record.salt != 0 || record.adapter != 0 ? 1 : 0;
    const auto put = [&out](std::string_view text) { out.append(text.data(), text.data() + text.size()); };
    put("{\"timestamp\": ");
    append_seconds(out, record.arrival);
    fmt::format_to(std::back_inserter(out), ", \"input_length\": {}, \"output_length\": {}",
                   record.prompt_tokens, record.output_tokens);
    chain_keys(record, block_size_, true, false, keys_);
    if (!keys_.empty()) {
      put(", \"hash_ids\": [");
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        bool fresh = false;
        fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ", ", ids_.number(keys_[i], fresh));
      }
      put("]");
    }
    put("}\n");
  }

  std::int64_t block_size_;
  ChainTable ids_;
  std::vector<ChainKey> keys_;
  std::uint64_t num_after_ = 0;
  std::uint64_t num_other_ = 0;
};

struct ExportRow {
  std::string_view name;
  std::unique_ptr<TraceSink> (*make)(const fs::path&, const ExportOptions&);
};

constexpr std::array kFormats{
    ExportRow{"csv",
              [](const fs::path& path, const ExportOptions&) -> std::unique_ptr<TraceSink> {
                return std::make_unique<CsvSink>(path);
              }},
    ExportRow{"jsonl",
              [](const fs::path& path, const ExportOptions&) -> std::unique_ptr<TraceSink> {
                return std::make_unique<JsonlSink>(path);
              }},
    ExportRow{"pb",
              [](const fs::path& path, const ExportOptions& options) -> std::unique_ptr<TraceSink> {
                return std::make_unique<PbSink>(path, options);
              }},
    ExportRow{"timed-trace",
              [](const fs::path& path, const ExportOptions& options) -> std::unique_ptr<TraceSink> {
                return std::make_unique<TimedTraceSink>(path, options.block_size);
              }},
};

}  // namespace

std::vector<std::string> export_formats() {
  std::vector<std::string> names;
  for (const ExportRow& row : kFormats) names.emplace_back(row.name);
  return names;
}

std::string format_of_ending(const fs::path& path) {
  const std::string ending = path.extension().string();
  for (const std::string_view known : {".pb", ".csv", ".jsonl"}) {
    if (ending == known) return ending.substr(1);
  }
  return "";
}

std::unique_ptr<TraceSink> export_trace(const fs::path& path, const ExportOptions& options) {
  if (options.block_size < 1 || options.block_size > kMaxTokens) {
    throw TraceError(fmt::format("a block of {} tokens; it must have 1..{}", options.block_size, kMaxTokens));
  }
  for (const ExportRow& row : kFormats) {
    if (row.name == options.format) return row.make(path, options);
  }
  throw TraceError(fmt::format("format {} cannot be written{}; {} can", options.format,
                               did_you_mean(options.format, export_formats()),
                               fmt::join(export_formats(), ", ")));
}

}  // namespace kneepoint::traces
