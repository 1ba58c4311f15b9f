// Uses an installed Kneepoint from outside: a trace is simulated, the median TTFT printed.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "sim/metrics.h"
#include "sim/options.h"
#include "sim/simulation.h"

namespace boost {  // What a broken invariant does is the program's to say.
void assertion_failed_msg(char const*, char const* msg, char const*, char const*, long) {
  std::fprintf(stderr, "%s\n", msg);
  std::abort();
}
void assertion_failed(char const* e, char const* f, char const* n, long l) { assertion_failed_msg(e, e, f, n, l); }
}  // namespace boost

int main(int, char** argv) {
  kneepoint::sim::pb::RunConfig asked;
  asked.set_trace(argv[1]);
  const kneepoint::sim::RunConfig config = kneepoint::sim::resolve(asked);
  kneepoint::sim::Metrics metrics(config);
  std::vector<kneepoint::sim::RunObserver*> observers{&metrics};
  const auto result = kneepoint::sim::simulate(config, observers);
  std::printf("median TTFT %.2f ms\n", metrics.finish(result.summary).ttft.median_ms);
}
