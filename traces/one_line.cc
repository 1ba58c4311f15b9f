#include "traces/one_line.h"

namespace kneepoint::traces {

std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 1000;
  std::string line(text.substr(0, kMost));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > kMost ? line + "..." : line;
}

}  // namespace kneepoint::traces
