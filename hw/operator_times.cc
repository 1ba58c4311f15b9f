#include "hw/operator_times.h"

#include <array>

namespace kneepoint::hw {

std::string_view confidence_name(Confidence confidence) {
  constexpr std::array<std::string_view, 3> kNames{"measured", "interpolated", "estimated"};
  return kNames[static_cast<std::size_t>(confidence)];
}

}  // namespace kneepoint::hw
