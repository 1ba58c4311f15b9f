#include "traces/time_stamp.h"

#include <chrono>
#include <limits>

namespace kneepoint::traces {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int scale_of(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::kSeconds:
      return 9;
    case TimeUnit::kMilliseconds:
      return 6;
    case TimeUnit::kMicroseconds:
      return 3;
    case TimeUnit::kNanoseconds:
      return 0;
  }
  return 0;
}

// Exactly `count` digits off the front of `text`.
std::optional<int> take_digits(std::string_view& text, std::size_t count) {
  if (text.size() < count) return std::nullopt;
  int value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_digit(text[i])) return std::nullopt;
    value = 10 * value + (text[i] - '0');
  }
  text.remove_prefix(count);
  return value;
}

bool take_char(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// ".680590012" as nanoseconds; digits beyond the ninth are cut.
std::optional<std::int64_t> take_fraction(std::string_view& text) {
  if (!take_char(text, ".,")) return 0;
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  std::int64_t ns = 0;
  std::int64_t place = 100'000'000;
  for (; !text.empty() && is_digit(text.front()); text.remove_prefix(1), place /= 10) {
    ns += place * (text.front() - '0');
  }
  return ns;
}

// "Z", "+02:00", "-0530", "+01" or nothing, as seconds east of Greenwich.
std::optional<std::int64_t> take_zone(std::string_view text) {
  while (take_char(text, " ")) {
  }
  if (text.empty() || text == "Z" || text == "z" || text == "UTC") return 0;
  const bool west = text.front() == '-';
  if (!take_char(text, "+-")) return std::nullopt;
  const auto hours = take_digits(text, 2);
  if (!hours || *hours > 18) return std::nullopt;
  take_char(text, ":");
  const auto minutes = text.empty() ? std::optional<int>(0) : take_digits(text, 2);
  if (!minutes || *minutes > 59 || !text.empty()) return std::nullopt;
  const std::int64_t seconds = 3600 * *hours + 60 * *minutes;
  return west ? -seconds : seconds;
}

std::optional<TimeStamp> parse_date(std::string_view text) {
  const auto year = take_digits(text, 4);
  if (!year || !take_char(text, "-/")) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || !take_char(text, "-/")) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day || !take_char(text, " Tt")) return std::nullopt;
  const auto hour = take_digits(text, 2);
  if (!hour || !take_char(text, ":")) return std::nullopt;
  const auto minute = take_digits(text, 2);
  if (!minute || !take_char(text, ":")) return std::nullopt;
  const auto second = take_digits(text, 2);
  if (!second || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const auto fraction = take_fraction(text);
  const auto zone = take_zone(text);
  if (!fraction || !zone) return std::nullopt;
  using namespace std::chrono;
  const year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                            std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || *year < 1970 || *year > 2200) return std::nullopt;
  const std::int64_t seconds = sys_days(date).time_since_epoch().count() * std::int64_t{86400} +
                               3600 * *hour + 60 * *minute + *second - *zone;
  return TimeStamp{seconds * 1'000'000'000 + *fraction, true};
}

// How many digits a number has.
int digits_of(std::int64_t value) {
  int digits = 0;
  for (; value > 0; value /= 10) ++digits;
  return digits;
}

}  // namespace

std::optional<TimeUnit> parse_time_unit(std::string_view text) {
  if (text == "s") return TimeUnit::kSeconds;
  if (text == "ms") return TimeUnit::kMilliseconds;
  if (text == "us") return TimeUnit::kMicroseconds;
  if (text == "ns") return TimeUnit::kNanoseconds;
  return std::nullopt;
}

std::optional<std::int64_t> parse_scaled(std::string_view text, int scale) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::int64_t value = 0;
  bool any = false, after_point = false;
  for (; !text.empty(); text.remove_prefix(1)) {
    const char c = text.front();
    if (c == '.' && !after_point) {
      after_point = true;
    } else if (is_digit(c)) {
      any = true;
      if (value > (kMax - 9) / 10) {
        if (!after_point) return std::nullopt;
        continue;  // Far behind the point: below what can be told apart.
      }
      value = 10 * value + (c - '0');
      if (after_point) --scale;
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  if (take_char(text, "eE")) {
    const bool negative = !text.empty() && text.front() == '-';
    take_char(text, "+-");
    if (text.empty() || text.size() > 3) return std::nullopt;
    const auto exponent = take_digits(text, text.size());
    if (!exponent) return std::nullopt;
    scale += negative ? -*exponent : *exponent;
  }
  if (!text.empty()) return std::nullopt;
  for (; scale > 0 && value != 0; --scale) {
    if (value > kMax / 10) return std::nullopt;
    value *= 10;
  }
  for (; scale < 0 && value != 0; ++scale) value /= 10;
  return value;
}

std::optional<TimeStamp> parse_time(std::string_view text, std::optional<TimeUnit> unit) {
  if (text.size() > 10 && (text[4] == '-' || text[4] == '/')) return parse_date(text);
  bool absolute = false;
  TimeUnit used = unit.value_or(TimeUnit::kSeconds);
  const int digits = digits_of(parse_scaled(text, 0).value_or(0));
  if (!unit && digits >= 9) {
    absolute = true;
    used = digits <= 11   ? TimeUnit::kSeconds
           : digits <= 14 ? TimeUnit::kMilliseconds
           : digits <= 17 ? TimeUnit::kMicroseconds
                          : TimeUnit::kNanoseconds;
  }
  const auto ns = parse_scaled(text, scale_of(used));
  if (!ns) return std::nullopt;
  return TimeStamp{*ns, absolute};
}

}  // namespace kneepoint::traces
