// Which measured operators the forms claim to predict, and which not, and why.
//
// Some rows show the benchmark and not the operator: weights that six replays
// found in L2, a host whose PCIe switch runs at a tenth of its rate. A model
// that bent itself to them would be wrong in a server. Such rows are told apart,
// counted, and their errors are printed all the same.
#pragma once

#include <string_view>

#include "calibrate/ops_table.h"

namespace kneepoint::calibrate {

struct Claim {
  bool fitted = true;       ///< The fit learns from this row.
  std::string_view reason;  ///< Why the row is not claimed; "" if it is.
};

[[nodiscard]] Claim claim_of(const OperatorRow& row);

}  // namespace kneepoint::calibrate
