#include "calibrate/microbench/nvml.h"

#include <dlfcn.h>

#include <array>

namespace kneepoint::microbench {

namespace {

using Status = int;  // 0 is success.
using Handle = void*;

constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kSensorGpu = 0;
constexpr double kMilli = 1e-3;

struct Reason {
  unsigned long long bit;
  const char* name;
};
// Idle (bit 0) is no reason: the clock is asked for between two kernels.
constexpr std::array kReasons{
    Reason{0x2, "application clocks"},    Reason{0x4, "power cap"},        Reason{0x8, "hardware slowdown"},
    Reason{0x10, "sync boost"},           Reason{0x20, "thermal"},         Reason{0x40, "hardware thermal"},
    Reason{0x80, "hardware power brake"}, Reason{0x100, "display clocks"},
};

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  Handle device = nullptr;
  Status (*init)() = nullptr;
  Status (*shutdown)() = nullptr;
  Status (*by_bus_id)(const char*, Handle*) = nullptr;
  Status (*driver_version)(char*, unsigned) = nullptr;
  Status (*clock)(Handle, int, unsigned*) = nullptr;
  Status (*max_clock)(Handle, int, unsigned*) = nullptr;
  Status (*reasons)(Handle, unsigned long long*) = nullptr;
  Status (*temperature)(Handle, int, unsigned*) = nullptr;
  Status (*power)(Handle, unsigned*) = nullptr;
  Status (*power_limit)(Handle, unsigned*) = nullptr;
  Status (*default_power_limit)(Handle, unsigned*) = nullptr;
  Status (*ecc)(Handle, int*, int*) = nullptr;
  bool initialised = false;

  ~Library() {
    if (initialised) shutdown();
    if (handle != nullptr) dlclose(handle);
  }

  bool find_all() {
    return find(handle, "nvmlInit_v2", init) && find(handle, "nvmlShutdown", shutdown) &&
           find(handle, "nvmlDeviceGetHandleByPciBusId_v2", by_bus_id) &&
           find(handle, "nvmlSystemGetDriverVersion", driver_version) &&
           find(handle, "nvmlDeviceGetClockInfo", clock) &&
           find(handle, "nvmlDeviceGetMaxClockInfo", max_clock) &&
           (find(handle, "nvmlDeviceGetCurrentClocksEventReasons", reasons) ||
            find(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", reasons)) &&
           find(handle, "nvmlDeviceGetTemperature", temperature) &&
           find(handle, "nvmlDeviceGetPowerUsage", power) &&
           find(handle, "nvmlDeviceGetEnforcedPowerLimit", power_limit) &&
           find(handle, "nvmlDeviceGetPowerManagementDefaultLimit", default_power_limit) &&
           find(handle, "nvmlDeviceGetEccMode", ecc);
  }
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::~Nvml() = default;

std::unique_ptr<Nvml> Nvml::open(const std::string& pci_bus_id, std::string& why) {
  auto library = std::make_unique<Library>();
  library->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) {
    why = "libnvidia-ml.so.1 cannot be loaded";
    return nullptr;
  }
  if (!library->find_all()) {
    why = "libnvidia-ml.so.1 lacks a function";
    return nullptr;
  }
  if (library->init() != 0) {
    why = "nvmlInit failed";
    return nullptr;
  }
  library->initialised = true;
  if (library->by_bus_id(pci_bus_id.c_str(), &library->device) != 0) {
    why = "NVML does not know the GPU " + pci_bus_id;
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(library)));
}

void Nvml::add_facts(DeviceFacts& facts) const {
  std::array<char, 128> version{};
  if (library_->driver_version(version.data(), version.size()) == 0) facts.driver_version = version.data();
  unsigned value = 0;
  if (library_->max_clock(library_->device, kClockSm, &value) == 0) facts.max_sm_clock_mhz = value;
  if (library_->power_limit(library_->device, &value) == 0) facts.power_limit_w = value * kMilli;
  if (library_->default_power_limit(library_->device, &value) == 0)
    facts.default_power_limit_w = value * kMilli;
  int now = 0;
  int next = 0;
  if (library_->ecc(library_->device, &now, &next) == 0) facts.ecc = now != 0;
}

ClockState Nvml::clocks() const {
  ClockState state;
  unsigned value = 0;
  if (library_->clock(library_->device, kClockSm, &value) == 0) state.sm_mhz = value;
  if (library_->clock(library_->device, kClockMemory, &value) == 0) state.memory_mhz = value;
  if (library_->temperature(library_->device, kSensorGpu, &value) == 0) state.temperature_c = value;
  if (library_->power(library_->device, &value) == 0) state.power_w = value * kMilli;
  unsigned long long reasons = 0;
  if (library_->reasons(library_->device, &reasons) != 0) return state;
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bit) != 0) state.throttle.emplace_back(reason.name);
  }
  return state;
}

}  // namespace kneepoint::microbench
