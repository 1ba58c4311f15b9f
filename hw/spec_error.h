// Wrong input found while reading a model, a GPU, rates or a deployment.
#pragma once

#include <stdexcept>

namespace kneepoint::hw {

/// One line: which file or option, which field, what to do.
struct SpecError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace kneepoint::hw
