// A run as a Perfetto trace, to open in ui.perfetto.dev: --timeline run.pftrace.
//
//     Steps          |mixed 2048 tok|decode|decode|mixed ...      on the device; pipeline stages overlap in
//     lanes Preemptions               ◆ request 17 KV cache in use (%)   ▁▂▃▅▆▇        counters: values as
//     they held Requests waiting      ▁▁▂▂▃▁ Requests running      ▂▃▃▄▄▅ Requests
//       lane 1       |request 0 .......................|request 9 ....
//                      |queued|prefill |decode         |
//       lane 2       ...
//
// A request is written when it is over, which the format allows, as readers sort
// by time; so memory is constant. It gets the lowest lane that has been free since
// it was sent. Under overload thousands wait at once and there is none: then one
// that has been free since its first step, and its slice begins there. There are
// 1024 lanes, vLLM's largest default of max_num_seqs; who finds none is counted.
// What is unfinished when a run is cut is left out.
//
// Times are nanoseconds of simulated time. Names are interned: sent once, with the
// first packet, and referred to by number.
//
// Source  perfetto.dev/docs/reference/synthetic-track-event; sim/perfetto.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/observer.h"
#include "sim/output_files.h"
#include "sim/perfetto.pb.h"

namespace kneepoint::sim {

class Timeline final : public RunObserver {
 public:
  static constexpr int kLanes = 1024;

  /// Writes the names. `file` must outlive this; `title` heads the tracks.
  Timeline(OutputFile& file, const std::string& title);

  void on_preempt(const RequestRecord& request, SimTime now) override;
  void on_request_end(const RequestRecord& request) override;
  void on_step(const StepRecord& step) override;
  void on_load(SimTime now, const engine::EngineLoad& load) override;

  /// Writes what the counters held at the end. Nothing may follow.
  void finish();

  /// Requests that found no free lane.
  [[nodiscard]] std::int64_t not_drawn() const { return not_drawn_; }

 private:
  enum class Name : std::uint8_t;
  enum class Note : std::uint8_t;
  struct Values {
    double kv_percent = -1;  // Nothing written yet.
    std::int64_t waiting = -1;
    std::int64_t running = -1;
  };
  struct Span {
    SimTime begin, end;
  };

  perfetto::TracePacket& fresh_packet();
  void write();
  void write_names();
  void track(std::uint64_t uuid, std::uint64_t parent, const std::string& name, int rank,
             const char* unit = nullptr);
  perfetto::TrackEvent& event(SimTime time, std::uint64_t track, perfetto::TrackEvent::Type type);
  void note(perfetto::TrackEvent& event, Note name, std::int64_t value);
  void slice(std::uint64_t track, Name name, Span span);
  void end_slice(std::uint64_t track, SimTime time);
  void count(SimTime time, std::uint64_t track, std::int64_t value);
  void write_counters();
  std::uint64_t step_track(const StepRecord& step);
  std::optional<std::uint64_t> request_track(SimTime begin, SimTime end);

  OutputFile& file_;
  perfetto::Trace trace_;  // Of one packet, reused.
  std::string bytes_;      // Reused.

  std::vector<SimTime> step_lanes_free_;
  std::vector<SimTime> lanes_free_;  // Since when.
  std::int64_t not_drawn_ = 0;

  SimTime held_since_{};
  Values held_, written_;
};

}  // namespace kneepoint::sim
