// A measurement as it grows, and as text: calibrate/measurement.proto in the text
// format of protocol buffers, written by hand, since the machine with the GPU need
// not have the library. calibrate reads it back with the real one.
//
//     row { us: 21.4 us_min: 21.3 us_max: 21.9 repeats: 7 calls: 47 implementation: "cublasLt" sm_mhz: 1980
//       gemm { precision: "bf16" m: 64 n: 6144 k: 4096 } }
#pragma once

#include <string>
#include <vector>

#include "calibrate/microbench/device.h"

namespace kneepoint::microbench {

struct MeasuredRow {
  Shape shape;
  Timing timing;
};

struct SkippedShapes {
  std::string why;
  std::string first;  ///< As describe() has it.
  std::int64_t count = 0;
};

struct Measurement {
  std::string date;  ///< "2026-12-01"
  DeviceFacts facts;
  std::int64_t planned = 0;
  double seconds = 0;
  std::string
      ended_by;  ///< "all shapes measured", "budget", "interrupted", "error: ..."; empty while it runs.
  std::vector<MeasuredRow> rows;
  std::vector<SkippedShapes> skipped;

  void skip(const Shape& shape, const std::string& why);
};

/// The middle one, or the mean of the two in the middle. `values` is not empty.
[[nodiscard]] double median(std::vector<double> values);

[[nodiscard]] std::string measurement_text(const Measurement& measurement);

/// Puts `text` in the place of the file `path` at once: whoever reads finds the old
/// text or the new one. Throws std::runtime_error.
void replace_file(const std::string& path, const std::string& text);

}  // namespace kneepoint::microbench
