#include <fmt/format.h>

#include <algorithm>
#include <boost/assert.hpp>
#include <utility>

#include "traces/atomic_file.h"
#include "traces/frame.h"
#include "traces/record_check.h"
#include "traces/sha256.h"
#include "traces/trace.pb.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {

struct TraceWriter::State {
  explicit State(const std::filesystem::path& path) : file(path), name(path.string()) {}

  void put(FrameTag tag, std::string_view content) {
    const std::string frame = make_frame(tag, content);
    if (tag != FrameTag::kTrailer) hash.update(frame);
    file.write(frame);
  }

  void flush_block() {
    if (block.arrival_delta_ns_size() == 0) return;
    drop_default_columns();
    block.SerializeToString(&bytes);
    put(FrameTag::kBlock, bytes);
    block.Clear();
    last_content = 0;
  }

  // A column of nothing but defaults says nothing.
  void drop_default_columns() {
    const auto drop = [](auto& column) {
      if (std::all_of(column.begin(), column.end(), [](auto value) { return value == 0; })) column.Clear();
    };
    drop(*block.mutable_max_tokens());
    drop(*block.mutable_ends_by_eos());
    drop(*block.mutable_output_content());
    drop(*block.mutable_session());
    drop(*block.mutable_after_previous());
    drop(*block.mutable_think_time_ns());
    drop(*block.mutable_priority());
    drop(*block.mutable_salt());
    drop(*block.mutable_adapter());
    drop(*block.mutable_num_segments());
  }

  void append(const TraceRecord& record) {
    block.add_arrival_delta_ns(static_cast<std::uint64_t>((record.arrival - last_arrival).count()));
    block.add_prompt_tokens(static_cast<std::uint64_t>(record.prompt_tokens));
    block.add_output_tokens(static_cast<std::uint64_t>(record.output_tokens));
    block.add_max_tokens(static_cast<std::uint64_t>(record.max_tokens));
    block.add_ends_by_eos(record.ends_by == EndsBy::kEos);
    block.add_output_content(record.output_content);
    block.add_session(record.session);
    block.add_after_previous(record.after_previous);
    block.add_think_time_ns(static_cast<std::uint64_t>(record.think_time.count()));
    block.add_priority(record.priority);
    block.add_salt(record.salt);
    block.add_adapter(record.adapter);
    block.add_num_segments(static_cast<std::uint32_t>(record.prompt.size()));
    for (const PromptSegment& segment : record.prompt) {
      block.add_segment_content_delta(static_cast<std::int64_t>(segment.content - last_content));
      block.add_segment_offset(static_cast<std::uint64_t>(segment.offset));
      block.add_segment_length(static_cast<std::uint64_t>(segment.length));
      last_content = segment.content;
    }
    last_arrival = record.arrival;
  }

  AtomicFile file;
  std::string name;
  Sha256 hash;
  pb::Block block;
  std::string bytes;
  std::uint64_t num_records = 0;
  std::chrono::nanoseconds last_arrival{0};
  ContentId last_content = 0;
};

TraceWriter::TraceWriter(const std::filesystem::path& path, std::string source)
    : state_(std::make_unique<State>(path)) {
  pb::Header header;
  header.set_version(kFormatVersion);
  header.set_source(std::move(source));
  state_->put(FrameTag::kHeader, header.SerializeAsString());
}

TraceWriter::~TraceWriter() = default;
TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&&) noexcept = default;

void TraceWriter::add(const TraceRecord& record) {
  State& s = *state_;
  const std::uint64_t number = s.num_records + 1;
  if (const std::string problem = record_problem(record); !problem.empty()) {
    throw TraceError(fmt::format("{}: record {}: {}", s.name, number, problem));
  }
  if (record.arrival < s.last_arrival) {
    throw TraceError(
        fmt::format("{}: record {}: arrives at {} ns, before the record ahead of it ({} ns); sort first",
                    s.name, number, record.arrival.count(), s.last_arrival.count()));
  }
  // Deltas restart in each block: a block can be read without those before it.
  if (s.block.arrival_delta_ns_size() == 0) s.last_arrival = std::chrono::nanoseconds(0);
  s.append(record);
  s.num_records = number;
  if (s.block.arrival_delta_ns_size() == kRecordsPerBlock ||
      s.block.segment_length_size() >= kSegmentsPerBlock) {
    s.flush_block();
  }
}

void TraceWriter::finish() {
  State& s = *state_;
  s.flush_block();
  const Sha256Digest digest = s.hash.digest();
  pb::Trailer trailer;
  trailer.set_num_records(s.num_records);
  trailer.set_last_arrival_ns(static_cast<std::uint64_t>(s.last_arrival.count()));
  trailer.set_sha256(digest.data(), digest.size());
  const std::string content = trailer.SerializeAsString();
  BOOST_ASSERT_MSG(content.size() == kTrailerContentBytes, "TRAILER_SIZE: found from the end by its size");
  s.put(FrameTag::kTrailer, content);
  s.file.commit();
}

}  // namespace kneepoint::traces
