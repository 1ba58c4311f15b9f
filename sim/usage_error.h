// Wrong use of `simulate`: a flag, a configuration or an input that cannot be run.
#pragma once

#include <stdexcept>

namespace kneepoint::sim {

/// One line: which flag or file, what is wrong, what to do.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace kneepoint::sim
