// Which shapes, in which order. A measurement may end at any time, when its budget is
// spent or somebody presses Ctrl-C, so the order is by information:
//
// 1. the first 64 shapes of every family, in turn: what a fit needs at least, from
//    the ends of each axis inwards;
// 2. the rest, so that at any time every family has the same share of its shapes.
//
// Within a family a shape's level is the sum of its axes' levels. An axis's ends have
// level 0, its middle 1, the middles of the halves 2, and so on:
//
//     m = 1 2 4 8 16 32 64 128 256      level 0 3 2 3 1 3 2 3 0
//
// Source  products (n, k): the layers of the models in hw/models, TP 1 to 8;
//         tests/calibrate/microbench_plan_test.cc holds the list to them.
#pragma once

#include <vector>

#include "calibrate/microbench/device.h"

namespace kneepoint::microbench {

/// All shapes that fit this GPU, best first. Never empty.
[[nodiscard]] std::vector<Shape> plan_shapes(const DeviceFacts& facts);

/// Level of each of `count` points of an axis.
[[nodiscard]] std::vector<int> axis_levels(int count);

}  // namespace kneepoint::microbench
