// Where the recorded data lies that a user's clone does not have.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace kneepoint::testing_support {

/// Path of `relative` below the project's own tests/ folder. Always there.
[[nodiscard]] std::filesystem::path test_file(std::string_view relative);

/// Path of `relative` below ../shared, or nothing if this clone stands alone.
/// The environment variable KNEEPOINT_SHARED names another place.
[[nodiscard]] std::optional<std::filesystem::path> shared_file(std::string_view relative);

}  // namespace kneepoint::testing_support

/// Skips the running test, saying which file is missing, or defines `name` as its path.
#define KNEEPOINT_SHARED_OR_SKIP(name, relative)                                    \
  const auto name##_found = ::kneepoint::testing_support::shared_file(relative);    \
  if (!name##_found) GTEST_SKIP() << "needs ../shared/" << (relative);              \
  const std::filesystem::path& name = *name##_found
