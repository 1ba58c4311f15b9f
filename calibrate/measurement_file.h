// A file of gpu_microbench (calibrate/measurement.proto), checked, and as the rows
// that fit-ops fits.
//
// Every row must have a positive, finite time within its spread and a complete
// shape; a file that breaks off in the middle, or another tool's, is refused.
//
// Errors  CalibrateError, one line: file, which row, what is wrong.
#pragma once

#include <string>
#include <vector>

#include "calibrate/ops_table.h"
#include "hw/gpu_spec.h"

namespace kneepoint::calibrate {

/// A rate or latency that no form takes, for the reader.
struct MeasuredFigure {
  std::string what;        ///< "memory read"
  std::int64_t bytes = 0;  ///< Of the array; 0 for a latency.
  double value = 0;
  std::string unit;
};

struct MeasuredGpu {
  std::string full_name;
  std::string capability;  ///< "9.0"
  std::string about;       ///< "NVIDIA H200, driver 580.1, CUDA 13.0, 2026-12-01": the rates' source.
  std::int64_t sm_count = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  double memory_bytes_per_s = 0;  ///< Clock times bus; 0 if the driver does not tell.
  double max_sm_clock_hz = 0;
  double l2_bytes_per_s = 0;  ///< Fastest read of what fits half of L2; 0 if none was measured.
};

struct GpuMeasurement {
  MeasuredGpu gpu;
  OpsTable rows;
  std::vector<MeasuredFigure> figures;  ///< By name and size.
  std::vector<std::string> warnings;    ///< Throttled, noisy, ended early, own kernels: one line each.
};

/// `gpu_name` becomes the rows' GPU.
[[nodiscard]] GpuMeasurement read_measurement(const std::string& path, const std::string& gpu_name);

/// The same from text; `label` names it in messages.
[[nodiscard]] GpuMeasurement parse_measurement(const std::string& text, const std::string& label,
                                               const std::string& gpu_name);

/// The GPU as its driver and the measurement describe it, for who has no data sheet:
/// text of hw/specs.proto with `rates_file` beside it. Peaks are what the chip's
/// generation computes in a cycle, times SMs, times the maximum clock.
[[nodiscard]] std::string gpu_description(const MeasuredGpu& gpu, const std::string& name,
                                          const std::string& rates_file);

}  // namespace kneepoint::calibrate
