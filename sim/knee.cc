#include "sim/knee.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace kneepoint::sim {

const char* load_unit(LoadAxis axis) {
  return axis == LoadAxis::kRate ? "req/s" : "requests in flight";
}

const char* knee_name(KneeKind kind) {
  constexpr std::array kNames{"SLO", "elbow", "saturation"};
  return kNames[static_cast<std::size_t>(kind)];
}

const char* knee_status_name(KneeStatus status) {
  constexpr std::array kNames{"found", "below the range", "above the range", "none"};
  return kNames[static_cast<std::size_t>(status)];
}

const char* resource_name(Resource resource) {
  constexpr std::array kNames{
      "KV blocks", "token budget",    "max_num_seqs", "memory bandwidth",     "compute",
      "network",   "kernel launches", "CPU",          "the arrivals' bursts", "other"};
  return kNames[static_cast<std::size_t>(resource)];
}

double Knee::half_width() const {
  return std::hypot(arrivals_half_width, step_time_half_width);
}
double Knee::lower() const {
  return std::max(0.0, load - half_width());
}
double Knee::upper() const {
  return load + half_width();
}

double StepTimeError::total() const {
  return std::hypot(model, drift);
}

const Knee* KneeResult::find(KneeKind kind) const {
  const auto found =
      std::find_if(knees.begin(), knees.end(), [&](const Knee& knee) { return knee.kind == kind; });
  return found == knees.end() ? nullptr : &*found;
}

const Knee* KneeResult::headline() const {
  for (const KneeKind kind : {KneeKind::kSlo, KneeKind::kSaturation}) {
    const Knee* knee = find(kind);
    if (knee != nullptr && knee->found()) {
      return knee;
    }
  }
  return nullptr;
}

}  // namespace kneepoint::sim
