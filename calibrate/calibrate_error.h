// Wrong input found while measuring, fitting or reading a real run.
#pragma once

#include <stdexcept>

namespace kneepoint::calibrate {

/// One line: which file, which field or line, what to do.
struct CalibrateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace kneepoint::calibrate
