#include "sim/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/assert.hpp>
#include <cmath>
#include <cstdint>

namespace kneepoint::sim {
namespace {

constexpr double kLabelGap = 8;

// mantissa * 10^exponent, rounded once.
double decimal(std::int64_t mantissa, int exponent) {
  const double power = std::pow(10.0, std::abs(exponent));
  return exponent < 0 ? static_cast<double>(mantissa) / power : static_cast<double>(mantissa) * power;
}

std::string label_of(std::int64_t mantissa, int exponent) {
  return with_groups(fmt::format("{:.{}f}", decimal(mantissa, exponent), std::max(0, -exponent)));
}

struct Step {
  std::int64_t mantissa = 1;  // 1, 2 or 5.
  int exponent = 0;
  [[nodiscard]] double value() const { return decimal(mantissa, exponent); }
};

// The smallest round step of which no more than `at_most` - 1 cover the range.
Step step_for(double width, int at_most) {
  const double least = width / (at_most - 1);
  const int exponent = static_cast<int>(std::floor(std::log10(least)));
  for (const Step step : {Step{1, exponent}, Step{2, exponent}, Step{5, exponent}}) {
    if (step.value() >= least * (1 - 1e-9)) {
      return step;
    }
  }
  return {1, exponent + 1};
}

Range with_width(Range range, bool log) {
  if (range.high > range.low) {
    return range;
  }
  if (log) {
    return {range.low / 2, range.low * 2};
  }
  const double half = range.low == 0 ? 1 : std::abs(range.low) / 2;
  return {range.low == 0 ? 0 : range.low - half, range.low + half};
}

}  // namespace

std::string with_groups(std::string digits) {
  const std::size_t sign = digits.front() == '-' ? 1 : 0;
  for (std::size_t at = std::min(digits.find('.'), digits.size()); at > sign + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string with_groups(std::int64_t value) {
  return with_groups(fmt::format("{}", value));
}

std::vector<Tick> linear_ticks(Range range, int at_most) {
  BOOST_ASSERT(at_most >= 2);
  range = with_width(range, false);
  const Step step = step_for(range.high - range.low, at_most);
  const double slack = 1e-9 * (range.high - range.low);
  std::vector<Tick> ticks;
  for (auto i = static_cast<std::int64_t>(std::ceil((range.low - slack) / step.value()));
       decimal(i * step.mantissa, step.exponent) <= range.high + slack; ++i) {
    ticks.push_back({decimal(i * step.mantissa, step.exponent), label_of(i * step.mantissa, step.exponent)});
  }
  return ticks;
}

std::vector<Tick> log_ticks(Range range, int at_most) {
  BOOST_ASSERT(at_most >= 2 && range.low > 0);
  range = with_width(range, true);
  const int first = static_cast<int>(std::floor(std::log10(range.low)));
  const int last = static_cast<int>(std::ceil(std::log10(range.high)));
  static constexpr std::array<std::int64_t, 3> kFine{1, 2, 5};
  static constexpr std::array<std::int64_t, 2> kMiddle{1, 3};
  static constexpr std::array<std::int64_t, 1> kCoarse{1};
  std::vector<Tick> ticks;
  const auto fill = [&](const auto& mantissas, int decades) {
    ticks.clear();
    for (int exponent = first; exponent <= last; ++exponent) {
      if ((exponent % decades + decades) % decades != 0) {
        continue;
      }
      for (const std::int64_t mantissa : mantissas) {
        const double value = decimal(mantissa, exponent);
        if (value >= range.low * (1 - 1e-9) && value <= range.high * (1 + 1e-9)) {
          ticks.push_back({value, label_of(mantissa, exponent)});
        }
      }
    }
    return static_cast<int>(ticks.size()) <= at_most;
  };
  if (fill(kFine, 1) || fill(kMiddle, 1)) {
    // Within less than a factor of ten two round numbers may be too few to read a value off.
    return ticks.size() >= 3 ? ticks : linear_ticks(range, at_most);
  }
  for (int decades = 1; !fill(kCoarse, decades); ++decades) {
  }
  return ticks;
}

Range rounded_out(Range range, int at_most) {
  range = with_width(range, false);
  const double step = step_for(range.high - range.low, at_most).value();
  const double slack = 1e-9;
  return {std::floor(range.low / step + slack) * step, std::ceil(range.high / step - slack) * step};
}

Scale::Scale(Range range, bool log, double from_px, double to_px)
    : range_(with_width(range, log)), log_(log), from_px_(from_px), to_px_(to_px) {
  BOOST_ASSERT(!log || range_.low > 0);
}

double Scale::px(double value) const {
  const double inside = std::clamp(value, range_.low, range_.high);
  const double share = log_ ? std::log(inside / range_.low) / std::log(range_.high / range_.low)
                            : (inside - range_.low) / (range_.high - range_.low);
  return from_px_ + share * (to_px_ - from_px_);
}

double text_width(std::string_view text) {
  double width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) != 0x80U) {  // Not the rest of a character.
      width += c == ',' || c == '.' || c == ' ' || c == 'l' || c == 'i' ? 4.2 : 7.2;
    }
  }
  return width;
}

std::vector<PlacedLabel> place_labels(const std::vector<double>& at, const std::vector<double>& widths,
                                      Range room) {
  BOOST_ASSERT(at.size() == widths.size());
  std::vector<PlacedLabel> placed;
  std::vector<double> row_ends;  // Right edge of the newest label of each row.
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double left = std::max(room.low, std::min(at[i], room.high - widths[i]));
    std::size_t row = row_ends.size();
    while (row > 0 && row_ends[row - 1] + kLabelGap <= left) {
      --row;
    }
    row_ends.resize(std::max(row_ends.size(), row + 1));
    row_ends[row] = left + widths[i];
    placed.push_back({left, static_cast<int>(row)});
  }
  return placed;
}

}  // namespace kneepoint::sim
