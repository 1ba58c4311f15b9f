#include "sim/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "sim/markup.h"

namespace kneepoint::sim {
namespace {

constexpr double kTop = 24;     // The name of the y axis stands here.
constexpr double kBottom = 42;  // Ticks and the name of the x axis.
constexpr double kRight = 14;
constexpr double kLabelRow = 15;
constexpr double kTickGap = 6;

/// The pixels of one drawing, and the text that is being written.
class Drawing {
 public:
  Drawing(const Figure& figure, FigureSize size);
  std::string draw(std::string_view name);

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> form, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), form, std::forward<Args>(args)...);
  }
  void find_ranges();
  void find_edges();
  void axes();
  void category_axis();
  void columns();
  void interval_rows();
  void spans();
  void band(const Band& band);
  void line(const Line& line);
  void marks();
  [[nodiscard]] bool has_columns() const { return !figure_.columns.categories.empty(); }
  [[nodiscard]] bool has_rows() const { return !figure_.intervals.rows.empty(); }
  [[nodiscard]] int x_ticks() const { return static_cast<int>(size_.width / 62); }
  [[nodiscard]] int y_ticks() const { return 6; }
  [[nodiscard]] std::vector<Tick> ticks(const FigureAxis& axis, Range range, int at_most) const {
    return axis.log ? log_ticks(range, at_most) : linear_ticks(range, at_most);
  }

  const Figure& figure_;
  FigureSize size_;
  Range x_range_, y_range_;
  bool has_data_ = false;
  std::vector<Tick> x_ticks_, y_ticks_;
  std::vector<Mark> vertical_;  // By rising place.
  std::vector<PlacedLabel> vertical_labels_;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
  Scale x_{{}, false, 0, 1};
  Scale y_{{}, false, 1, 0};
  std::string text_;
};

/// Takes in values, leaving out those a log axis cannot show.
class RangeFinder {
 public:
  explicit RangeFinder(const FigureAxis& axis) : axis_(axis) {}
  void take(double value) {
    if (std::isfinite(value) && (!axis_.log || value > 0)) {
      range_.low = std::min(range_.low, value);
      range_.high = std::max(range_.high, value);
    }
  }
  [[nodiscard]] bool found() const { return range_.low <= range_.high; }
  [[nodiscard]] Range range() const {
    Range range = found() ? range_ : Range{axis_.log ? 1.0 : 0.0, axis_.log ? 10.0 : 1.0};
    range.low = axis_.low.value_or(range.low);
    range.high = axis_.high.value_or(range.high);
    return range;
  }

 private:
  const FigureAxis& axis_;
  Range range_{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
};

Drawing::Drawing(const Figure& figure, FigureSize size) : figure_(figure), size_(size) {
  find_ranges();
  find_edges();
}

void Drawing::find_ranges() {
  RangeFinder x(figure_.x);
  RangeFinder y(figure_.y);
  for (const Line& line : figure_.lines) {
    for (const Point& point : line.points) {
      x.take(point.x);
      y.take(point.y);
    }
  }
  for (const Band& band : figure_.bands) {
    for (std::size_t i = 0; i < band.x.size(); ++i) {
      x.take(band.x[i]);
      y.take(band.low[i]);
      y.take(band.high[i]);
    }
  }
  for (const Intervals::Row& row : figure_.intervals.rows) {
    for (const double half_width : row.half_widths) {
      x.take(row.at - half_width);
      x.take(row.at + half_width);
    }
    for (const double tick : row.ticks) {
      x.take(tick);
    }
    x.take(row.at);
  }
  has_data_ = x.found() || has_columns();
  for (const Span& span : figure_.spans) {
    x.take(span.x.low);
    x.take(span.x.high);
  }
  for (const Mark& mark : figure_.marks) {
    mark.horizontal ? y.take(mark.at) : x.take(mark.at);
  }
  for (std::size_t i = 0; i < figure_.columns.categories.size(); ++i) {
    double sum = 0;
    for (const Columns::Layer& layer : figure_.columns.layers) {
      sum += layer.values[i];
    }
    y.take(0);
    y.take(sum);
  }
  x_range_ = x.range();
  y_range_ = y.range();
  if (!figure_.y.log) {
    const Range out = rounded_out(y_range_, y_ticks());
    y_range_ = {figure_.y.low.value_or(out.low), figure_.y.high.value_or(out.high)};
  }
}

// Margins follow from the labels that stand in them.
void Drawing::find_edges() {
  y_ticks_ = has_rows() ? std::vector<Tick>() : ticks(figure_.y, y_range_, y_ticks());
  double widest = 0;
  for (const Tick& tick : y_ticks_) {
    widest = std::max(widest, text_width(tick.label));
  }
  left_ = widest + kTickGap + 6;
  right_ = size_.width - kRight;
  bottom_ = size_.height - kBottom;
  top_ = kTop;

  for (const Mark& mark : figure_.marks) {
    if (!mark.horizontal) {
      vertical_.push_back(mark);
    }
  }
  std::stable_sort(vertical_.begin(), vertical_.end(),
                   [](const Mark& a, const Mark& b) { return a.at < b.at; });
  x_ = Scale(x_range_, figure_.x.log, left_, right_);
  std::vector<double> at, widths;
  for (const Mark& mark : vertical_) {
    at.push_back(x_.px(mark.at));
    widths.push_back(text_width(mark.label) + 3);
  }
  vertical_labels_ = place_labels(at, widths, {left_, right_});  // A line's label stands right of its end.
  for (const PlacedLabel& label : vertical_labels_) {
    top_ = std::max(top_, kTop + kLabelRow * (label.row + 1));
  }
  y_ = Scale(y_range_, figure_.y.log, bottom_, top_);
  x_ticks_ = has_columns() ? std::vector<Tick>() : ticks(figure_.x, x_range_, x_ticks());
}

void Drawing::axes() {
  for (const Tick& tick : y_ticks_) {
    const double y = y_.px(tick.value);
    put("<path class=\"grid\" d=\"M{:.1f},{:.1f}H{:.1f}\"/>", left_, y, right_);
    put("<text class=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", left_ - kTickGap, y + 4, tick.label);
  }
  double free_from = 0;  // A label that would touch the one before is left out.
  for (const Tick& tick : x_ticks_) {
    const double x = x_.px(tick.value);
    const double half = text_width(tick.label) / 2;
    put("<path class=\"tick\" d=\"M{:.1f},{:.1f}v4\"/>", x, bottom_);
    if (x - half >= free_from) {
      const double centre = std::min(x, size_.width - half);
      put("<text class=\"mid\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", centre, bottom_ + 17, tick.label);
      free_from = centre + half + 8;
    }
  }
  put("<path class=\"axis\" d=\"M{:.1f},{:.1f}H{:.1f}\"/>", left_, bottom_, right_);
  put("<text class=\"name\" x=\"2\" y=\"13\">{}</text>", escaped(figure_.y.label));
  put("<text class=\"name mid\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", (left_ + right_) / 2, size_.height - 6,
      escaped(figure_.x.label));
}

void Drawing::category_axis() {
  const auto& categories = figure_.columns.categories;
  const double slot = (right_ - left_) / static_cast<double>(categories.size());
  double free_from = 0;
  for (std::size_t i = 0; i < categories.size(); ++i) {
    const double centre = left_ + slot * (static_cast<double>(i) + 0.5);
    const double half = text_width(categories[i]) / 2;
    if (centre - half >= free_from) {
      put("<text class=\"mid\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", centre, bottom_ + 17,
          escaped(categories[i]));
      free_from = centre + half + 6;
    }
  }
}

void Drawing::columns() {
  const auto& categories = figure_.columns.categories;
  const double slot = (right_ - left_) / static_cast<double>(categories.size());
  const double width = std::min(slot * 0.8, 48.0);
  for (std::size_t i = 0; i < categories.size(); ++i) {
    const double left = left_ + slot * (static_cast<double>(i) + 0.5) - width / 2;
    double base = 0;
    for (const Columns::Layer& layer : figure_.columns.layers) {
      if (layer.values[i] > 0) {
        const double low = y_.px(base);
        const double high = y_.px(base + layer.values[i]);
        put("<rect class=\"fill t{}{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">"
            "<title>{}: {} {}</title></rect>",
            tone_number(layer.tone), layer.hatched ? " pale" : "", left, high, width, low - high,
            escaped(categories[i]), escaped(layer.label), short_number(layer.values[i]));
        base += layer.values[i];
      }
    }
  }
}

// A row's name, below it a bar for each part, below these the single values.
void Drawing::interval_rows() {
  const Intervals& all = figure_.intervals;
  const double slot = (bottom_ - top_) / static_cast<double>(all.rows.size());
  const double step = std::min(15.0, (slot - 20) / static_cast<double>(all.parts.size() + 1));
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    const Intervals::Row& row = all.rows[i];
    double y = top_ + slot * static_cast<double>(i) + 13;
    put("<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", left_, y, escaped(row.name));
    const double at = x_.px(row.at);
    for (std::size_t part = 0; part < all.parts.size(); ++part) {
      y += step;
      const double from = x_.px(row.at - row.half_widths[part]);
      const double to = x_.px(row.at + row.half_widths[part]);
      const int tone = tone_number(all.parts[part].tone);
      put("<path class=\"line t{}\" d=\"M{:.1f},{:.1f}v6m0,-3H{:.1f}m0,-3v6\"/>", tone, from, y - 3, to);
      put("<circle class=\"dot t{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}: {} ± {}</title></circle>",
          tone, at, y, escaped(all.parts[part].label), short_number(row.at),
          short_number(row.half_widths[part]));
    }
    y += step;
    for (const double tick : row.ticks) {
      put("<path class=\"tick\" d=\"M{:.1f},{:.1f}v7\"/>", x_.px(tick), y - 3);
    }
  }
}

void Drawing::spans() {
  for (const Span& span : figure_.spans) {
    const double from = x_.px(span.x.low);
    put("<rect class=\"span t{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"><title>{}</title></rect>",
        tone_number(span.tone), from, top_, std::max(x_.px(span.x.high) - from, 1.0), bottom_ - top_,
        escaped(span.label));
  }
}

void Drawing::band(const Band& band) {
  if (band.x.empty()) {
    return;
  }
  put("<path class=\"band t{}{}\" d=\"M", tone_number(band.tone), band.strong ? " strong" : "");
  for (std::size_t i = 0; i < band.x.size(); ++i) {
    put("{}{:.1f},{:.1f}", i == 0 ? "" : "L", x_.px(band.x[i]), y_.px(band.high[i]));
  }
  for (std::size_t i = band.x.size(); i-- > 0;) {
    put("L{:.1f},{:.1f}", x_.px(band.x[i]), y_.px(band.low[i]));
  }
  text_ += "Z\"/>";
}

void Drawing::line(const Line& line) {
  bool pen_down = false;
  std::string path;
  for (const Point& point : line.points) {
    const bool drawable = std::isfinite(point.x) && std::isfinite(point.y);
    if (drawable) {
      fmt::format_to(std::back_inserter(path), "{}{:.1f},{:.1f}{}", pen_down ? "L" : "M", x_.px(point.x),
                     y_.px(point.y), pen_down ? "" : "h0");  // A point alone is a dot.
    }
    pen_down = drawable;
  }
  if (path.empty()) {
    return;
  }
  put("<path class=\"line t{}{}\" d=\"{}\"/>", tone_number(line.tone), line.dashed ? " dashed" : "", path);
  if (!line.dots) {
    return;
  }
  for (const Point& point : line.points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) {
      put("<circle class=\"dot t{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}: {} at "
          "{}</title></circle>",
          tone_number(line.tone), x_.px(point.x), y_.px(point.y), escaped(line.label), short_number(point.y),
          short_number(point.x));
    }
  }
}

void Drawing::marks() {
  for (std::size_t i = 0; i < vertical_.size(); ++i) {
    const double x = x_.px(vertical_[i].at);
    const double label_bottom = kTop + kLabelRow * (vertical_labels_[i].row + 1) - 3;
    put("<path class=\"mark t{}\" d=\"M{:.1f},{:.1f}V{:.1f}\"/>", tone_number(vertical_[i].tone), x,
        label_bottom - 10, bottom_);
  }
  for (std::size_t i = 0; i < vertical_.size(); ++i) {
    const double label_bottom = kTop + kLabelRow * (vertical_labels_[i].row + 1) - 3;
    put("<text class=\"ink t{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", tone_number(vertical_[i].tone),
        vertical_labels_[i].left + 3, label_bottom - 1, escaped(vertical_[i].label));
  }
  for (const Mark& mark : figure_.marks) {
    if (mark.horizontal) {
      const double y = y_.px(mark.at);
      put("<path class=\"mark t{}\" d=\"M{:.1f},{:.1f}H{:.1f}\"/>", tone_number(mark.tone), left_, y, right_);
      put("<text class=\"ink t{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", tone_number(mark.tone), left_ + 6,
          y < top_ + 16 ? y + 14 : y - 4, escaped(mark.label));
    }
  }
}

std::string Drawing::draw(std::string_view name) {
  put("<svg class=\"{}\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", name, size_.width,
      size_.height, escaped(figure_.title));
  if (!has_data_) {
    put("<text class=\"name mid\" x=\"{:.1f}\" y=\"{:.1f}\">No data</text></svg>", size_.width / 2,
        size_.height / 2);
    return std::move(text_);
  }
  spans();
  axes();
  if (has_columns()) {
    category_axis();
    columns();
  }
  if (has_rows()) {
    interval_rows();
  }
  for (const Band& each : figure_.bands) {
    band(each);
  }
  for (const Line& each : figure_.lines) {
    line(each);
  }
  marks();
  text_ += "</svg>";
  return std::move(text_);
}

}  // namespace

std::string figure_svg(const Figure& figure, FigureSize size, std::string_view name) {
  return Drawing(figure, size).draw(name);
}

std::string short_number(double value) {
  if (!std::isfinite(value)) {
    return "n/a";
  }
  const double size = std::abs(value);
  const int digits = size == 0 ? 0 : std::clamp(2 - static_cast<int>(std::floor(std::log10(size))), 0, 6);
  std::string text = with_groups(fmt::format("{:.{}f}", value, digits));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') {
      text.pop_back();
    }
  }
  return text;
}

}  // namespace kneepoint::sim
