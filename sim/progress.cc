#include "sim/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace kneepoint::sim {
namespace {

constexpr std::chrono::milliseconds kBetweenDraws(200);
constexpr std::size_t kBarWidth = 24;

std::function<void(const std::string&)> terminal() {
  const char* const kind = std::getenv("TERM");
  if (::isatty(STDERR_FILENO) == 0 || kind == nullptr || std::string_view(kind) == "dumb") {
    return nullptr;
  }
  return [](const std::string& line) {
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  };
}

std::string time_left(double seconds) {
  const std::int64_t s = std::llround(seconds);
  if (s < 60) {
    return fmt::format("{} s left", s);
  }
  return s < 3600 ? fmt::format("{}:{:02} min left", s / 60, s % 60)
                  : fmt::format("{}:{:02} h left", s / 3600, s / 60 % 60);
}

}  // namespace

Progress::Progress(std::uint64_t num_requests, std::string what)
    : Progress(num_requests, terminal(), &Clock::now, std::move(what)) {}

Progress::Progress(std::uint64_t num_requests, std::function<void(const std::string&)> draw,
                   std::function<Clock::time_point()> now, std::string what)
    : num_requests_(num_requests),
      what_(std::move(what)),
      draw_(std::move(draw)),
      now_(std::move(now)),
      start_(now_()),
      next_draw_(start_ + kBetweenDraws) {}

Progress::~Progress() {
  clear();
}

void Progress::on_request_end(const RequestRecord&) {
  one_over();
}

void Progress::one_over() {
  ++over_;
  if (!draw_) {
    return;
  }
  const Clock::time_point now = now_();
  if (now < next_draw_) {
    return;
  }
  next_draw_ = now + kBetweenDraws;
  drawn_ = true;
  if (num_requests_ == 0) {
    draw_(fmt::format("\r\033[K{} {}", over_, what_));
    return;
  }
  const double share = std::min(1.0, static_cast<double>(over_) / static_cast<double>(num_requests_));
  const auto full = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  draw_(fmt::format("\r\033[K[{:#<{}}{:.<{}}] {:3.0f} %  {} of {} {}, {}", "", full, "",
                    kBarWidth - full, 100 * share, over_, num_requests_, what_,
                    time_left(elapsed * (1 - share) / share)));
}

void Progress::clear() {
  if (drawn_) {
    draw_("\r\033[K");
    drawn_ = false;
  }
}

}  // namespace kneepoint::sim
