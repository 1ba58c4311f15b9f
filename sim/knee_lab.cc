#include "sim/knee_lab.h"

#include <tbb/enumerable_thread_specific.h>
#include <tbb/info.h>

#include <algorithm>
#include <array>
#include <boost/assert.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/client.h"
#include "sim/on_cores.h"
#include "sim/simulation.h"

namespace kneepoint::sim {

struct KneeLab::Threads {
  tbb::enumerable_thread_specific<std::unique_ptr<hw::StepTimeModel>> times;
};

KneeLab::KneeLab(Setup setup)
    : setup_(std::move(setup)), threads_(std::make_unique<Threads>()), requests_(setup_.seeds) {
  std::unique_ptr<hw::StepTimeModel>& times = threads_->times.local();
  times = setup_.make_times();
  front_end_ns_ = (times->front_end().arrival + times->front_end().output).count();
  time_provenance_ = times->provenance();
  setup_.config.client.request_rate.reset();
  setup_.config.engine.walk_decodes |= setup_.keep_gaps;  // Gaps need every token told.
}

KneeLab::~KneeLab() = default;

void KneeLab::for_each(std::size_t count, const std::function<void(std::size_t)>& job) {
  // More threads than cores would only wait for each other.
  const int threads = std::min(setup_.threads, tbb::info::default_concurrency());
  for_each_on_cores(static_cast<std::int64_t>(count), threads,
                    [&](std::int64_t i) { job(static_cast<std::size_t>(i)); });
}

void KneeLab::prepare(std::int64_t n) {
  const bool enough =
      setup_.axis == LoadAxis::kConcurrency && n < prepared_;  // All at once: any prefix will do.
  if (n == prepared_ || enough) {
    return;
  }
  for_each(setup_.seeds, [&](std::size_t seed) {
    requests_[seed] = setup_.workload.requests(setup_.first_seed + seed, n);
  });
  prepared_ = n;
}

RunLog KneeLab::run(const RunOrder& order) {
  const bool closed = setup_.axis == LoadAxis::kConcurrency;
  BOOST_ASSERT(order.requests <= prepared_ && order.load > 0);
  std::unique_ptr<Client> client = std::make_unique<OpenLoopClient>(std::make_unique<LoadedWorkload>(
      requests_[order.seed], order.requests, closed ? std::numeric_limits<double>::infinity() : order.load));
  RunConfig config = setup_.config;
  config.client.max_concurrency.reset();
  if (closed) {
    config.client.max_concurrency = std::llround(order.load);
    client = std::make_unique<SemaphoreClient>(std::move(client), *config.client.max_concurrency);
  }
  RunLog log;
  log.load = order.load;
  log.seed = order.seed;
  log.requests = order.requests;
  RunLogger logger(log, setup_.keep_gaps, order.stop);
  const std::array<RunObserver*, 1> observers{&logger};
  std::unique_ptr<hw::StepTimeModel>& times = threads_->times.local();
  if (times == nullptr) {
    times = setup_.make_times();
  }
  logger.finish(simulate(config, *client, *times, &logger.stop(), observers).summary);
  ++runs_;
  simulated_requests_ += order.requests;
  if (setup_.on_run) {
    setup_.on_run();
  }
  return log;
}

std::vector<RunLog> KneeLab::run_all(std::span<const RunOrder> orders) {
  std::vector<RunLog> logs(orders.size());
  for_each(orders.size(), [&](std::size_t i) { logs[i] = run(orders[i]); });
  return logs;
}

}  // namespace kneepoint::sim
