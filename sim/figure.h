// A figure as SVG: what is drawn, not how a page looks.
//
//        marks' labels                  p50   p90 p99
//     Share of requests (%)              :     :   :
//        100 |                        ___:_____:---:--
//         50 |               ________/   :     :   :      lines, bands (lowest to highest),
//          0 +------------------------------------------  columns (stacked shares of a whole)
//              10           100          1,000
//                            TTFT (ms)
//
// Text in an SVG shrinks with it, so a figure is drawn twice, wide and narrow,
// and the page's style shows the one that fits. Colours are names of the page's
// style (sim/page.h), which has a value of each for light and for dark. What
// lines are called stands in the legend, which is HTML and wraps by itself. No
// script, no identifiers, so that figures cannot get in each other's way.
//
// Units   the data's in the data; pixels at 12 px text in sizes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/axis.h"

namespace kneepoint::sim {

/// A colour by what it is for; sim/page.cc has the values.
enum class Tone : std::uint8_t { kBlue, kOrange, kGreen, kPurple, kRed, kTeal, kGrey };
inline constexpr int kNumTones = 7;
[[nodiscard]] constexpr int tone_number(Tone tone) {
  return static_cast<int>(tone);
}

struct Point {
  double x = 0;
  double y = 0;
};

struct Line {
  std::string label;
  Tone tone = Tone::kBlue;
  std::vector<Point> points;  ///< By rising x.
  bool dashed = false;
  bool dots = false;  ///< A dot on each point, which tells its values when pointed at.
};

/// From the lowest to the highest at each x.
struct Band {
  std::string label;
  Tone tone = Tone::kBlue;
  std::vector<double> x;
  std::vector<double> low;
  std::vector<double> high;
  bool strong = false;  ///< Darker: the inner one of two.
};

/// A place on one axis: across the plot, with its name at its end.
struct Mark {
  double at = 0;
  std::string label;
  Tone tone = Tone::kGrey;
  bool horizontal = false;
};

/// From one x to another over the whole height: an interval.
struct Span {
  std::string label;
  Tone tone = Tone::kGrey;
  Range x;
};

/// Stacked columns, one for each category.
struct Columns {
  struct Layer {
    std::string label;
    Tone tone = Tone::kBlue;
    std::vector<double> values;  ///< One for each category.
    bool hatched = false;        ///< Tells it from another layer of the same tone.
  };
  std::vector<std::string> categories;
  std::vector<Layer> layers;  ///< From the bottom up.
};

/// Values with their intervals, a row each: how sure is what.
struct Intervals {
  struct Part {
    std::string label;  ///< "arrivals".
    Tone tone = Tone::kBlue;
  };
  struct Row {
    std::string name;
    double at = 0;
    std::vector<double> half_widths;  ///< One for each part.
    std::vector<double> ticks;        ///< Single values: one a seed.
  };
  std::vector<Part> parts;
  std::vector<Row> rows;
  std::string tick_label;  ///< What the single values are.
};

struct FigureAxis {
  std::string label;  ///< With its unit: "TTFT (ms)".
  bool log = false;
  std::optional<double> low;  ///< Nothing: as the data are.
  std::optional<double> high;
};

struct Figure {
  std::string title;
  std::string about;  ///< One or two sentences: what is seen, how it was counted.
  FigureAxis x;
  FigureAxis y;
  std::vector<Span> spans;
  std::vector<Band> bands;
  std::vector<Line> lines;
  std::vector<Mark> marks;
  Columns columns;      ///< If it has categories there are no lines, and the x axis is theirs.
  Intervals intervals;  ///< If it has rows there are no lines, and the y axis is theirs.
  std::string csv;      ///< The file with its numbers; beside the page.
};

struct FigureSize {
  double width = 600;
  double height = 300;
};
inline constexpr FigureSize kWideFigure{600, 300};
inline constexpr FigureSize kNarrowFigure{350, 260};

/// An svg element of the class `name`. "No data" where there is nothing to draw.
[[nodiscard]] std::string figure_svg(const Figure& figure, FigureSize size, std::string_view name);
/// A list with a sample of each line, band, span and layer; "" where there is but one thing without a name.
[[nodiscard]] std::string figure_legend(const Figure& figure);

/// 41.52 as "41.5": three digits that matter, thousands in groups.
[[nodiscard]] std::string short_number(double value);

}  // namespace kneepoint::sim
