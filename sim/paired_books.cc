#include "sim/paired_books.h"

#include <fmt/format.h>

#include <boost/assert.hpp>
#include <string>

namespace kneepoint::sim {

std::vector<AuditLine> PairedBooks::close(SimTime now, bool whole, std::int64_t free_blocks,
                                          std::int64_t usable_blocks) {
  client_time_ += since(now) * under_way_;
  std::vector<AuditLine> lines{
      {"requests", "sent", "over_or_unfinished", sent_, over_ + unfinished_},
      {"scheduled_tokens", "by_plan", "by_member", scheduled_, scheduled_by_member_},
      {"sampled_tokens", "by_step", "by_request", sampled_, sampled_by_request_},
      {"engine_time_ns", "number_over_time", "stays", engine_time_, engine_stays_},
      {"client_time_ns", "number_over_time", "stays", client_time_, client_stays_}};
  if (whole) {
    lines.push_back({"blocks", "free_at_end", "usable", unsigned_of(free_blocks), unsigned_of(usable_blocks)});
  }
  for (const AuditLine& line : lines) {
    const std::string what = fmt::format("PAIRED_ACCOUNTS: {}: {} {}, {} {}", line.total, line.one_way, line.first,
                                         line.other_way, line.second);
    BOOST_ASSERT_MSG(line.first == line.second, what.c_str());
  }
  return lines;
}

}  // namespace kneepoint::sim
