// What limits the server at the knee and beyond.
//
// A request waits for one of two things. Either the plan of a step stopped before
// it, and the engine says why: no KV blocks, the step's token budget, max_num_seqs.
// Or it was let in and its time went into steps. So
//
//     waits for admission make up a quarter of the mean TTFT
//                                    the cause that most of them share binds
//     the GPU works less than 3/4 of the time
//                                    the CPU between the steps
//     else                           what most of a typical step's time is bound by:
//                                    memory bandwidth, compute, network, launches
//                                    (hw/explain.h)
//
// and if the same requests at smoother arrivals of the same rate let the knee move
// up by more than a tenth, the arrivals' own bursts bind at the SLO's knee: the
// server has room on average. Each verdict comes with its figures.
#pragma once

#include <vector>

#include "hw/explain.h"
#include "sim/find_knees.h"
#include "sim/knee.h"

namespace kneepoint::sim {

/// Tokens of context of a running request, from the KV blocks in use.
[[nodiscard]] double mean_context(const RunConfig& config, const LoadPoint& point);

/// The mean step at a point, for hw::explain().
[[nodiscard]] hw::ExplainedStep typical_step(const RunConfig& config, const LoadPoint& point);

/// At the headline knee and at the first load beyond saturation.
[[nodiscard]] std::vector<Binding> find_bindings(const KneeQuestion& question, const KneeResult& result);

}  // namespace kneepoint::sim
