// Times as traces write them: dates, epoch seconds and milliseconds, offsets.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kneepoint::traces {

enum class TimeUnit { kSeconds, kMilliseconds, kMicroseconds, kNanoseconds };

/// "s", "ms", "us", "ns".
[[nodiscard]] std::optional<TimeUnit> parse_time_unit(std::string_view text);

struct TimeStamp {
  std::int64_t ns = 0;
  bool absolute = false;  ///< Since 1970-01-01 UTC; else since the trace's own start.
};

/// A time in any of these forms; nothing if it is none of them.
///
///     2023-11-16 18:15:46.6805900      no zone: UTC; fraction of any length
///     2024-05-10T00:00:00.009+02:00    zone: Z, +hh:mm, +hhmm or +hh
///     1700158546.68, 1700158546680     epoch, in the unit its size shows
///     12.5, 1e3                        offset in `unit`; seconds without one
///
/// Without `unit`, a number of 1e8 or more is an epoch time: seconds below 1e11,
/// milliseconds below 1e14, microseconds below 1e17, else nanoseconds (the years
/// 1973 to 5138 in each). With `unit` a number is in that unit. Digits below
/// a nanosecond are cut.
[[nodiscard]] std::optional<TimeStamp> parse_time(std::string_view text, std::optional<TimeUnit> unit);

/// A non-negative decimal number times 10^`scale`, digits below 1 cut, so that
/// "12.5" at scale 9 is 12.5 s in nanoseconds; nothing if it is no number, is
/// negative or does not fit.
[[nodiscard]] std::optional<std::int64_t> parse_scaled(std::string_view text, int scale);

}  // namespace kneepoint::traces
