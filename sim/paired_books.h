// Paired accounts: the totals of a run, each counted in two ways that share
// nothing but the run, and compared at its end.
//
//     total                one way                          the other
//     requests             sent                             over, and unfinished at the end
//     scheduled tokens     what the plans say               what the members of each step say
//     sampled tokens       what each step gave out          what each request got
//     blocks               free in the pool at the end      all there are (a whole run leaves none in use)
//     engine time          number in the engine, over time  stay of each request in it
//     client time          number under way, over time      sent until over, of each request
//
// The last two are Little's law, which holds to the nanosecond. Times are kept
// modulo 2^64 ns: sums of a long run may exceed that, and equality still tells.
//
// A pair that is not equal is a bug and stops the run (PAIRED_ACCOUNTS); equal
// ones go into result.json as `audit`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/sim_time.h"

namespace kneepoint::sim {

struct AuditLine {
  std::string_view total;  ///< With its unit.
  std::string_view one_way, other_way;
  std::uint64_t first = 0, second = 0;
};

class PairedBooks {
 public:
  // ---- one way: as things happen
  void sent(SimTime now) {
    client_time_ += since(now) * under_way_++;
    ++sent_;
  }
  void planned_tokens(std::int64_t count) { scheduled_ += unsigned_of(count); }
  void step_gave(std::int64_t tokens) { sampled_ += unsigned_of(tokens); }
  void engine_held(SimDuration time, std::int64_t requests) {
    engine_time_ += unsigned_of(time.count()) * unsigned_of(requests);
  }

  // ---- the other: request by request, member by member
  void over(SimTime now, SimTime sent) {
    client_time_ += since(now) * under_way_--;
    client_stays_ += unsigned_of((now - sent).count());
    ++over_;
  }
  void member_tokens(std::int64_t count) { scheduled_by_member_ += unsigned_of(count); }
  void request_got(std::int64_t tokens) { sampled_by_request_ += unsigned_of(tokens); }
  void left_engine(SimDuration stay) { engine_stays_ += unsigned_of(stay.count()); }

  [[nodiscard]] std::int64_t num_sent() const { return static_cast<std::int64_t>(sent_); }
  [[nodiscard]] std::int64_t num_over() const { return static_cast<std::int64_t>(over_); }

  /// A request that a stopped run leaves unfinished, sent at `sent`.
  void unfinished(SimTime now, SimTime sent) {
    client_stays_ += unsigned_of((now - sent).count());
    ++unfinished_;
  }

  /// Compares. `free_blocks` and `usable_blocks` of the end; a run that was not `whole` may leave some in use.
  [[nodiscard]] std::vector<AuditLine> close(SimTime now, bool whole, std::int64_t free_blocks,
                                             std::int64_t usable_blocks);

 private:
  static std::uint64_t unsigned_of(std::int64_t value) { return static_cast<std::uint64_t>(value); }
  std::uint64_t since(SimTime now) {
    const auto passed = unsigned_of((now - last_change_).count());
    last_change_ = now;
    return passed;
  }

  std::uint64_t sent_ = 0, over_ = 0, unfinished_ = 0;
  std::uint64_t scheduled_ = 0, scheduled_by_member_ = 0;
  std::uint64_t sampled_ = 0, sampled_by_request_ = 0;
  std::uint64_t engine_time_ = 0, engine_stays_ = 0;
  std::uint64_t client_time_ = 0, client_stays_ = 0;
  std::uint64_t under_way_ = 0;
  SimTime last_change_{};
};

}  // namespace kneepoint::sim
