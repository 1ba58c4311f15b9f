// Time of a collective between the GPUs of one server.
//
// Libraries hold several algorithms and take the fastest for the message: one
// shot (everybody sends everything to everybody: one latency, most bytes), two
// shots (reduce-scatter, then all-gather) and rings or switch multicast. Each is
// a straight line, latency + bytes / bandwidth; the fastest of them is increasing
// and concave:
//
//     time = min over i ( latency_i + message / bandwidth_i )
//
// One set of lines for each operation and number of GPUs, as measured.
//
// Units   microseconds, bytes (hw/roof.h).
// Floor   what must cross a GPU's link, over its nominal rate (collective_cost(), hw/operator_graph.h).
// Source  lines refitted by calibrate/ on measured tables; parameters in hw/rates/.
//         R. Thakur et al., "Optimization of collective communication operations in MPICH", 2005.
#pragma once

#include <span>

#include "hw/parameter.h"

namespace kneepoint::hw {

struct CollectiveParams {
  double latency1_us = 0;
  double bandwidth1 = 0;  ///< Bytes of the message a us, in GB/s.
  double latency2_us = 0;
  double bandwidth2 = 0;
  double latency3_us = 0;
  double bandwidth3 = 0;
};

[[nodiscard]] std::span<const ParameterSpec<CollectiveParams>> collective_parameters();

/// `crossing_bytes` have to cross one GPU's link, whose nominal rate in one direction is `link_bytes_per_us`.
[[nodiscard]] double collective_us(double message_bytes, double crossing_bytes, const CollectiveParams& params,
                                   double link_bytes_per_us);

}  // namespace kneepoint::hw
