// The Perfetto trace of runs worked by hand, decoded again and held against the
// rules of the format (perfetto.dev/docs/reference/synthetic-track-event).
#include "sim/timeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/support/toy_run.h"

namespace kneepoint::sim {
namespace {

using namespace std::chrono_literals;
using perfetto::TracePacket;
using perfetto::TrackEvent;
using testing::ElementsAre;
using testing::IsEmpty;

/// A trace as a reader of the format sees it: events by time, those of one time in the order of the file.
struct Decoded {
  std::string bytes;
  std::map<std::uint64_t, perfetto::TrackDescriptor> tracks;
  std::map<std::string, std::vector<std::string>> events;  // By track name: "0 +request 0", "5 -", "3 =2.5".
};

void note_broken_rule(bool holds, const std::string& rule) {
  EXPECT_TRUE(holds) << rule;
}

Decoded decode(const std::string& bytes) {
  perfetto::Trace trace;
  EXPECT_TRUE(trace.ParseFromString(bytes));
  Decoded decoded;
  decoded.bytes = bytes;
  std::map<std::uint64_t, std::string> names, notes;
  std::vector<const TracePacket*> events;
  bool cleared = false;
  for (const TracePacket& packet : trace.packet()) {
    note_broken_rule(packet.trusted_packet_sequence_id() == 1, "one sequence, told in each packet");
    note_broken_rule(cleared || (packet.sequence_flags() & TracePacket::SEQ_INCREMENTAL_STATE_CLEARED) != 0,
                     "the first packet clears the state");
    note_broken_rule(packet.first_packet_on_sequence() == !cleared, "only the first packet is the first");
    cleared = true;
    for (const auto& entry : packet.interned_data().event_names()) names[entry.iid()] = entry.name();
    for (const auto& entry : packet.interned_data().debug_annotation_names())
      notes[entry.iid()] = entry.name();
    if (packet.has_track_descriptor()) {
      const auto& track = packet.track_descriptor();
      note_broken_rule(track.uuid() != 0 && decoded.tracks.count(track.uuid()) == 0,
                       "each track has a uuid of its own");
      note_broken_rule(!track.has_parent_uuid() || decoded.tracks.count(track.parent_uuid()) == 1,
                       "parents come first");
      decoded.tracks[track.uuid()] = track;
    }
    if (packet.has_track_event()) {
      note_broken_rule(packet.has_timestamp(), "an event has its time");
      note_broken_rule(decoded.tracks.count(packet.track_event().track_uuid()) == 1,
                       "a track is described first");
      note_broken_rule((packet.sequence_flags() & TracePacket::SEQ_NEEDS_INCREMENTAL_STATE) != 0,
                       "names are interned");
      events.push_back(&packet);
    }
  }
  std::stable_sort(events.begin(), events.end(), [](const TracePacket* a, const TracePacket* b) {
    return a->timestamp() < b->timestamp();
  });
  std::map<std::uint64_t, int> depth;
  for (const TracePacket* packet : events) {
    const TrackEvent& e = packet->track_event();
    note_broken_rule(!e.has_name_iid() || names.count(e.name_iid()) == 1, "an interned name is known");
    const std::string name = e.has_name() ? e.name() : e.has_name_iid() ? names[e.name_iid()] : "";
    std::string text = fmt::format("{} ", packet->timestamp());
    if (e.type() == TrackEvent::TYPE_COUNTER) {
      note_broken_rule(decoded.tracks[e.track_uuid()].has_counter(), "counters have counter tracks");
      text += fmt::format(
          "={}", e.has_counter_value() ? static_cast<double>(e.counter_value()) : e.double_counter_value());
    } else if (e.type() == TrackEvent::TYPE_SLICE_END) {
      note_broken_rule(--depth[e.track_uuid()] >= 0, "a slice that ends had begun");
      text += "-";
    } else {
      depth[e.track_uuid()] += e.type() == TrackEvent::TYPE_SLICE_BEGIN ? 1 : 0;
      text += (e.type() == TrackEvent::TYPE_INSTANT ? "!" : "+") + name;
      for (const auto& annotation : e.debug_annotations()) {
        text += fmt::format(" {}={}", notes.at(annotation.name_iid()),
                            annotation.has_string_value() ? annotation.string_value()
                                                          : fmt::format("{}", annotation.int_value()));
      }
    }
    decoded.events[decoded.tracks[e.track_uuid()].name()].push_back(text);
  }
  for (const auto& [track, open] : depth) {
    note_broken_rule(open == 0, "every slice ends");
  }
  return decoded;
}

Decoded run(const RunConfig& config, const hw::StepTimeModel& times,
            std::vector<traces::TraceRecord> records) {
  const std::filesystem::path folder = testing::TempDir() + "/timeline";
  std::filesystem::create_directories(folder);
  {
    OutputFiles files(folder);
    Timeline timeline(files.create("run.pftrace"), "toy");
    testing_support::run_toy(config, times, std::move(records), {&timeline});
    timeline.finish();
    files.commit();
  }
  std::ifstream in(folder / "run.pftrace", std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return decode(bytes.str());
}

// Synchronous, 10 ns a step and 1 ns a token. Request 0 comes at 0: 20 tokens of prompt, 3 of answer. Request
// 1 at 5: 8 and 1. 100 blocks of 16 tokens.
//
//     0..30   prefill of 0 (20 tokens)              1 waits from 5 on
//     30..49  decode of 0 and prefill of 1 (1 + 8)   1 is over at 49
//     49..60  decode of 0                            0 is over at 60
//
// Request 0 has 2 blocks from its first step on (20 to 22 tokens), request 1 one.
TEST(TimelineTest, TwoRequestsByHand) {
  testing_support::ToyStepTimes times;
  times.fixed = 10ns;
  times.per_token = 1ns;
  RunConfig config = testing_support::toy_config(101);
  config.engine.async_scheduling = false;
  const Decoded trace =
      run(config, times, {testing_support::request_at(0ns, 20, 3), testing_support::request_at(5ns, 8, 1)});
  EXPECT_THAT(trace.events.at("Steps 1"),
              ElementsAre("0 +prefill step=0 tokens=20 prefills=1 prefill_tokens=20 decodes=0", "30 -",
                          "30 +mixed step=1 tokens=9 prefills=1 prefill_tokens=8 decodes=1", "49 -",
                          "49 +decode step=2 tokens=1 decodes=1", "60 -"));
  // Request 1 is written first, as it ends first, and so has the first lane.
  EXPECT_THAT(trace.events.at("Lane 1"),
              ElementsAre("5 +request 1 prompt_tokens=8 output_tokens=1 cached_tokens=0 preemptions=0 "
                          "queued_ns=25 end=length",
                          "5 +queued", "30 -", "30 +prefill", "49 -", "49 +decode", "49 -", "49 -"));
  EXPECT_THAT(trace.events.at("Lane 2"),
              ElementsAre("0 +request 0 prompt_tokens=20 output_tokens=3 cached_tokens=0 preemptions=0 "
                          "queued_ns=0 end=length",
                          "0 +queued", "0 -", "0 +prefill", "30 -", "30 +decode", "60 -", "60 -"));
  EXPECT_THAT(trace.events.at("Requests waiting"), ElementsAre("0 =0", "5 =1", "30 =0"));
  EXPECT_THAT(trace.events.at("Requests running"), ElementsAre("0 =1", "30 =2", "49 =1", "60 =0"));
  EXPECT_THAT(trace.events.at("KV cache in use"), ElementsAre("0 =2", "30 =3", "49 =2", "60 =0"));
  EXPECT_EQ(trace.events.count("Preemptions"), 0U);
  EXPECT_EQ(trace.tracks.at(4).counter().unit_name(), "%");
}

// 4 usable blocks and two requests of 30 + 10 tokens, which need 3 each: one is preempted. Its preemption is
// an instant with its number, and its slices still nest.
TEST(TimelineTest, PreemptionsAreInstants) {
  testing_support::ToyStepTimes times;
  times.fixed = 10ns;
  RunConfig config = testing_support::toy_config(5);
  config.engine.async_scheduling = false;
  config.engine.watermark = 0;
  const Decoded trace = run(
      config, times, {testing_support::request_at(0ns, 30, 10), testing_support::request_at(0ns, 30, 10)});
  // Steps of 10 ns: prefill from 0, then decodes of tokens 31, 32, 33: the one that begins at 30 computes the
  // 33rd, which needs a third block each; request 0 takes none that is free, so request 1 gives up its two.
  EXPECT_THAT(trace.events.at("Preemptions"), ElementsAre("30 !preempted request=1"));
  EXPECT_EQ(trace.events.at("Lane 2").front().find("0 +request 1 "), 0U);
}

TEST(TimelineTest, SameRunSameBytes) {
  testing_support::ToyStepTimes times;
  times.fixed = 10us;
  std::vector<traces::TraceRecord> records;
  for (int i = 0; i < 300; ++i) {
    records.push_back(testing_support::request_at(i * 7us, 10 + i % 90, 1 + i % 13));
  }
  const RunConfig config = testing_support::toy_config(60);
  const Decoded first = run(config, times, records);
  EXPECT_EQ(first.bytes, run(config, times, records).bytes);
}

// All at once: more than there are lanes wait. Those who find none from their send on are drawn from their
// first step on.
TEST(TimelineTest, WhoWaitsInACrowdIsDrawnFromItsFirstStepOn) {
  testing_support::ToyStepTimes times;
  times.fixed = 10ns;
  RunConfig config = testing_support::toy_config(1001);
  config.engine.max_num_seqs = 4;
  std::vector<traces::TraceRecord> records(Timeline::kLanes + 50, testing_support::request_at(0ns, 4, 2));
  const Decoded trace = run(config, times, records);
  std::size_t whole = 0, late = 0;
  for (const auto& [name, events] : trace.events) {
    if (name.starts_with("Lane")) {
      whole += static_cast<std::size_t>(std::count_if(
          events.begin(), events.end(), [](const std::string& e) { return e.starts_with("0 +request "); }));
      late += static_cast<std::size_t>(std::count_if(events.begin(), events.end(), [](const std::string& e) {
        return e.find("+request ") != std::string::npos && !e.starts_with("0 ");
      }));
    }
  }
  EXPECT_EQ(whole, static_cast<std::size_t>(Timeline::kLanes));
  EXPECT_EQ(late, 50U);
}

}  // namespace
}  // namespace kneepoint::sim
