#include "sim/crash_context.h"

#include <fmt/format.h>

namespace kneepoint::sim {
namespace {

// Read by the assertion handler alone, which is handed no argument of ours.
thread_local const CrashContext* current = nullptr;

}  // namespace

CrashContext::CrashContext(std::uint64_t seed, const EventQueue& events)
    : seed_(seed), events_(events), outer_(current) {
  current = this;
}

CrashContext::~CrashContext() { current = outer_; }

std::string CrashContext::describe() {
  if (current == nullptr) {
    return "outside a run";
  }
  return fmt::format("seed {}, simulated time {:.9f} s, event {}", current->seed_, to_seconds(current->events_.now()),
                     current->events_.num_popped());
}

}  // namespace kneepoint::sim
