#include "sim/request_record.h"

namespace kneepoint::sim {

std::string_view request_end_name(RequestEnd end) {
  static constexpr std::array<std::string_view, kNumRequestEnds> kNames{
      "length",         "stop",       "prompt_too_long", "queued_reqs_limit", "queued_tokens_limit",
      "client_timeout", "never_fits", "ignored"};
  return kNames[static_cast<std::size_t>(end)];
}

}  // namespace kneepoint::sim
