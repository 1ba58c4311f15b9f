#include "tests/support/shared_data.h"

#include <cstdlib>

namespace kneepoint::testing_support {

namespace fs = std::filesystem;

fs::path test_file(std::string_view relative) {
  return fs::path(KNEEPOINT_SOURCE_DIR) / "tests" / relative;
}

std::optional<fs::path> shared_file(std::string_view relative) {
  const char* elsewhere = std::getenv("KNEEPOINT_SHARED");
  const fs::path root = elsewhere != nullptr ? fs::path(elsewhere)
                                             : fs::path(KNEEPOINT_SOURCE_DIR).parent_path() / "shared";
  fs::path file = root / relative;
  if (!fs::exists(file)) {
    return std::nullopt;
  }
  return file;
}

}  // namespace kneepoint::testing_support
