// Clocks, power and why the GPU is slowed down, from the driver's management library.
// Loaded at run time: it comes with the driver, and its header need not be installed.
//
// Source  NVIDIA, "NVML API Reference", structs and bit masks of clocks event reasons.
#pragma once

#include <memory>
#include <string>

#include "calibrate/microbench/device.h"

namespace kneepoint::microbench {

class Nvml {
 public:
  /// Of the GPU with this PCI bus id ("0000:1b:00.0"). Null if the library or the GPU
  /// is not there; `why` then says so.
  [[nodiscard]] static std::unique_ptr<Nvml> open(const std::string& pci_bus_id, std::string& why);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Driver version, clocks, power limits, ECC.
  void add_facts(DeviceFacts& facts) const;
  [[nodiscard]] ClockState clocks() const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace kneepoint::microbench
