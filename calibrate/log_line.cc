#include "calibrate/log_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace kneepoint::calibrate {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

// A number at the front of `text`, taken off it. Thousands separators as in
// "19,200 tokens" are accepted between digits.
template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  text = trim(text);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// Two digits at `at`, or -1.
std::int64_t two_digits(std::string_view text, std::size_t at) {
  if (at + 2 > text.size() || !is_digit(text[at]) || !is_digit(text[at + 1])) return -1;
  return (text[at] - '0') * 10 + (text[at + 1] - '0');
}

// "(EngineCore_DP1 pid=37) " anywhere in front of the level; innermost last, as
// Ray nests them.
void read_process(std::string_view prefix, LogLine& out) {
  std::size_t pid_at = prefix.find(" pid=");
  std::size_t bracket = std::string_view::npos;
  while (pid_at != std::string_view::npos) {
    const std::size_t open = prefix.rfind('(', pid_at);
    if (open != std::string_view::npos) {
      bracket = open;
      const std::string_view name = prefix.substr(open + 1, pid_at - open - 1);
      std::string_view digits = prefix.substr(pid_at + 5);
      out.pid = take_number<std::int64_t>(digits).value_or(-1);
      if (name.starts_with("APIServer") || name.starts_with("ApiServer")) {
        out.process = LogProcess::kApiServer;
      } else if (name.starts_with("EngineCore") || name.starts_with("DPEngineCore")) {
        out.process = LogProcess::kEngineCore;
      } else {
        out.process = LogProcess::kOther;
      }
      const std::size_t dp = name.find("_DP");
      if (dp != std::string_view::npos) {
        std::string_view rank = name.substr(dp + 3);
        out.rank = take_number<std::int64_t>(rank).value_or(-1);
      }
    }
    pid_at = prefix.find(" pid=", pid_at + 5);
  }
  const std::string_view foreign = prefix.substr(0, std::min(bracket, prefix.size()));
  const std::size_t bar = foreign.find(" | ");
  if (bar != std::string_view::npos) {
    const std::string_view name = trim(foreign.substr(0, bar));
    // A name, not a time stamp of the log collector.
    if (!name.empty() && std::isalpha(static_cast<unsigned char>(name.front())) != 0 &&
        name.find(' ') == std::string_view::npos) {
      out.stream = name;
    }
  }
}

// Where "INFO 07-09 17:13:55 " begins; npos if nowhere.
std::size_t find_level(std::string_view line, std::size_t& level_length) {
  constexpr std::array<std::string_view, 5> kLevels{"INFO ", "WARNING ", "ERROR ", "DEBUG ", "CRITICAL "};
  std::size_t best = std::string_view::npos;
  for (const std::string_view level : kLevels) {
    for (std::size_t at = line.find(level); at != std::string_view::npos; at = line.find(level, at + 1)) {
      if (parse_stamp(line.substr(at + level.size()))) {
        if (at < best) {
          best = at;
          level_length = level.size();
        }
        break;
      }
    }
  }
  return best;
}

}  // namespace

std::optional<std::int64_t> parse_stamp(std::string_view text) {
  // MM-DD HH:MM:SS
  if (text.size() < 14 || text[2] != '-' || text[5] != ' ' || text[8] != ':' || text[11] != ':')
    return std::nullopt;
  const std::int64_t month = two_digits(text, 0), day = two_digits(text, 3);
  const std::int64_t hour = two_digits(text, 6), minute = two_digits(text, 9), second = two_digits(text, 12);
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
      second < 0 || second > 60) {
    return std::nullopt;
  }
  constexpr std::array<std::int64_t, 12> kDaysBefore{0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335};
  const std::int64_t days = kDaysBefore[static_cast<std::size_t>(month - 1)] + day - 1;
  return ((days * 24 + hour) * 60 + minute) * 60 + second;
}

LogLine parse_log_line(std::string_view line) {
  LogLine out;
  std::size_t level_length = 0;
  const std::size_t level = find_level(line, level_length);
  if (level == std::string_view::npos) {
    const std::size_t close = line.rfind(") ");
    const std::size_t pid = line.find(" pid=");
    if (pid != std::string_view::npos && close != std::string_view::npos && pid < close) {
      const std::size_t end = line.find(") ", pid);
      read_process(line.substr(0, end), out);
      out.text = trim(line.substr(end + 2));
    } else {
      read_process(line.substr(0, std::min<std::size_t>(line.size(), 80)), out);
      out.text = trim(line);
    }
    return out;
  }
  read_process(line.substr(0, level), out);
  std::string_view rest = line.substr(level + level_length);
  out.stamp = parse_stamp(rest);
  rest.remove_prefix(14);
  rest = trim(rest);
  if (rest.starts_with('[')) {  // [core.py:359]
    const std::size_t close = rest.find(']');
    if (close != std::string_view::npos) rest.remove_prefix(close + 1);
  }
  out.text = trim(rest);
  return out;
}

namespace {

// "Engine 003: " in front of a message.
std::int64_t rank_of(const LogLine& line, std::string_view before) {
  const std::size_t at = before.rfind("Engine ");
  if (at != std::string_view::npos) {
    std::string_view digits = before.substr(at + 7);
    if (const auto rank = take_number<std::int64_t>(digits)) return *rank;
  }
  return std::max<std::int64_t>(line.rank, 0);
}

double seconds_in(std::string_view unit) {
  unit = trim(unit);
  if (unit == "ms" || unit.empty()) return 1e-3;
  if (unit == "s") return 1.0;
  if (unit == "us" || unit == "µs") return 1e-6;
  return std::nan("");
}

// Calls visit(part) for each part between commas that are followed by a blank.
template <typename Visit>
void for_each_part(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t comma = text.find(", ");
    visit(trim(text.substr(0, comma)));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 2);
  }
}

std::string field_name(std::string_view part) {
  std::string name;
  for (const char c : part) {
    if (!is_digit(c) && c != '.' && c != '%') name.push_back(c);
  }
  return std::string(trim(name));
}

std::optional<double> percentage(std::string_view part) {
  const std::size_t colon = part.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view value = part.substr(colon + 1);
  const auto number = take_number<double>(value);
  if (!number || !value.starts_with('%')) return std::nullopt;
  return *number / 100.0;
}

bool is_share(const std::optional<double>& value) {
  return !value || (std::isfinite(*value) && *value >= 0 && *value <= 1.0);
}

}  // namespace

LineResult parse_iteration(const LogLine& line, IterationLine& out,
                           std::map<std::string, std::int64_t>& unknown) {
  const std::size_t at = line.text.find("Iteration(");
  if (at == std::string_view::npos) return LineResult::kOtherKind;
  std::string_view rest = line.text.substr(at + 10);
  const auto iteration = take_number<std::int64_t>(rest);
  if (!iteration || !rest.starts_with("):")) return LineResult::kCutShort;
  out = IterationLine{};
  out.rank = rank_of(line, line.text.substr(0, at));
  out.stamp = line.stamp;
  out.iteration = *iteration;
  std::optional<std::int64_t> counts[4];
  std::optional<double> elapsed;
  bool absurd = false;
  for_each_part(rest.substr(2), [&](std::string_view part) {
    constexpr std::array<std::string_view, 4> kCounts{"context requests", "context tokens",
                                                      "generation requests", "generation tokens"};
    std::string_view after = part;
    const auto count = take_number<std::int64_t>(after);
    const auto* known = std::find(kCounts.begin(), kCounts.end(), trim(after));
    if (count && known != kCounts.end()) {
      counts[known - kCounts.begin()] = *count;
    } else if (part.starts_with("iteration elapsed time:")) {
      std::string_view value = part.substr(part.find(':') + 1);
      if (const auto number = take_number<double>(value)) elapsed = *number * seconds_in(value);
    } else if (part.ends_with('%') && part.find("KV cache usage:") != std::string_view::npos) {
      out.kv_usage = percentage(part);
      absurd = absurd || !out.kv_usage;
    } else if (part.find("KV cache usage") == std::string_view::npos) {
      ++unknown[field_name(part)];
    }
  });
  if (!counts[0] || !counts[1] || !counts[2] || !counts[3] || !elapsed) return LineResult::kCutShort;
  out.context_requests = *counts[0];
  out.context_tokens = *counts[1];
  out.generation_requests = *counts[2];
  out.generation_tokens = *counts[3];
  out.elapsed_s = *elapsed;
  absurd = absurd || *iteration < 0 || *counts[0] < 0 || *counts[2] < 0 || *counts[1] < *counts[0] ||
           *counts[3] < *counts[2] || !std::isfinite(*elapsed) || *elapsed < 0 || !is_share(out.kv_usage);
  return absurd ? LineResult::kAbsurd : LineResult::kRead;
}

LineResult parse_stats(const LogLine& line, StatsLine& out, std::map<std::string, std::int64_t>& unknown) {
  const std::size_t at = line.text.find("Avg prompt throughput:");
  if (at == std::string_view::npos) return LineResult::kOtherKind;
  out = StatsLine{};
  out.rank = rank_of(line, line.text.substr(0, at));
  out.stamp = line.stamp;
  std::optional<double> values[4];
  for_each_part(line.text.substr(at), [&](std::string_view part) {
    constexpr std::array<std::string_view, 4> kNames{"Avg prompt throughput", "Avg generation throughput",
                                                     "Running", "Waiting"};
    const std::size_t colon = part.find(':');
    const std::string_view name = part.substr(0, colon);
    const auto* known = std::find(kNames.begin(), kNames.end(), name);
    if (colon != std::string_view::npos && known != kNames.end()) {
      std::string_view value = part.substr(colon + 1);
      values[known - kNames.begin()] = take_number<double>(value);
    } else if (name.ends_with("KV cache usage")) {
      out.kv_usage = percentage(part);
    } else if (name == "Prefix cache hit rate") {
      out.prefix_hit_rate = percentage(part);
    } else {
      ++unknown[field_name(part)];
    }
  });
  if (!values[0] || !values[1] || !values[2] || !values[3]) return LineResult::kCutShort;
  for (const auto& value : values) {
    if (!std::isfinite(*value) || *value < 0) return LineResult::kAbsurd;
  }
  out.prompt_tokens_per_s = *values[0];
  out.generation_tokens_per_s = *values[1];
  out.running = std::llround(*values[2]);
  out.waiting = std::llround(*values[3]);
  return is_share(out.kv_usage) && is_share(out.prefix_hit_rate) ? LineResult::kRead : LineResult::kAbsurd;
}

namespace {

std::string unquoted(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  return std::string(text);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> split_python_pairs(std::string_view text, char separator,
                                                                    bool& complete) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::size_t part_begin = 0;
  std::size_t separator_at = std::string_view::npos;
  int depth = 0;
  char quote = 0;
  const auto close_part = [&](std::size_t end) {
    if (separator_at != std::string_view::npos) {
      pairs.emplace_back(unquoted(text.substr(part_begin, separator_at - part_begin)),
                         unquoted(text.substr(separator_at + 1, end - separator_at - 1)));
    }
    separator_at = std::string_view::npos;
    part_begin = end + 1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\') {
        ++i;
      } else if (c == quote) {
        quote = 0;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    } else if (depth == 0 && c == ',') {
      close_part(i);
    } else if (depth == 0 && c == separator && separator_at == std::string_view::npos) {
      separator_at = i;
    }
  }
  close_part(text.size());
  complete = depth == 0 && quote == 0;
  return pairs;
}

}  // namespace kneepoint::calibrate
