// Axes of figures: where a value lies, and which values get a tick.
//
// Ticks are round numbers, 1, 2 or 5 times a power of ten, as few as asked for:
//
//     linear 0 .. 23.7, at most 6 ticks   0, 5, 10, 15, 20
//     log    37 .. 420, at most 6 ticks   50, 100, 200
//     log    0.5 .. 2e6, at most 6 ticks  1, 100, 10,000, 1,000,000
//
// Each is a whole number times a power of ten, so 0.3 is the double nearest to
// 0.3 and not 0.1 + 0.1 + 0.1. Pure functions; a range without width is widened.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kneepoint::sim {

struct Range {
  double low = 0;
  double high = 1;
};

struct Tick {
  double value = 0;
  std::string label;  ///< "0.25", "20", "1,000".
};

/// Ticks within `range`, in rising order. Before  at_most >= 2.
[[nodiscard]] std::vector<Tick> linear_ticks(Range range, int at_most);
/// Before  range.low > 0.
[[nodiscard]] std::vector<Tick> log_ticks(Range range, int at_most);

/// The smallest range between tick steps that holds `range`: 0.3 .. 23.7 is 0 .. 25.
[[nodiscard]] Range rounded_out(Range range, int at_most);

/// Where a value lies between two pixels; values outside are moved to the edge.
class Scale {
 public:
  /// `range` gets a width if it has none. On a log scale its low end must be above 0.
  Scale(Range range, bool log, double from_px, double to_px);
  [[nodiscard]] double px(double value) const;
  [[nodiscard]] Range range() const { return range_; }

 private:
  Range range_;
  bool log_;
  double from_px_;
  double to_px_;
};

/// "12000.5" as "12,000.5".
[[nodiscard]] std::string with_groups(std::string digits);
[[nodiscard]] std::string with_groups(std::int64_t value);

/// About so wide is a text at 12 px in the page's font; never less than it is drawn.
[[nodiscard]] double text_width(std::string_view text);

/// Labels of lines that come from below, each beginning at its line's `at` and kept within `room`; rows count
/// from the top. A label goes below every earlier one that reaches as far as its line, so that neither labels
/// meet nor a line runs through one (but where `room` ends):
///
///     p50 41     p90 106     p99 178          row 0
///     :          : p95 116   :                row 1
///
/// Before  `at` rises.
struct PlacedLabel {
  double left = 0;
  int row = 0;
};
[[nodiscard]] std::vector<PlacedLabel> place_labels(const std::vector<double>& at,
                                                    const std::vector<double>& widths, Range room);

}  // namespace kneepoint::sim
