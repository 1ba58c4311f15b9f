// Does the queue grow for want of capacity, or by chance?
//
// The question is asked of the time in which requests arrive: of course the
// queue empties afterwards. A request is in the queue from its arrival until its
// first step begins; that includes the client's own queue under
// --max-concurrency. Cut that time into 20 equal blocks and let
//
//     d_i = requests that arrived in block i - requests that began in block i
//
// so that the sum of the d_i is the queue at the last arrival. Below capacity the
// queue comes back to where it was, and the d_i cancel. At capacity exactly it is
// a random walk: no drift, though it wanders off as the root of time. Above it
// has a drift. A one-sided t-test asks whether the mean of d_i is above 0
// by more than a walk without drift shows in one run of a hundred. So bursts,
// which make the d_i large but not one-sided, do not count, and neither does a
// single burst at the end: alone it makes t = 1. Of M/D/1 queues of 1000 requests
// at loads 0.95, 1.1 and 1.2 it finds about 0, 63 and 99 in a hundred.
//
// Overloaded also means that it matters: at least 10 requests wait at the last
// arrival. Fewer than 40 requests, or all at one instant: no verdict, not
// overloaded. And where the queue takes more than 100 times as long to empty as
// the requests took to come, nothing needs testing.
//
// Blocks come from counters over time whose width doubles as the run grows:
// constant memory, whatever the length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/observer.h"

namespace kneepoint::sim {

struct OverloadVerdict {
  bool overloaded = false;
  std::string reason;  ///< One line with figures; empty if not overloaded.
  double t = 0;        ///< The test's statistic; 0 without a verdict.
  std::int64_t queue_at_last_arrival = 0;
};

class OverloadDetector final : public RunObserver {
 public:
  OverloadDetector();
  void on_send(const RequestRecord& request) override;
  void on_request_end(const RequestRecord& request) override;

  [[nodiscard]] OverloadVerdict verdict() const;

 private:
  void count(std::vector<std::int64_t>& counters, SimTime time);
  void double_width();

  std::int64_t width_ns_;
  std::vector<std::int64_t> arrived_;
  std::vector<std::int64_t> began_;  // Or left the queue otherwise.
  SimTime first_arrival_ = kNever;
  SimTime last_arrival_{};
  SimTime last_began_{};
  std::int64_t requests_ = 0;
};

}  // namespace kneepoint::sim
