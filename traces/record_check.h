// What a record of a trace must satisfy, on the way in and on the way out.
#pragma once

#include <cstdint>
#include <string>

#include "traces/trace_record.h"

namespace kneepoint::traces {

inline constexpr std::int64_t kMaxTokens = 2'147'483'647;
/// Ten years. Beyond it a stamp is a unit mistaken for another.
inline constexpr std::chrono::nanoseconds kMaxTime = std::chrono::hours(24 * 3653);
inline constexpr std::size_t kMaxSegments = 1 << 20;

/// The first rule that `record` breaks, naming field, value and limits, or "".
[[nodiscard]] std::string record_problem(const TraceRecord& record);

}  // namespace kneepoint::traces
