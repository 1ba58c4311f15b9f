// Replays a recorded case through our engine and compares event by event.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/golden/recorded_case.h"

namespace kneepoint::golden {

/// The first place where we decide otherwise.
struct Difference {
  std::int64_t step = 0;  ///< Engine iteration.
  std::string field;      ///< "schedule.sched[2].n", ...
  std::string ours;
  std::string theirs;
};

struct ReplayOutcome {
  std::int64_t events = 0;  ///< Compared and equal.
  std::optional<Difference> difference;
};

/// How the engine is to go about it. Its decisions must not depend on this.
enum class Way { kWalked, kCohort };

[[nodiscard]] ReplayOutcome replay(const RecordedCase& recorded, Way way = Way::kWalked);

}  // namespace kneepoint::golden
