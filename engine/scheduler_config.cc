#include "engine/scheduler_config.h"

namespace kneepoint::engine {

std::int64_t batches_in_flight(const SchedulerConfig& config) {
  if (config.depth) {
    return *config.depth;
  }
  const std::int64_t pp = config.pipeline_parallel_size;
  if (!config.async_scheduling) {
    return pp;
  }
  if (config.use_v2_model_runner) {
    return pp + 1;
  }
  return pp == 1 ? 2 : pp;
}

}  // namespace kneepoint::engine
