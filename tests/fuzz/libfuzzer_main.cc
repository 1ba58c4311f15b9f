// The entry of libFuzzer, and what a broken invariant does under it.
#include <boost/assert.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/fuzz_target.h"

namespace boost {

void assertion_failed_msg(char const* expr, char const* msg, char const* function, char const* file, long line) {
  std::fprintf(stderr, "%s:%ld: %s: broken invariant: %s (%s)\n", file, line, function, msg, expr);
  std::abort();
}

void assertion_failed(char const* expr, char const* function, char const* file, long line) {
  assertion_failed_msg(expr, "assertion", function, file, line);
}

}  // namespace boost

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kneepoint::fuzz::KNEEPOINT_FUZZ_TARGET({data, size});
  return 0;
}
