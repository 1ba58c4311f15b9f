// The main page: what a simulation is made of, and in which order.
//
//     trace ─► workload ─► client ─► event loop ◄─► server (engine + step times)
//                                        │
//                                        ▼ observers: metrics, step log, progress
//
// To follow one request, read on in this order: sim/client.h (when it is sent),
// sim/event_loop.h (its way through the run), engine/scheduler.h and
// engine/vllm_v1.cc (which step computes what of it), sim/server.cc (when that
// step begins and ends), hw/step_time_model.h (why it takes so long),
// sim/metrics.h (what becomes of its time stamps).
#include "sim/simulation.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "hw/deployment.h"
#include "hw/measured_step.h"
#include "sim/client.h"
#include "sim/content_keys.h"
#include "sim/event_loop.h"
#include "sim/workload.h"

namespace kneepoint::sim {
namespace {

// Who sends what when: the trace's times or drawn ones, all at their times or so
// many at once. The trace stays readable through `trace`.
std::unique_ptr<Client> make_client(const RunConfig& config, TraceWorkload*& trace) {
  auto from_trace = std::make_unique<TraceWorkload>(config);
  trace = from_trace.get();
  std::unique_ptr<Workload> workload = std::move(from_trace);
  if (config.client.request_rate) {
    workload = std::make_unique<RatedWorkload>(std::move(workload), trace->info().num_records,
                                               *config.client.request_rate, config.client.burstiness, config.seed);
  }
  std::unique_ptr<Client> client = std::make_unique<OpenLoopClient>(std::move(workload));
  if (config.client.max_concurrency) {
    client = std::make_unique<SemaphoreClient>(std::move(client), *config.client.max_concurrency);
  }
  return client;
}

}  // namespace

std::unique_ptr<hw::StepTimeModel> make_step_times(const RunConfig& config) {
  if (!config.server_file.empty()) {
    return hw::make_measured_step_time_model(hw::load_server(config.server_file));
  }
  return hw::make_step_time_model(config.deployment, config.rates_file);
}

SimulationResult simulate(const RunConfig& config, std::span<RunObserver* const> observers) {
  TraceWorkload* trace = nullptr;
  const std::unique_ptr<Client> client = make_client(config, trace);
  SimulationResult result = simulate(config, *client, observers);
  result.num_requests = trace->info().num_records;
  result.trace_source = trace->info().source;
  result.trace_sha256 = trace->sha256();
  return result;
}

SimulationResult simulate(const RunConfig& config, Client& client, std::span<RunObserver* const> observers) {
  return simulate(config, client, *make_step_times(config), nullptr, observers);
}

SimulationResult simulate(const RunConfig& config, Client& client, const hw::StepTimeModel& times,
                          const StopSignal* stop, std::span<RunObserver* const> observers) {
  BOOST_ASSERT_MSG(config.engine.walk_decodes ||
                       std::ranges::none_of(observers, [](RunObserver* o) { return o->wants_every_token(); }),
                   "an observer of every token, in a run that tells tokens together");
  ContentKeys keys(config.engine.block_size);
  const std::unique_ptr<engine::Scheduler> engine = engine::find_scheduler(config.scheduler)->make(config.engine, keys);
  const bool measured = !config.server_file.empty();  // Its times include what padding costs.
  const hw::GraphSizes graphs(config.deployment);

  EventLoop loop(config, {.client = client,
                          .engine = *engine,
                          .keys = keys,
                          .times = times,
                          .graphs = measured ? nullptr : &graphs,
                          .observers = std::vector<RunObserver*>(observers.begin(), observers.end()),
                          .stop = stop});
  SimulationResult result;
  result.summary = loop.run();
  result.time_provenance = times.provenance();
  return result;
}

}  // namespace kneepoint::sim
