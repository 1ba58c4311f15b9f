#include "engine/step_plan.h"

namespace kneepoint::engine {

std::string_view admission_stop_name(AdmissionStop stop) {
  switch (stop) {
    case AdmissionStop::kQueueEmpty:
      return "queue_empty";
    case AdmissionStop::kPreempted:
      return "preempted";
    case AdmissionStop::kMaxNumSeqs:
      return "max_num_seqs";
    case AdmissionStop::kTokenBudget:
      return "token_budget";
    case AdmissionStop::kPromptTooLong:
      return "prompt_too_long";
    case AdmissionStop::kKvBlocks:
      return "kv_blocks";
    case AdmissionStop::kOutputInFlight:
      return "output_in_flight";
    case AdmissionStop::kAdapterSlots:
      return "adapter_slots";
    case AdmissionStop::kThrottled:
      return "throttled";
    case AdmissionStop::kDraftRoom:
      return "draft_room";
  }
  return "";
}

void StepPlan::clear() {
  step = 0;
  individual.clear();
  cohort = {};
  num_unwalked = 0;
  num_tokens = 0;
  preempted.clear();
  paused.clear();
  finished.clear();
  finished_reason.clear();
  admission_stop = AdmissionStop::kQueueEmpty;
  not_admitted = kNoRequest;
  blocks_swapped_in = 0;
  blocks_swapped_out = 0;
}

}  // namespace kneepoint::engine
