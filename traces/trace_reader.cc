#include <fmt/format.h>

#include <boost/assert.hpp>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include "traces/frame.h"
#include "traces/record_check.h"
#include "traces/sha256.h"
#include "traces/trace.pb.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {

namespace fs = std::filesystem;

struct TraceReader::State {
  std::ifstream in;
  std::string name;
  std::uint64_t position = 0;  // Bytes of the file consumed.
  std::uint64_t trailer_begins = 0;
  std::uint64_t file_bytes = 0;
  Sha256 hash;         // Of the bytes consumed.
  std::string buffer;  // One frame.
  std::string trailer_frame;
  Sha256Digest expected{};
  TraceInfo info;

  pb::Block block;
  int block_size = 0;  // Records in `block`,
  int in_block = 0;    // those given,
  int segment = 0;     // and their segments.
  std::uint64_t num_given = 0;
  std::uint64_t arrival_ns = 0;
  std::uint64_t block_start_ns = 0;  // Last arrival of the block before.
  std::uint64_t segment_content = 0;

  bool keep_whole = false;
  std::string damage;  // Why reading ended early, under keep_whole.

  // Runs `read`; under keep_whole its error is kept and ends the records.
  template <typename Read>
  void attempt(Read read) {
    if (!keep_whole) return read();
    try {
      read();
    } catch (const TraceError& error) {
      if (damage.empty()) damage = error.what();
    }
  }

  [[noreturn]] void fail(std::string_view what) const { throw TraceError(fmt::format("{}: {}", name, what)); }
  [[noreturn]] void fail_record(std::string_view what) const {
    fail(fmt::format("record {}: {}", num_given + 1, what));
  }

  void open(const fs::path& path);
  void read_exactly(std::string& bytes, std::size_t size);
  std::string_view read_frame(FrameTag tag, std::string_view what);
  void read_header();
  void read_trailer();
  bool read_block();
  void check_block_shape();
  void end_of_blocks();
  void take(TraceRecord& record);
  void take_rare(TraceRecord& record, int i);
  void take_segments(TraceRecord& record, std::uint32_t count);
};

void TraceReader::State::open(const fs::path& path) {
  name = path.string();
  std::error_code error;
  if (!fs::exists(path, error)) fail("no such file");
  if (!fs::is_regular_file(path, error)) fail("is not a regular file; a trace is read from its end first");
  file_bytes = fs::file_size(path, error);
  in.open(path, std::ios::binary);
  if (error || !in) fail("cannot be read");
  if (file_bytes == 0) fail("is empty; a trace has a header and a trailer");
  if (in.peek() != static_cast<int>(FrameTag::kHeader)) {
    fail("is not a trace file; `traces convert --help` says how to make one");
  }
}

void TraceReader::State::read_exactly(std::string& bytes, std::size_t size) {
  bytes.resize(size);
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  if (static_cast<std::size_t>(in.gcount()) != size) fail("ends too early; it was cut or changed while read");
  hash.update(bytes);
  position += size;
}

// Content of the frame that begins here; nothing is allocated before its length
// was compared with what the file still holds.
std::string_view TraceReader::State::read_frame(FrameTag tag, std::string_view what) {
  std::string head;
  read_exactly(head, 1);
  if (static_cast<unsigned char>(head[0]) != static_cast<unsigned char>(tag)) {
    fail(fmt::format("{} at byte {} is damaged (its framing is broken)", what, position - 1));
  }
  const std::uint64_t begins = position - 1;
  std::size_t size = 0;
  std::string length;
  for (bool more = true; more;) {
    if (length.size() == 5 || position == trailer_begins)
      fail(fmt::format("{} at byte {} is damaged (its length is broken)", what, begins));
    read_exactly(head, 1);
    length += head;
    more = (static_cast<unsigned char>(head[0]) & 0x80) != 0;
  }
  std::string_view digits = length;
  if (!take_length(digits, size) || size > kMaxFrameBytes || size > trailer_begins - position) {
    fail(fmt::format("{} at byte {} is damaged (its length is broken)", what, begins));
  }
  read_exactly(buffer, size);
  const CheckedContent checked = open_checked(buffer);
  if (!checked.problem.empty()) fail(fmt::format("{} at byte {} is {}", what, begins, checked.problem));
  return checked.content;
}

void TraceReader::State::read_trailer() {
  trailer_begins = file_bytes;  // Until one was found.
  const std::string_view cut = "ends without a trailer; it was cut or not finished";
  if (file_bytes <= kTrailerFrameBytes) fail(cut);
  const std::uint64_t begins = file_bytes - kTrailerFrameBytes;
  trailer_frame.resize(kTrailerFrameBytes);
  in.seekg(static_cast<std::streamoff>(begins));
  in.read(trailer_frame.data(), static_cast<std::streamsize>(kTrailerFrameBytes));
  if (static_cast<std::size_t>(in.gcount()) != kTrailerFrameBytes) fail("cannot be read");
  in.seekg(0);
  std::string_view frame = trailer_frame;
  if (static_cast<unsigned char>(frame[0]) != static_cast<unsigned char>(FrameTag::kTrailer)) fail(cut);
  frame.remove_prefix(1);
  std::size_t size = 0;
  if (!take_length(frame, size) || size != frame.size()) fail(cut);
  const CheckedContent checked = open_checked(frame);
  if (!checked.problem.empty()) fail(fmt::format("the trailer is {}", checked.problem));
  pb::Trailer trailer;
  if (!trailer.ParseFromArray(checked.content.data(), static_cast<int>(checked.content.size())) ||
      trailer.sha256().size() != expected.size() ||
      trailer.last_arrival_ns() > static_cast<std::uint64_t>(kMaxTime.count())) {
    fail("the trailer does not hold what one must");
  }
  trailer_begins = begins;
  trailer.sha256().copy(reinterpret_cast<char*>(expected.data()), expected.size());
  info.num_records = trailer.num_records();
  info.last_arrival = std::chrono::nanoseconds(trailer.last_arrival_ns());
}

void TraceReader::State::read_header() {
  const std::string_view content = read_frame(FrameTag::kHeader, "the header");
  pb::Header header;
  if (!header.ParseFromArray(content.data(), static_cast<int>(content.size()))) {
    fail("the header does not hold what one must");
  }
  if (header.version() != kFormatVersion) {
    fail(fmt::format("is of format version {}; this build reads version {}", header.version(),
                     kFormatVersion));
  }
  info.source = header.source();
}

bool TraceReader::State::read_block() {
  if (position == trailer_begins) return false;
  const std::string_view content = read_frame(FrameTag::kBlock, "the block");
  if (!block.ParseFromArray(content.data(), static_cast<int>(content.size()))) {
    fail(fmt::format("the block before byte {} does not hold columns", position));
  }
  check_block_shape();
  block_start_ns = arrival_ns;
  arrival_ns = 0;
  in_block = 0;
  segment = 0;
  segment_content = 0;
  return true;
}

// Every column has one value per record, or none at all.
void TraceReader::State::check_block_shape() {
  block_size = block.arrival_delta_ns_size();
  const auto must = [this](bool holds, std::string_view what) {
    if (!holds) fail(fmt::format("the block before byte {}: {}", position, what));
  };
  must(block_size >= 1 && block_size <= kRecordsPerBlock,
       fmt::format("has {} records; 1..{} are allowed", block_size, kRecordsPerBlock));
  must(block.prompt_tokens_size() == block_size, "prompt_tokens has another length than arrival_delta_ns");
  must(block.output_tokens_size() == block_size, "output_tokens has another length than arrival_delta_ns");
  for (const int size :
       {block.max_tokens_size(), block.ends_by_eos_size(), block.output_content_size(), block.session_size(),
        block.after_previous_size(), block.think_time_ns_size(), block.priority_size(), block.salt_size(),
        block.adapter_size(), block.num_segments_size()}) {
    must(size == 0 || size == block_size, "an optional column is neither empty nor full");
  }
  std::uint64_t segments = 0;
  for (const std::uint32_t count : block.num_segments()) segments += count;
  must(segments == static_cast<std::uint64_t>(block.segment_length_size()) &&
           block.segment_offset_size() == block.segment_length_size() &&
           block.segment_content_delta_size() == block.segment_length_size(),
       "the segment columns do not have as many values as num_segments says");
}

void TraceReader::State::end_of_blocks() {
  if (num_given != info.num_records) {
    fail(fmt::format("holds {} records but its trailer says {}; it was cut or pieced together", num_given,
                     info.num_records));
  }
  if (arrival_ns != static_cast<std::uint64_t>(info.last_arrival.count())) {
    fail("the trailer names another last arrival than the records have");
  }
  if (hash.digest() != expected) fail("its digest does not agree; blocks were changed or exchanged");
  hash.update(trailer_frame);
  position = file_bytes;
}

namespace {

// A column's value as the record's type; -1, which record_problem() refuses, if
// it is beyond any limit.
std::int64_t bounded(std::uint64_t value) {
  return value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
             ? -1
             : static_cast<std::int64_t>(value);
}

}  // namespace

void TraceReader::State::take(TraceRecord& record) {
  const int i = in_block;
  const std::uint64_t delta = block.arrival_delta_ns(i);
  if (delta > static_cast<std::uint64_t>(kMaxTime.count()))
    fail_record(fmt::format("its arrival is {} ns after the one before; that is beyond ten years", delta));
  arrival_ns += delta;
  if (arrival_ns < block_start_ns) fail_record("arrives before the record ahead of it");
  record.arrival = std::chrono::nanoseconds(bounded(arrival_ns));
  record.prompt_tokens = bounded(block.prompt_tokens(i));
  record.output_tokens = bounded(block.output_tokens(i));
  take_rare(record, i);
  record.prompt.clear();
  if (block.num_segments_size() != 0) take_segments(record, block.num_segments(i));
  if (const std::string problem = record_problem(record); !problem.empty()) fail_record(problem);
  ++in_block;
  ++num_given;
}

void TraceReader::State::take_rare(TraceRecord& record, int i) {
  const auto value = [i](const auto& column) { return column.empty() ? 0 : column.Get(i); };
  record.max_tokens = bounded(value(block.max_tokens()));
  record.ends_by = value(block.ends_by_eos()) ? EndsBy::kEos : EndsBy::kLength;
  record.output_content = value(block.output_content());
  record.session = value(block.session());
  record.after_previous = value(block.after_previous());
  record.think_time = std::chrono::nanoseconds(bounded(value(block.think_time_ns())));
  record.priority = value(block.priority());
  record.salt = value(block.salt());
  record.adapter = value(block.adapter());
}

void TraceReader::State::take_segments(TraceRecord& record, std::uint32_t count) {
  for (std::uint32_t k = 0; k < count; ++k, ++segment) {
    segment_content += static_cast<std::uint64_t>(block.segment_content_delta(segment));
    record.prompt.push_back({.content = segment_content,
                             .offset = bounded(block.segment_offset(segment)),
                             .length = bounded(block.segment_length(segment))});
  }
}

TraceReader::TraceReader(const fs::path& path, Damage damage) : state_(std::make_unique<State>()) {
  state_->keep_whole = damage == Damage::kKeepWhole;
  state_->open(path);
  state_->attempt([this] { state_->read_trailer(); });
  state_->read_header();
}

TraceReader::~TraceReader() = default;
TraceReader::TraceReader(TraceReader&&) noexcept = default;
TraceReader& TraceReader::operator=(TraceReader&&) noexcept = default;

const TraceInfo& TraceReader::info() const {
  return state_->info;
}

bool TraceReader::next(TraceRecord& record) {
  State& s = *state_;
  if (s.in_block == s.block_size) {
    if (s.position == s.file_bytes) return false;
    bool more = false;
    s.attempt([&] {
      more = s.read_block();
      if (!more) s.end_of_blocks();
    });
    if (!more) {
      s.position = s.file_bytes;
      return false;
    }
  }
  s.take(record);
  return true;
}

const std::string& TraceReader::damage() const {
  return state_->damage;
}

std::string TraceReader::sha256() const {
  BOOST_ASSERT_MSG(state_->position == state_->file_bytes, "WHOLE_FILE: sha256() before the end was read");
  return state_->hash.hex();
}

}  // namespace kneepoint::traces
