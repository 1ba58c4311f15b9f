#include <algorithm>
#include <array>

#include "engine/orca.h"
#include "engine/sarathi.h"
#include "engine/scheduler.h"
#include "engine/vllm_v0.h"
#include "engine/vllm_v1.h"

namespace kneepoint::engine {

namespace {

constexpr std::array kSchedulers{
    SchedulerRow{"orca", "by iteration: whole prompts, room for the longest answer reserved up front", &make_orca},
    SchedulerRow{"sarathi", "decodes first, then one chunk of one prompt, up to the token budget", &make_sarathi},
    SchedulerRow{"vllm-v0", "vLLM before late 2025: whole prompts before any decode, watermark, swap or recompute",
                 &make_vllm_v0},
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
