// Independent pieces of work on all cores.
#pragma once

#include <cstdint>
#include <functional>

namespace kneepoint::sim {

/// Calls work(0) ... work(count - 1), in any order, on `threads` threads (0: one
/// per core this process may use) and returns when all are over. What work(i)
/// does must depend on i alone; then nothing depends on `threads`, and an
/// exception is that of the smallest i which threw.
void for_each_on_cores(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

/// Calls `worker` `threads` times (0: once per core), as far as there are threads at
/// the same time: each should work as long as there is work. If one throws, its
/// exception comes out when all have ended.
void run_workers(int threads, const std::function<void()>& worker);

}  // namespace kneepoint::sim
