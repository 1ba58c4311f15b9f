#include "sim/step_log.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>

namespace kneepoint::sim {
namespace {

// "01-01 00:00:37": the log has no year, and 2000 has a 29 February.
void append_stamp(std::string& line, SimTime time) {
  using namespace std::chrono;
  const sys_time<nanoseconds> stamp = sys_days(year(2000) / January / 1) + time.time_since_epoch();
  const sys_days day = floor<days>(stamp);
  const year_month_day date(day);
  const hh_mm_ss clock(floor<seconds>(stamp - day));
  fmt::format_to(std::back_inserter(line), "{:02}-{:02} {:02}:{:02}:{:02}",
                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                 clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

}  // namespace

void StepLog::on_step(const StepRecord& step) {
  iteration_ = iteration_ < 0 ? step.step : iteration_ + 1;
  line_ = "INFO ";
  append_stamp(line_, step.end);
  fmt::format_to(
      std::back_inserter(line_),
      " [loggers.py:199] Engine 000: Iteration({}): {} context requests, {} context tokens, {} generation "
      "requests, {} generation tokens, iteration elapsed time: {:.2f} ms, GPU KV cache usage: {:.1f}%\n",
      iteration_, step.context_requests, step.context_tokens, step.generation_requests, step.generation_tokens,
      to_ms(step.end - step.begin), 100 * step.kv_usage);
  file_.write(line_);
}

}  // namespace kneepoint::sim
