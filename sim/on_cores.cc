#include "sim/on_cores.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <vector>

namespace kneepoint::sim {
namespace {

namespace tbb = oneapi::tbb;

int threads_or_cores(int threads) {
  return threads > 0 ? threads : tbb::info::default_concurrency();
}

// Without it oneTBB would not go beyond the number of cores, whatever was asked for.
std::size_t at_least_cores(int threads) {
  return static_cast<std::size_t>(std::max(threads, tbb::info::default_concurrency()));
}

}  // namespace

void for_each_on_cores(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  const int wanted = threads_or_cores(threads);
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, at_least_cores(wanted));
  tbb::task_arena arena(wanted);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
  arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::int64_t>(0, count, 1),
        [&](const tbb::blocked_range<std::int64_t>& range) {
          for (std::int64_t i = range.begin(); i != range.end(); ++i) {
            try {
              work(i);
            } catch (...) {
              errors[static_cast<std::size_t>(i)] = std::current_exception();
            }
          }
        },
        tbb::simple_partitioner());
  });
  const auto first = std::find_if(errors.begin(), errors.end(), [](const auto& e) { return e != nullptr; });
  if (first != errors.end()) {
    std::rethrow_exception(*first);
  }
}

void run_workers(int threads, const std::function<void()>& worker) {
  const int wanted = threads_or_cores(threads);
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, at_least_cores(wanted));
  tbb::task_arena arena(wanted);
  arena.execute([&] {
    tbb::task_group group;
    for (int i = 0; i < wanted; ++i) {
      group.run(worker);
    }
    group.wait();
  });
}

}  // namespace kneepoint::sim
