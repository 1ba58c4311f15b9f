#include "sim/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/assert.hpp>

namespace kneepoint::sim {

using perfetto::TracePacket;
using perfetto::TrackEvent;

// Numbers of the interned names, from 1.
enum class Timeline::Name : std::uint8_t { kPrefill = 1, kDecode, kMixed, kQueued, kPreempted };
enum class Timeline::Note : std::uint8_t {
  kStep = 1,
  kTokens,
  kPrefills,
  kPrefillTokens,
  kDecodes,
  kDecodeTokens,
  kRequest,
  kPromptTokens,
  kOutputTokens,
  kCachedTokens,
  kPreemptions,
  kQueuedNs,
  kEnd
};

namespace {

constexpr const char* kNames[] = {"prefill", "decode", "mixed", "queued", "preempted"};
constexpr const char* kNotes[] = {
    "step",    "tokens",        "prefills",      "prefill_tokens", "decodes",     "decode_tokens",
    "request", "prompt_tokens", "output_tokens", "cached_tokens",  "preemptions", "queued_ns",
    "end"};
constexpr std::uint32_t kSequence = 1;

// Tracks by their uuid.
constexpr std::uint64_t kRoot = 1;
constexpr std::uint64_t kSteps = 2;
constexpr std::uint64_t kPreemptionTrack = 3;
constexpr std::uint64_t kKvUse = 4;
constexpr std::uint64_t kWaiting = 5;
constexpr std::uint64_t kRunning = 6;
constexpr std::uint64_t kRequests = 7;
constexpr std::uint64_t kFirstStepLane = 1000;
constexpr std::uint64_t kFirstLane = 2000;

}  // namespace

Timeline::Timeline(OutputFile& file, const std::string& title) : file_(file) {
  write_names();
  track(kRoot, 0, title, 0);
  track(kSteps, kRoot, "Steps", 1);
  track(kPreemptionTrack, kRoot, "Preemptions", 2);
  track(kKvUse, kRoot, "KV cache in use", 3, "%");
  track(kWaiting, kRoot, "Requests waiting", 4, "requests");
  track(kRunning, kRoot, "Requests running", 5, "requests");
  track(kRequests, kRoot, "Requests", 6);
}

// ---- packets

TracePacket& Timeline::fresh_packet() {
  TracePacket& packet = trace_.packet_size() > 0 ? *trace_.mutable_packet(0) : *trace_.add_packet();
  packet.Clear();
  packet.set_trusted_packet_sequence_id(kSequence);
  packet.set_sequence_flags(TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  return packet;
}

void Timeline::write() {
  bytes_.clear();
  trace_.AppendToString(&bytes_);
  file_.write(bytes_);
}

void Timeline::write_names() {
  TracePacket& packet = fresh_packet();
  packet.set_sequence_flags(TracePacket::SEQ_INCREMENTAL_STATE_CLEARED |
                            TracePacket::SEQ_NEEDS_INCREMENTAL_STATE);
  packet.set_first_packet_on_sequence(true);
  perfetto::InternedData& data = *packet.mutable_interned_data();
  const auto add = [](const auto& texts, auto&& next) {
    std::uint64_t iid = 0;
    for (const char* const text : texts) {
      auto* const entry = next();
      entry->set_iid(++iid);
      entry->set_name(text);
    }
  };
  add(kNames, [&] { return data.add_event_names(); });
  add(kNotes, [&] { return data.add_debug_annotation_names(); });
  write();
}

void Timeline::track(std::uint64_t uuid, std::uint64_t parent, const std::string& name, int rank,
                     const char* unit) {
  perfetto::TrackDescriptor& descriptor = *fresh_packet().mutable_track_descriptor();
  descriptor.set_uuid(uuid);
  descriptor.set_name(name);
  descriptor.set_child_ordering(perfetto::TrackDescriptor::EXPLICIT);
  descriptor.set_sibling_order_rank(rank);
  if (parent != 0) {
    descriptor.set_parent_uuid(parent);
  }
  if (unit != nullptr) {
    descriptor.mutable_counter()->set_unit_name(unit);
  }
  write();
}

TrackEvent& Timeline::event(SimTime time, std::uint64_t track, TrackEvent::Type type) {
  TracePacket& packet = fresh_packet();
  packet.set_timestamp(static_cast<std::uint64_t>(time.time_since_epoch().count()));
  TrackEvent& event = *packet.mutable_track_event();
  event.set_type(type);
  event.set_track_uuid(track);
  return event;
}

void Timeline::note(TrackEvent& event, Note name, std::int64_t value) {
  perfetto::DebugAnnotation& annotation = *event.add_debug_annotations();
  annotation.set_name_iid(static_cast<std::uint64_t>(name));
  annotation.set_int_value(value);
}

void Timeline::slice(std::uint64_t track, Name name, Span span) {
  event(span.begin, track, TrackEvent::TYPE_SLICE_BEGIN).set_name_iid(static_cast<std::uint64_t>(name));
  write();
  end_slice(track, span.end);
}

void Timeline::end_slice(std::uint64_t track, SimTime time) {
  static_cast<void>(event(time, track, TrackEvent::TYPE_SLICE_END));
  write();
}

// ---- steps

// Steps follow each other on a track but for pipeline stages, in which the next begins before this one is
// through.
std::uint64_t Timeline::step_track(const StepRecord& step) {
  std::size_t lane = 0;
  while (lane < step_lanes_free_.size() && step_lanes_free_[lane] > step.begin) {
    ++lane;
  }
  if (lane == step_lanes_free_.size()) {
    step_lanes_free_.emplace_back();
    track(kFirstStepLane + lane, kSteps, fmt::format("Steps {}", lane + 1), static_cast<int>(lane));
  }
  step_lanes_free_[lane] = step.end;
  return kFirstStepLane + lane;
}

void Timeline::on_step(const StepRecord& step) {
  const std::uint64_t track = step_track(step);
  TrackEvent& begin = event(step.begin, track, TrackEvent::TYPE_SLICE_BEGIN);
  const Name name = step.context_requests == 0      ? Name::kDecode
                    : step.generation_requests == 0 ? Name::kPrefill
                                                    : Name::kMixed;
  begin.set_name_iid(static_cast<std::uint64_t>(name));
  note(begin, Note::kStep, step.step);
  note(begin, Note::kTokens, step.context_tokens + step.generation_tokens);
  if (step.context_requests > 0) {
    note(begin, Note::kPrefills, step.context_requests);
    note(begin, Note::kPrefillTokens, step.context_tokens);
  }
  note(begin, Note::kDecodes, step.generation_requests);
  if (step.generation_tokens !=
      step.generation_requests) {  // With drafts, or a resumed request's recomputation.
    note(begin, Note::kDecodeTokens, step.generation_tokens);
  }
  write();
  end_slice(track, step.end);
}

// ---- requests

// The lowest lane that is free from `begin` on; it is taken until `end`.
std::optional<std::uint64_t> Timeline::request_track(SimTime begin, SimTime end) {
  std::size_t lane = 0;
  while (lane < lanes_free_.size() && lanes_free_[lane] > begin) {
    ++lane;
  }
  if (lane == kLanes) {
    return std::nullopt;
  }
  if (lane == lanes_free_.size()) {
    lanes_free_.emplace_back();
    track(kFirstLane + lane, kRequests, fmt::format("Lane {}", lane + 1), static_cast<int>(lane));
  }
  lanes_free_[lane] = end;
  return kFirstLane + lane;
}

void Timeline::on_preempt(const RequestRecord& request, SimTime now) {
  TrackEvent& preempted = event(now, kPreemptionTrack, TrackEvent::TYPE_INSTANT);
  preempted.set_name_iid(static_cast<std::uint64_t>(Name::kPreempted));
  note(preempted, Note::kRequest, static_cast<std::int64_t>(request.index));
  write();
}

void Timeline::on_request_end(const RequestRecord& request) {
  const SimTime over = request.last_token;
  const bool ran = request.scheduled != kNever;
  SimTime from = request.sent;
  std::optional<std::uint64_t> found = request_track(from, over);
  if (!found && ran) {
    from = request.scheduled;
    found = request_track(from, over);
  }
  if (!found) {
    ++not_drawn_;
    return;
  }
  const std::uint64_t lane = *found;
  TrackEvent& begin = event(from, lane, TrackEvent::TYPE_SLICE_BEGIN);
  begin.set_name(fmt::format("request {}", request.index));
  note(begin, Note::kPromptTokens, request.prompt_tokens);
  note(begin, Note::kOutputTokens, request.output_tokens);
  note(begin, Note::kCachedTokens, request.cached_tokens);
  note(begin, Note::kPreemptions, request.preemptions);
  if (request.queued != kNever) {
    note(begin, Note::kQueuedNs, (std::min(request.scheduled, over) - request.queued).count());
  }
  perfetto::DebugAnnotation& end = *begin.add_debug_annotations();
  end.set_name_iid(static_cast<std::uint64_t>(Note::kEnd));
  end.set_string_value(std::string(request_end_name(request.end)));
  write();

  // What it never came to lasts until its end.
  if (request.queued != kNever && from == request.sent) {
    slice(lane, Name::kQueued, {request.queued, std::min(request.scheduled, over)});
  }
  if (ran) {
    slice(lane, Name::kPrefill, {request.scheduled, std::min(request.first_token, over)});
  }
  if (request.first_token != kNever) {
    slice(lane, Name::kDecode, {request.first_token, over});
  }
  end_slice(lane, over);
}

// ---- counters

void Timeline::on_load(SimTime now, const engine::EngineLoad& load) {
  if (now > held_since_) {
    write_counters();
    held_since_ = now;
  }
  const std::int64_t used = load.usable_blocks - load.free_blocks;
  held_ = {
      100 * static_cast<double>(used) / static_cast<double>(std::max<std::int64_t>(load.usable_blocks, 1)),
      load.num_waiting, load.num_running};
}

void Timeline::finish() {
  write_counters();
}

void Timeline::count(SimTime time, std::uint64_t track, std::int64_t value) {
  event(time, track, TrackEvent::TYPE_COUNTER).set_counter_value(value);
  write();
}

void Timeline::write_counters() {
  if (held_.kv_percent != written_.kv_percent) {
    event(held_since_, kKvUse, TrackEvent::TYPE_COUNTER).set_double_counter_value(held_.kv_percent);
    write();
  }
  if (held_.waiting != written_.waiting) {
    count(held_since_, kWaiting, held_.waiting);
  }
  if (held_.running != written_.running) {
    count(held_since_, kRunning, held_.running);
  }
  written_ = held_;
}

}  // namespace kneepoint::sim
