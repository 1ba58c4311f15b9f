#include "hw/forms_elementwise.h"

#include <array>

namespace kneepoint::hw {

namespace {
using P = ElementwiseParams;
constexpr std::array<ParameterSpec<P>, 2> kParameters{{
    {"launch", "us", &P::launch_us, 0.5, 5, 1.5, "kernel start and end"},
    {"bandwidth", "1", &P::bandwidth, 0.3, 1, 0.85, "share of nominal memory bandwidth reached"},
}};
}  // namespace

std::span<const ParameterSpec<ElementwiseParams>> elementwise_parameters() {
  return kParameters;
}

double elementwise_us(double bytes, const ElementwiseParams& params, const Roof& roof) {
  return params.launch_us + bytes / (params.bandwidth * roof.bytes_per_us);
}

}  // namespace kneepoint::hw
