// Wrong use of `simulate`: a flag, a configuration or an input that cannot be run.
#pragma once

#include <stdexcept>

namespace kneepoint::sim {

/// One line: which flag or file, what is wrong, what to do.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Options that are each right and cannot go together: a model larger than the
/// GPU, a scheduler without the feature. One run ends with it as with any wrong
/// use; where many combinations are tried it is the answer for this one.
struct CannotRun : UsageError {
  using UsageError::UsageError;
};

}  // namespace kneepoint::sim
