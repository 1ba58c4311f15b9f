// vLLM's own line for each engine step, as --enable-logging-iteration-details
// writes it, so that tools for the one read the other (`calibrate` does).
//
//     INFO 01-01 00:00:37 [loggers.py:199] Engine 000: Iteration(6269): 1 context requests, 241 context
//     tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 76.62 ms, GPU KV cache
//     usage: 1.3%
//
// on one line. The stamp is simulated time, the run starting with 1 January. The
// iterations count the steps that computed something, as vLLM's do, so that a gap
// in them is a lost line. The elapsed time is the device's: on a recorded
// synchronous server what lies between two steps is not in the logged times.
//
// Source  recorded logs of vLLM 0.32.0.
#pragma once

#include <string>

#include "sim/observer.h"
#include "sim/output_files.h"

namespace kneepoint::sim {

class StepLog final : public RunObserver {
 public:
  /// `file` must outlive this.
  explicit StepLog(OutputFile& file) : file_(file) {}
  void on_step(const StepRecord& step) override;

 private:
  OutputFile& file_;
  std::int64_t iteration_ = -1;  // Of the newest line; -1 before the first.
  std::string line_;  // Reused.
};

}  // namespace kneepoint::sim
