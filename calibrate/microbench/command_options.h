// The command line of gpu_microbench, and its last words.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "calibrate/microbench/measurement.h"

namespace kneepoint::microbench {

struct CommandOptions {
  std::string out = "my-gpu.measurement.textproto";
  double budget_seconds = 240;
  std::string date;  ///< Empty: today's.
  int device = 0;
  bool check = false;
  bool help = false;
};

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws UsageError, naming the closest option.
[[nodiscard]] CommandOptions parse_options(const std::vector<std::string>& arguments);

[[nodiscard]] const char* usage_text();

/// The best of each family in units that people compare: GB/s, TFLOP/s, and the decode
/// kernel's share of the copy's bandwidth.
[[nodiscard]] std::vector<std::string> highlights(const Measurement& measurement);

}  // namespace kneepoint::microbench
