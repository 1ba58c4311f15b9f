#include <algorithm>
#include <array>

#include "engine/scheduler.h"
#include "engine/vllm_v1.h"

namespace kneepoint::engine {

namespace {

constexpr std::array kSchedulers{
    SchedulerRow{"vllm-v1", "vLLM 0.32: running requests first, then waiting ones, prompts in chunks",
                 &make_vllm_v1},
};
static_assert(std::ranges::is_sorted(kSchedulers, {}, &SchedulerRow::name));

}  // namespace

std::span<const SchedulerRow> schedulers() {
  return kSchedulers;
}

const SchedulerRow* find_scheduler(std::string_view name) {
  const auto row = std::ranges::find(kSchedulers, name, &SchedulerRow::name);
  return row == kSchedulers.end() ? nullptr : &*row;
}

}  // namespace kneepoint::engine
