// The real GPU behind device.h.
#pragma once

#include <memory>
#include <string>

#include "calibrate/microbench/device.h"

namespace kneepoint::microbench {

/// GPU number `index`. Takes most of its free memory. `notes` collects what is
/// missing (no NVML, no cuDNN). Throws DeviceError.
[[nodiscard]] std::unique_ptr<Device> open_cuda_device(int index, std::vector<std::string>& notes);

}  // namespace kneepoint::microbench
