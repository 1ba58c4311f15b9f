#include "engine/request.h"

namespace kneepoint::engine {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "STOP";
    case FinishReason::kLength:
      return "LENGTH";
    case FinishReason::kAborted:
      return "ABORT";
    case FinishReason::kIgnored:
      return "IGNORED";
  }
  return "";
}

}  // namespace kneepoint::engine
