// What a broken invariant does in a test, a fuzzer or a benchmark: it stops.
#include <boost/assert.hpp>
#include <cstdio>
#include <cstdlib>

namespace boost {

void assertion_failed_msg(char const* expr, char const* msg, char const* function, char const* file, long line) {
  std::fprintf(stderr, "%s:%ld: %s: broken invariant: %s (%s)\n", file, line, function, msg, expr);
  std::abort();
}

void assertion_failed(char const* expr, char const* function, char const* file, long line) {
  assertion_failed_msg(expr, "assertion", function, file, line);
}

}  // namespace boost
